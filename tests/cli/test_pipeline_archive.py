from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.cli.shared.errors import ExitCode
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
            served.cluster,
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


def test_what_was_archived_is_told_as_json(tmp_path: Path) -> None:
    """A row for each topic, with the end of each partition; nothing to archive needs no Spark."""
    with ServedTopics() as served:
        served.create("orders", 2)
        archive = ["pipeline", "archive", "-t", "orders", "--out", str(tmp_path), "--json"]
        result = CliRunner().invoke(main, [*archive, "-b", served.address], prog_name="kgw")
    assert 0 == result.exit_code
    (told,) = json.loads(result.stdout)
    assert ("orders", 0, 0) == (told["topic"], told["records"], told["files"])


def test_a_topic_that_is_created_again_is_held_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is followed: its new life has none of the settings that the old one had."""
    with ServedTopics() as served:
        admin = AdminClient(served.wire.client)

        def holds() -> list[str | None]:
            rows = served.wire.call(admin.describe_settings(TOPIC, "orders"))
            return [one.value for one in rows if one.name == "kgw.archive.hold"]

        def create_again() -> None:
            told.append(holds())
            served.wire.call(admin.delete_topic("orders"))
            served.create("orders")
            told.append(holds())

        def interrupt() -> None:
            told.append(holds())
            raise KeyboardInterrupt

        told: list[list[str | None]] = []
        pauses = iter((create_again, interrupt))
        clock = SimpleNamespace(
            time=time.time, monotonic=time.monotonic, sleep=lambda _: next(pauses)()
        )
        monkeypatch.setattr("kgw.cli.pipeline.archive.time", clock)
        served.create("orders")
        archive = ["pipeline", "archive", "-t", "orders", "--out", str(tmp_path), "--follow"]
        result = CliRunner().invoke(main, [*archive, "-b", served.address], prog_name="kgw")
    assert ExitCode.INTERRUPTED == result.exit_code, result.output
    assert [["kgw-archive"], [""], ["kgw-archive"]] == told
