"""D13 for a revision of today's format: this checkout opens what it has left, killed under load.

`python -m tests.campaigns.two_revisions REVISION [--rounds N] [--seed N]`

In each round the revision's server and then this checkout's are killed on one directory under the
producers and consumers of `kill_loop`. Then each opens a directory in which the other was given the
load of `old_data_fixture`: settings, committed offsets, members, a producer's batches. The older
one serves all of it, or refuses the directory, which then is as good as before. The same is done
with namespaces of a real SeaweedFS. The control is a server that answers before it writes, in place
of the revision's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns.history import AnomalyKind
from tests.campaigns.kill_loop import READY_S, UNSAFE_SERVE, run_kills
from tests.campaigns.old_data import SETTINGS, Fixture, judge_process
from tests.campaigns.old_data_fixture import SOON, load
from tests.campaigns.old_server import old_server
from tests.campaigns.seaweedmq_site import a_site
from tests.campaigns.support import Report, checked_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.campaigns.seaweedmq_site import Site


KILLS = 4
"""Of one round, half of them of each server."""
REFUSAL = "is of a newer kgw"


class Storage(NamedTuple):
    """Where both servers keep their records: data directories, or namespaces of a SeaweedFS."""

    kind: str
    gateway: Callable[[str, Sequence[str], Sequence[str]], GatewayProcess]
    """Takes the name of a directory or a namespace, the command that serves, and settings."""
    parent: Path
    """The directory for manifests."""


def directories(parent: Path) -> Storage:
    """Keep records in data directories under `parent`."""
    return Storage(
        "directory",
        lambda name, command, settings: GatewayProcess(parent / name, *settings, command=command),
        parent,
    )


def namespaces(site: Site) -> Storage:
    """Keep records in namespaces of a SeaweedFS."""
    return Storage(
        "namespace",
        lambda name, command, settings: site.gateway(
            site.cluster.url(name), (*command, "--take-over"), *settings
        ),
        site.directory,
    )


def write_and_kill(report: Report, storage: Storage, name: str, command: Sequence[str]) -> Fixture:
    """Give a server the fixed load and kill it; returns what its directory has to hold."""
    gateway = storage.gateway(name, command, SOON).start()
    try:
        manifest = asyncio.run(load(gateway))
    finally:
        gateway.kill()
    for what in manifest["left_out"]:
        report.fail(f"{name} ({storage.kind}): not loaded: {what}")
    said = storage.parent / f"{name}.json"
    said.write_text(json.dumps(manifest | {"ended": "killed"}))
    return Fixture(said)


def judge(report: Report, storage: Storage, fixture: Fixture, command: Sequence[str]) -> None:
    """Compare what a server serves with what was answered.

    Raises:
        RuntimeError: The server did not start.
    """
    with storage.gateway(fixture.name, command, SETTINGS) as gateway:
        place = f"the {storage.kind}, opened after a kill"
        asyncio.run(judge_process(report, fixture, gateway, place))


def hand_over(report: Report, storage: Storage, old: Sequence[str]) -> None:
    """Let each server open what the other has left."""
    judge(report, storage, write_and_kill(report, storage, "from-old", old), SERVE)
    fixture = write_and_kill(report, storage, "from-new", SERVE)
    try:
        judge(report, storage, fixture, old)
        report.count(f"{storage.kind}_opened_by_old")
    except RuntimeError as error:
        if REFUSAL not in str(error):
            raise
        report.count(f"{storage.kind}_refused_by_old")
        judge(report, storage, fixture, SERVE)


def run(revision: str, seed: int, rounds: int) -> list[Report]:
    """Run both parts."""
    with old_server(revision) as old, checked_directory() as parent:
        report = Report(f"two-revisions {revision}", seed)
        hand_over(report, directories(parent), old)
        with a_site(report) as site:
            hand_over(report, namespaces(site), old)
        for what in ("records", "commits", "members", "retries", "settings"):
            report.require(what, 4)
        unsafe = run_kills(seed, KILLS, (UNSAFE_SERVE,) * KILLS + (SERVE,))
        report.expect_alarm(unsafe, AnomalyKind.ACKED_LOST.value)
        commands = [old] * (KILLS // 2) + [SERVE] * (KILLS // 2 + 1)
        return [
            report,
            *(
                run_kills(seed + number, KILLS, commands, ready_s=READY_S)
                for number in range(rounds)
            ),
        ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("revision", help="whose server writes, and opens, beside this checkout's")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261)
    given = parser.parse_args()
    reports = run(given.revision, given.seed, given.rounds)
    for report in reports:
        print(report, flush=True)
    sys.exit(any(report.failure_count for report in reports))
