"""D13 for a revision of today's format: this checkout opens what it has left, killed under load.

`python -m tests.campaigns.two_revisions REVISION [--rounds N] [--seed N]`

In each round the revision's server and then this checkout's are killed on one directory under the
producers and consumers of `kill_loop`. Then each opens a directory in which the other was given the
load of `old_data_fixture`: settings, committed offsets, members, a producer's batches. The older
one serves all of it, or refuses the directory, which then is as good as before. The control is a
server that answers before it writes, in place of the revision's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING

from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns.history import AnomalyKind
from tests.campaigns.kill_loop import READY_S, UNSAFE_SERVE, run_kills
from tests.campaigns.old_data import SETTINGS, Fixture, judge_process
from tests.campaigns.old_data_fixture import SOON, load
from tests.campaigns.old_server import old_server
from tests.campaigns.support import Report, checked_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


KILLS = 4
"""Of one round, half of them of each server."""
REFUSAL = "is of a newer kgw"


def write_and_kill(report: Report, data: Path, command: Sequence[str]) -> Fixture:
    """Give a server the fixed load and kill it; returns what its directory has to hold."""
    gateway = GatewayProcess(data, *SOON, command=command).start()
    try:
        manifest = asyncio.run(load(gateway))
    finally:
        gateway.kill()
    for what in manifest["left_out"]:
        report.fail(f"{data.name}: not loaded: {what}")
    said = data.with_name(f"{data.name}.json")
    said.write_text(json.dumps(manifest | {"ended": "killed"}))
    return Fixture(said)


def judge(report: Report, fixture: Fixture, data: Path, command: Sequence[str]) -> None:
    """Compare what a server serves with what was answered.

    Raises:
        RuntimeError: The server did not start.
    """
    with GatewayProcess(data, *SETTINGS, command=command) as gateway:
        asyncio.run(judge_process(report, fixture, gateway, "opened after a kill"))


def hand_over(report: Report, parent: Path, old: Sequence[str]) -> None:
    """Let each server open what the other has left."""
    data = parent / "from-old"
    judge(report, write_and_kill(report, data, old), data, SERVE)
    data = parent / "from-new"
    fixture = write_and_kill(report, data, SERVE)
    try:
        judge(report, fixture, data, old)
        report.count("opened_by_old")
    except RuntimeError as error:
        if REFUSAL not in str(error):
            raise
        report.count("refused_by_old")
        judge(report, fixture, data, SERVE)


def run(revision: str, seed: int, rounds: int) -> list[Report]:
    """Run both parts."""
    with old_server(revision) as old, checked_directory() as parent:
        report = Report(f"two-revisions {revision}", seed)
        hand_over(report, parent, old)
        for what in ("records", "commits", "members", "retries", "settings"):
            report.require(what, 2)
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
