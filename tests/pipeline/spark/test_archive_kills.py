"""The archive job under kills of the driver and of the gateway: each record in it once.

ARCHIVE_KILLS=20:10 says how often each is killed in full size.
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.client import AdminClient
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, encode_entry
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.wire import WireClient
from kgw.testing.process import GatewayProcess
from tests.pipeline.spark.campaign import PARTITIONS, Killable, Producing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(3600)]

TOPIC = "source"
DRIVER_KILLS, GATEWAY_KILLS = (
    int(one) for one in os.environ.get("ARCHIVE_KILLS", "20:10").split(":")
)


def archiver(address: str, place: Path, *options: str) -> Killable:
    """Start an archiver that says each commit in a line."""
    to = ("-t", TOPIC, "--out", str(place / "archive"), "-b", address, "--json")
    arguments = ["-m", "kgw", "pipeline", "archive", *to, *options]
    return Killable(arguments, place / "archiver.log")


def audited(address: str, place: Path) -> list[dict[str, Any]]:
    """Return what an audit of all levels finds."""
    to = ("--archive", str(place / "archive"), "-b", address, "--level", "3", "--json")
    result = CliRunner().invoke(main, ["pipeline", "audit", *to], prog_name="kgw")
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return found


def test_each_record_is_archived_once(tmp_path: Path) -> None:
    """What was produced is what is there, in order; a careless committer is found by the audit."""
    choices = random.Random(20261)
    events = ["driver"] * DRIVER_KILLS + ["gateway"] * GATEWAY_KILLS
    choices.shuffle(events)
    follow = ("--follow", "--max-lag", "PT1S")
    with GatewayProcess(tmp_path / "data") as gateway:
        with WireClient(gateway.bootstrap) as wire:
            wire.call(AdminClient(wire.client).create_topic(TOPIC, partitions=PARTITIONS))
            described = wire.find_topic(TOPIC)
        assert described is not None
        topic_id = UUID(bytes=bytes(described.topic_id))
        running = archiver(gateway.bootstrap, tmp_path, *follow)
        with Producing(gateway.bootstrap, TOPIC) as producing:
            for event in events:
                while not running.wait_for_line():
                    # A gateway that was away for too long ended it: users start it again, too.
                    assert 1 == running.result(60), (tmp_path / "archiver.log").read_text()[-2000:]
                    running.kill()
                    running = archiver(gateway.bootstrap, tmp_path, *follow)
                time.sleep(choices.random() * 2)
                if event == "driver":
                    running.kill()
                    running = archiver(gateway.bootstrap, tmp_path, *follow)
                else:
                    gateway.kill()
                    gateway.start()
            running.kill()
        with archiver(gateway.bootstrap, tmp_path) as last:
            code = last.result(300)
        assert 0 == code, (tmp_path / "archiver.log").read_text()[-4000:]
        findings = audited(gateway.bootstrap, tmp_path)

        generation = generation_directory(str(tmp_path / "archive"), TOPIC, topic_id)
        log = CommitLog(generation, topic_id)
        snapshot = log.read()
        files = len(snapshot.coverage.files())
        print(f"{sum(producing.counts)} records, {snapshot.version} commits, {files} files")
        assert [] == findings
        for partition, count in enumerate(producing.counts):
            covered = snapshot.coverage.partitions[partition]
            batches = read_range(generation, covered, 0, covered.next)
            values = [one for batch in batches for one in batch.column("value").to_pylist()]
            assert [b"%d-%d" % (partition, one) for one in range(count)] == values

        # The control: a committer that does not ask the rules.
        again = log.entry(snapshot.version)
        assert again is not None
        careless = CommitLogEntry(uuid4(), topic_id, added=again.added)
        name = f"{snapshot.version + 1:020d}.json"
        (generation / "_log" / name).write_bytes(encode_entry(careless))
        assert "overlap" in [one["finding"] for one in audited(gateway.bootstrap, tmp_path)]
