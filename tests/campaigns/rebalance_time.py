"""G2: many groups rebalance, then one large group; how long the coordinator takes.

Run as `python -m tests.campaigns.rebalance_time --full --seed N`, where nothing else has much to
do. Coordinator time is taken from outside, at bare sockets: from before a group's last JoinGroup is
sent to after its last SyncGroup answer has been read, less the time that its leader took. It is
judged in full size; the short form judges what members are told, and prints the times. With all
groups at once a time is mostly that of waiting for the others' requests: it is printed alone.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from bench.loads.frames import wait_for_coordinators
from bench.loads.groups import formed, rebalance
from bench.loads.poller import Poller, allow_connections
from bench.loads.sockets import percentile
from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns import broken_groups_serve
from tests.campaigns.machine import Others
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.loads.groups import GroupLoad

WARM_ROUNDS = 3


class Limit(NamedTuple):
    """What the coordinator may take."""

    what: str
    share: float
    limit_s: float


class Load(NamedTuple):
    """How many groups of how many members there are, how many rebalance together, how often all."""

    name: str
    groups: int
    members: int
    together: int
    rounds: int
    limit: Limit | None = None


P99 = Limit("coordinator time, p99", 0.99, 0.1)
LARGE = Limit("coordinator time of the large group, longest", 1.0, 1.0)
AT_ONCE = Load("at_once", 100, 10, 100, 5)
IN_TENS = Load("in_tens", 100, 10, 10, 20, P99)
LARGE_GROUP = Load("large_group", 1, 1_000, 1, 10, LARGE)
FULL = (AT_ONCE, IN_TENS, LARGE_GROUP)
SHORT = (Load("in_fives", 10, 5, 5, 3), Load("large_group", 1, 50, 1, 3))


def run(seed: int, full: bool) -> Report:
    """Rebalance, and do it again with coordinators that are broken on purpose."""
    report = Report("rebalance_time", seed)
    loads = FULL if full else SHORT
    rebalances(report, Random(seed), loads, SERVE)
    for load in loads:
        report.require(f"rebalances_{load.name}", load.groups * load.rounds)
    control(report, "generations-skip", "generation", SHORT[0])
    if full:
        control(report, "blocking-syncs", P99.what, IN_TENS._replace(rounds=1))
        control(report, "quadratic-rounds", LARGE.what, LARGE_GROUP._replace(rounds=1))
    return report


def control(report: Report, bug: str, what: str, load: Load) -> None:
    """Break the coordinator; that must be found."""
    found = Report(f"control: {bug}", report.seed)
    rebalances(found, Random(report.seed), [load], broken_groups_serve.command(bug))
    report.expect_alarm(found, what)


def rebalances(
    report: Report, random: Random, loads: Sequence[Load], command: Sequence[str]
) -> None:
    """Put one load after the other on a gateway."""
    with (
        checked_directory() as directory,
        GatewayProcess(directory / "data", command=command) as gateway,
    ):
        address = (gateway.host, gateway.port)
        for load in loads:
            names = [f"{load.name}-{number}" for number in range(load.groups)]
            wait_for_coordinators(address, names)
            allow_connections(load.groups * load.members)
            try:
                with Poller(address) as poller:
                    groups = formed(poller, names, load.members)
                    with Others(gateway) as others:
                        taken_s = rounds_of(report, random, groups, load)
            except (AssertionError, OSError) as error:
                # An answer with an error, a connection that was closed, nothing for a minute.
                report.fail(f"{load.name}: {type(error).__name__}: {error}")
                return
            judge(report, load, taken_s, others)


def rounds_of(
    report: Report, random: Random, groups: Sequence[GroupLoad], load: Load
) -> list[float]:
    """Rebalance all groups so often; return the coordinator's time of each."""
    taken_s: list[float] = []
    for number in range(WARM_ROUNDS + load.rounds):
        for first in range(0, len(groups), load.together):
            some = groups[first : first + load.together]
            before = [group.members[0].generation for group in some]
            rebalanced = rebalance(some, seed=random.randrange(1 << 30))
            for group, generation in zip(some, before, strict=True):
                check_round(report, group, generation + 1)
            if number >= WARM_ROUNDS:
                taken_s += rebalanced.coordinator_s
                report.count(f"rebalances_{load.name}", len(some))
    return taken_s


def check_round(report: Report, group: GroupLoad, generation: int) -> None:
    """Everybody is in the next generation, under an id of its own, and one of them leads."""
    generations = {one.generation for one in group.members}
    if generations != {generation}:
        report.fail(f"{group.group_id}: generation {generations}, not {generation}")
    leaders = sum(one.leads for one in group.members)
    if leaders != 1:
        report.fail(f"{group.group_id}: {leaders} leaders")
    ids = {one.member_id for one in group.members}
    if len(ids) != len(group.members):
        report.fail(f"{group.group_id}: {len(ids)} ids of {len(group.members)} members")


def judge(report: Report, load: Load, taken_s: Sequence[float], others: Others) -> None:
    """Say how long it took, and whether that is too long."""
    for name, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0)):
        report.count(f"{name}_us_{load.name}", round(percentile(taken_s, share) * 1e6))
    if load.limit is not None:
        found_s = percentile(taken_s, load.limit.share)
        if found_s >= load.limit.limit_s:
            limit_ms = load.limit.limit_s * 1e3
            report.fail(
                f"{load.limit.what}: {found_s * 1e3:.0f} ms, not below {limit_ms:.0f}; {others}"
            )


if __name__ == "__main__":
    main(run)
