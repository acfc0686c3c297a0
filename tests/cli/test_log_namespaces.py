"""`kgw log` at a namespace of a real SeaweedFS."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from tests.seaweedfs.cluster import Cluster


@pytest.mark.slow
def test_records_are_copied_into_a_namespace_and_out_of_it(
    seaweedfs: Cluster, offline: Commands, tmp_path: Path
) -> None:
    """With the state after the records: whichever of the two is the source, all offsets stay."""
    data_dir, copy = tmp_path / "data", tmp_path / "copy"
    url = seaweedfs.url(seaweedfs.new_namespace())
    with GatewayProcess(data_dir) as process:
        kgw = Commands(process.bootstrap)
        kgw.succeed("topics", "create", "events", "-p", "2")
        kgw.succeed("produce", "events", "-p", "1", data="a\nb\nc\n")

    expected = [("events", 0, 0, 0, None), ("events", 1, 0, 3, None)]
    for source, target in ((str(data_dir), url), (url, str(copy))):
        copied = offline.json("log", "copy", source, "--to", target)
        assert expected == [
            (one["topic"], one["partition"], one["start_offset"], one["end_offset"], one["failure"])
            for one in copied
        ]
        offline.succeed("state", "copy", source, "--to", target)
    # And back, without a server in between; a server's start ends what the copy vouches for.
    again = seaweedfs.url(seaweedfs.new_namespace())
    for _ in range(2):
        copied = offline.json("log", "copy", str(copy), "--to", again)
        assert [None, None] == [one["failure"] for one in copied]
    offline.succeed("state", "copy", str(copy), "--to", again)
    for place in (url, str(copy), again):
        lines = offline.succeed("log", "dump", place, "--records", "--json").splitlines()
        values = [one["value"] for line in lines for one in json.loads(line).get("records", ())]
        assert ["a", "b", "c"] == values
    with GatewayProcess(copy) as process:
        process.kill()
    told = offline.fail(ExitCode.DATA_DIRECTORY, "log", "copy", str(copy), "--to", again)
    assert "was not stopped in order" in told


@pytest.mark.slow
def test_a_partition_whose_files_are_all_gone_is_told_of(
    seaweedfs: Cluster, offline: Commands, tmp_path: Path
) -> None:
    """By its directory, as damage without bytes; the other partitions are printed."""
    url = seaweedfs.url(seaweedfs.new_namespace())
    with GatewayProcess(tmp_path / "data", backend=url) as process:
        kgw = Commands(process.bootstrap)
        kgw.succeed("topics", "create", "events", "-p", "2")
        for partition in ("0", "1"):
            kgw.succeed("produce", "events", "-p", partition, data="a\n")
    kept, lost = (
        PurePosixPath(json.loads(line)["segment"]).parent
        for line in offline.succeed("log", "dump", url, "--json").splitlines()
    )

    filer = HTTPConnection(seaweedfs.address("filer"), timeout=patience.seconds(10))
    filer.request("GET", f"{lost}/", headers={"Accept": "application/json"})
    for entry in json.loads(filer.getresponse().read())["Entries"]:
        filer.request("DELETE", entry["FullPath"])
        filer.getresponse().read()
    filer.close()

    result = offline.run("log", "dump", url, "--json")
    assert ExitCode.FAILED == result.exit_code
    batch, damage = (json.loads(line) for line in result.stdout.splitlines())
    assert kept == PurePosixPath(batch["segment"]).parent
    nothing = {"position": 0, "size_bytes": 0, "detail": "nothing says which files there are"}
    assert {"segment": str(lost), "damage": nothing} == damage
