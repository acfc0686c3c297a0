from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from kgw.cli.main import main
from tests.pipeline.archive.tables.archives import Archived

if TYPE_CHECKING:
    from pathlib import Path


def test_the_table_of_a_dry_run_has_what_is_known_before(tmp_path: Path) -> None:
    """How dirty each partition is, and how much of it there is; nothing of what would come."""
    Archived(tmp_path).append(10, 20)
    compact = ("pipeline", "compact", "--archive", str(tmp_path), "-t", "or.ders", "--dry-run")
    result = CliRunner().invoke(main, compact, prog_name="kgw")
    assert 0 == result.exit_code, result.output
    heading, row = (line.split() for line in result.stdout.splitlines())
    assert ["TOPIC", "PARTITION", "DIRTY", "RATIO", "RECORDS", "BYTES"] == heading
    assert ["or.ders", "3", "1.00"] == row[:3]
