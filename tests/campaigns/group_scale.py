"""G3: a thousand consumers in a hundred groups stay where they are; what they cost over time.

Run as `python -m tests.campaigns.group_scale --full --seed N`, where nothing else has much to do.
Every consumer has two connections: heartbeats on one, on the other long polls of a partition
without records. All of them are plain: the gateway does not serve TLS yet, and nothing here says
what a thousand consumers cost with it. Memory and latency are judged in full size. The short form
sends heartbeats much more often, until so many have been answered: it judges what members are told
and how memory grows with that many heartbeats, and prints the latencies.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bench.loads.connections import LongPolls
from bench.loads.frames import ask, create_topics, wait_for_coordinators, wait_for_leaders
from bench.loads.groups import Heartbeats, formed
from bench.loads.poller import Poller, allow_connections
from bench.loads.sockets import percentile
from kgw.groups.states import GroupState
from kgw.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns import broken_groups_serve
from tests.campaigns.machine import Others
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.loads.groups import GroupLoad

TOPIC = "orders"
PARTITIONS = 10
DESCRIBE_VERSION = 5
P99_S = 0.05
RSS_BYTES = 1_000_000_000
GROWTH = 0.05


class Size(NamedTuple):
    """How many consumers there are, what they do how often, and for how long."""

    groups: int
    members: int
    heartbeat_s: float
    poll_ms: int
    warm_s: float
    watched_s: float
    counted: int = 0
    """Heartbeats to be answered before memory is looked at, and again after that: then no time."""

    @property
    def heartbeats(self) -> int:
        """How many there are at the least, on a machine that is busy otherwise."""
        by_time = int(self.groups * self.members * self.watched_s / self.heartbeat_s * 0.5)
        return self.counted or by_time


FULL = Size(100, 10, 3.0, 500, 20.0, 120.0)
SHORT = Size(10, 5, 0.05, 100, 0.0, 0.0, counted=1_000)
"""A thousand leaks of 4 KB are a tenth of the memory, twice what it may grow."""
FULL_LEAK = FULL._replace(watched_s=30.0)
FULL_SLOW = FULL._replace(warm_s=5.0, watched_s=10.0)


def run(seed: int, full: bool) -> Report:
    """Watch consumers that stay, and do it again with gateways that are broken on purpose."""
    report = Report("group_scale", seed)
    size = FULL if full else SHORT
    consumers_stay(report, size, SERVE, is_timed=full)
    report.require("heartbeats", size.heartbeats)
    report.require("groups_stable_at_the_end", size.groups)
    if full:
        control(report, "heartbeats-leak", "memory grew", FULL_LEAK)
        control(report, "blocking-heartbeats", "heartbeats, p99", FULL_SLOW)
    else:
        report.require("long_polls", size.groups * size.members)
        control(report, "heartbeats-leak", "memory grew", SHORT, is_timed=False)
    return report


def control(report: Report, bug: str, what: str, size: Size, *, is_timed: bool = True) -> None:
    """Break the gateway; that must be found."""
    found = Report(f"control: {bug}", report.seed)
    consumers_stay(found, size, broken_groups_serve.command(bug), is_timed=is_timed)
    report.expect_alarm(found, what)


def consumers_stay(report: Report, size: Size, command: Sequence[str], *, is_timed: bool) -> None:
    """Form the groups, let them be, and judge what was measured meanwhile."""
    with (
        checked_directory() as directory,
        GatewayProcess(directory / "data", command=command) as gateway,
    ):
        address = (gateway.host, gateway.port)
        names = [f"group-{number}" for number in range(size.groups)]
        create_topics(address, {TOPIC: PARTITIONS})
        wait_for_leaders(address, {TOPIC: PARTITIONS})
        wait_for_coordinators(address, names)
        consumers = size.groups * size.members
        allow_connections(2 * consumers)
        try:
            with Poller(address) as poller:
                groups = formed(poller, names, size.members)
                heartbeats = Heartbeats(groups, size.heartbeat_s)
                polls = LongPolls(poller, TOPIC, consumers, size.poll_ms, PARTITIONS)
                watch(poller, heartbeats, size.counted, size.warm_s)
                warm_bytes, warm_count = rss_bytes(gateway), len(heartbeats.latencies_s)
                with Others(gateway) as others:
                    watch(poller, heartbeats, size.counted, size.watched_s)
                end_bytes, latencies_s = rss_bytes(gateway), heartbeats.latencies_s[warm_count:]
                check_groups(report, gateway, groups)
        except (AssertionError, OSError) as error:
            # An answer with an error, a connection that was closed, nothing heard for a minute.
            report.fail(f"{type(error).__name__}: {error}")
            return
    report.count("heartbeats", len(latencies_s))
    report.count("long_polls", polls.answered)
    report.count("rss_kb_warm", warm_bytes >> 10)
    report.count("rss_kb_at_the_end", end_bytes >> 10)
    for name, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0)):
        report.count(f"{name}_us_of_a_heartbeat", round(percentile(latencies_s, share) * 1e6))
    if end_bytes >= warm_bytes * (1 + GROWTH):
        report.fail(f"memory grew from {warm_bytes >> 10} to {end_bytes >> 10} KB")
    if not is_timed:
        return
    if end_bytes >= RSS_BYTES:
        report.fail(f"memory: {end_bytes >> 20} MB")
    p99_s = percentile(latencies_s, 0.99)
    if p99_s >= P99_S:
        report.fail(f"heartbeats, p99: {p99_s * 1e3:.0f} ms, not below {P99_S * 1e3:.0f}; {others}")


def watch(poller: Poller, heartbeats: Heartbeats, counted: int, for_s: float) -> None:
    """Let consumers be until so many more heartbeats have been answered, or for so long."""
    if not counted:
        poller.run_until(time.perf_counter() + for_s)
        return
    wanted = len(heartbeats.latencies_s) + counted
    poller.run(lambda: len(heartbeats.latencies_s) >= wanted)


def rss_bytes(gateway: GatewayProcess) -> int:
    """Return what the gateway holds in memory."""
    usage = gateway.usage()
    return usage.anonymous_bytes + usage.file_bytes


def check_groups(report: Report, gateway: GatewayProcess, groups: Sequence[GroupLoad]) -> None:
    """Nobody was put out, and no group has formed anew."""
    names = [group.group_id for group in groups]
    request = DescribeGroupsRequest(groups=names)
    address = (gateway.host, gateway.port)
    answer = ask(address, request, DescribeGroupsResponse, DESCRIBE_VERSION)
    for described, group in zip(answer.groups, groups, strict=True):
        found = {one.member_id for one in described.members}
        if described.group_state != GroupState.STABLE.value:
            report.fail(f"{group.group_id}: {described.group_state} at the end")
        elif found != {one.member_id for one in group.members}:
            report.fail(f"{group.group_id}: other members at the end")
        else:
            report.count("groups_stable_at_the_end")


if __name__ == "__main__":
    main(run)
