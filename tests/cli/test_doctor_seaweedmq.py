"""`kgw doctor --backend` at a real SeaweedFS; what it says of others: tests/backend/seaweedmq."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.cli.shared.errors import ExitCode

if TYPE_CHECKING:
    from tests.seaweedfs.cluster import Cluster
    from tests.seaweedfs.fixtures import NewSeaweedfs

SUBJECTS = {
    "version",
    "filers",
    "replication",
    "fsync",
    "tls",
    "fence",
    "lease",
    "state",
    "volume servers",
    "volumes",
    "topics",
    "copies",
    "encryption",
    "expiry",
    "rules",
}
NATIVE = {"native topics", "broker"}


def test_everything_is_looked_at(new_seaweedfs: NewSeaweedfs) -> None:
    """And what is missing, a broker here, is a problem that the exit code tells."""
    # One of its own: other tests start a broker in the one that all share.
    command = ["doctor", "--backend", new_seaweedfs().url("doctor"), "--json"]
    native = ("--set", "kgw.seaweedmq.native=sensors.*", "--set", "kgw.seaweedmq.acks=broker")
    synced = ("--set", "kgw.seaweedmq.fsync=true", "--set", "kgw.seaweedmq.mirror.offsets=false")
    for options, subjects in ((native, SUBJECTS | NATIVE), (synced, SUBJECTS | {"mirror"})):
        result = CliRunner().invoke(main, [*command, *options])
        found = json.loads(result.stdout)["findings"]
        problems = [one["subject"] for one in found if one["severity"] == "problem"]
        assert ["broker"] * (options is native) == problems
        assert (ExitCode.FAILED if problems else 0) == result.exit_code
        assert subjects == {one["subject"] for one in found}
        assert all(one["detail"] for one in found)


@pytest.mark.slow
def test_a_broker_that_is_there_is_named(seaweedfs_broker: Cluster) -> None:
    """Where native topics need one, it is no problem, and its address is told."""
    url = seaweedfs_broker.url(seaweedfs_broker.new_namespace())
    native = ("--set", "kgw.seaweedmq.native=sensors.*", "--set", "kgw.seaweedmq.acks=broker")
    result = CliRunner().invoke(main, ["doctor", "--backend", url, "--json", *native])
    (told,) = (one for one in json.loads(result.stdout)["findings"] if one["subject"] == "broker")
    assert ("ok", seaweedfs_broker.address("broker")) == (told["severity"], told["detail"])
