from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append, new_life
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_what_is_found_is_told_when_the_topic_is_gone(tmp_path: Path) -> None:
    """Files are audited all the same; then the command says that there was nothing to compare."""
    life = new_life(tmp_path)
    append(life, [row(0)], 1)
    (file,) = tmp_path.rglob("*.parquet")
    file.unlink()
    audit = ["pipeline", "audit", "--archive", str(tmp_path), "--level", "3", "--json"]
    with ServedTopics() as served:
        result = CliRunner().invoke(main, [*audit, "-b", served.address], prog_name="kgw")
    assert 1 == result.exit_code
    told = json.loads(result.stdout)
    assert ["missing file"] == [one["finding"] for one in told["findings"]]
    assert "there is no topic orders on the server to compare its archive with" in result.stderr
