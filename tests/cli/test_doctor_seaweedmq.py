"""`kgw doctor --backend` at a real SeaweedFS; what it says of others: tests/backend/seaweedmq."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from kgw.cli.errors import ExitCode
from kgw.cli.main import main

if TYPE_CHECKING:
    from tests.seaweedfs.cluster import Cluster

SUBJECTS = {
    "version",
    "filers",
    "replication",
    "fsync",
    "tls",
    "fence",
    "lease",
    "volume servers",
    "volumes",
    "topics",
    "copies",
    "native topics",
    "broker",
}


def test_everything_is_looked_at(seaweedfs: Cluster) -> None:
    """And what is missing, a broker here, is a problem that the exit code tells."""
    command = ["doctor", "--backend", f"seaweedmq://{seaweedfs.address('filer')}/doctor", "--json"]
    native = ("--set", "kgw.seaweedmq.native=sensors.*", "--set", "kgw.seaweedmq.acks=broker")
    for options, code in ((native, ExitCode.FAILED), (("--set", "kgw.seaweedmq.fsync=true"), 0)):
        result = CliRunner().invoke(main, [*command, *options])
        assert code == result.exit_code
        found = json.loads(result.stdout)["findings"]
        problems = [one["subject"] for one in found if one["severity"] == "problem"]
        assert ["broker"] * (code == ExitCode.FAILED) == problems
        assert {one["subject"] for one in found} <= SUBJECTS
        assert all(one["detail"] for one in found)
