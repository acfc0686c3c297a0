from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.client import AdminClient
from kgw.client.admin import TOPIC
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_hold_by_the_group_of_another_archive_is_refused(tmp_path: Path) -> None:
    """In one line, before Spark is started, and the topic is not held."""
    with ServedTopics() as served:
        served.create("orders")
        served.number("orders", {0: 10})
        first = ArchiveJob(
            served.wire,
            served.address,
            tmp_path / "first",
            Backwards(),
            ArchiveOptions(),
            now_ms=lambda: 0,
        )
        first.run_once("orders")
        archive = ["pipeline", "archive", "-t", "orders", "--out", str(tmp_path / "second")]
        result = CliRunner().invoke(
            main, [*archive, "--hold", "-b", served.address], prog_name="kgw"
        )
        admin = AdminClient(served.wire.client)
        rows = served.wire.call(admin.describe_settings(TOPIC, "orders"))
    assert 1 == result.exit_code
    assert "group kgw-archive is not this archive's: topic orders partition 0" in result.stderr
    assert "kgw groups delete-offsets kgw-archive --topic orders" in result.stderr
    assert [""] == [one.value for one in rows if one.name == "kgw.archive.hold"]
