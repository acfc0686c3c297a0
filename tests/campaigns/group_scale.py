"""G3: a thousand consumers in a hundred groups stay where they are; what they cost over time.

Run as `python -m tests.campaigns.group_scale --full --seed N`, where nothing else has much to do.
Every consumer has two connections: heartbeats on one, on the other long polls of a partition
without records. The consumers come twice: with plain connections, and with TLS. Memory and latency
are judged in full size. The short form sends heartbeats much more often, until so many have been
answered: it judges the answers to members and how memory grows with that many heartbeats, and
prints the latencies.
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.loads.connections import LongPolls
from bench.loads.frames import (
    TlsAddress,
    ask,
    create_topics,
    wait_for_coordinators,
    wait_for_leaders,
)
from bench.loads.groups import Heartbeats, formed
from bench.loads.poller import Poller, allow_connections
from bench.loads.sockets import percentile
from kgw.groups.states import GroupState
from kgw.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kgw.testing.certificates import CertificateAuthority
from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns import broken_groups_serve
from tests.campaigns.machine import Others
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.loads.frames import Address
    from bench.loads.groups import GroupLoad

TOPIC = "orders"
PARTITIONS = 10
DESCRIBE_VERSION = 5
P99_S = 0.05
RSS_BYTES = 1_000_000_000
RSS_BYTES_WITH_TLS = 150_000_000
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
    consumers_stay(report, size, SERVE, is_timed=full, with_tls=True)
    report.require("heartbeats", size.heartbeats)
    report.require("heartbeats_with_tls", size.heartbeats)
    report.require("groups_stable_at_the_end", size.groups)
    report.require("groups_stable_at_the_end_with_tls", size.groups)
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


def consumers_stay(
    report: Report,
    size: Size,
    command: Sequence[str],
    *,
    is_timed: bool,
    with_tls: bool = False,
) -> None:
    """Form the groups, let them be, and judge what was measured meanwhile."""
    suffix = "_with_tls" if with_tls else ""
    with checked_directory() as directory:
        settings, context = security(directory) if with_tls else ((), None)
        with GatewayProcess(
            directory / "data", *settings, command=command, scheme="SSL" if context else ""
        ) as gateway:
            address: Address = (gateway.host, gateway.port)
            if context is not None:
                address = TlsAddress(gateway.host, gateway.port, context)
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
                    stable = check_groups(report, address, groups)
            except (AssertionError, OSError) as error:
                # An error in an answer, a closed connection, or no answer for a minute.
                report.fail(f"{type(error).__name__}: {error}")
                return
    report.count("groups_stable_at_the_end" + suffix, stable)
    report.count("heartbeats" + suffix, len(latencies_s))
    report.count("long_polls" + suffix, polls.answered)
    report.count("rss_kb_warm" + suffix, warm_bytes >> 10)
    report.count("rss_kb_at_the_end" + suffix, end_bytes >> 10)
    for name, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0)):
        microseconds = round(percentile(latencies_s, share) * 1e6)
        report.count(f"{name}_us_of_a_heartbeat{suffix}", microseconds)
    if end_bytes >= warm_bytes * (1 + GROWTH):
        report.fail(f"memory grew from {warm_bytes >> 10} to {end_bytes >> 10} KB{suffix}")
    if not is_timed:
        return
    if end_bytes >= (RSS_BYTES_WITH_TLS if with_tls else RSS_BYTES):
        report.fail(f"memory: {end_bytes / 1e6:.0f} MB{suffix}")
    p99_s = percentile(latencies_s, 0.99)
    if p99_s >= P99_S:
        report.fail(f"heartbeats, p99: {p99_s * 1e3:.0f} ms, not below {P99_S * 1e3:.0f}; {others}")


def security(directory: Path) -> tuple[tuple[str, ...], ssl.SSLContext]:
    """Return the settings of a gateway with a certificate, and what its clients trust."""
    authority = CertificateAuthority("kgw campaign", time.time())
    keystore = directory / "server.pem"
    keystore.touch(mode=0o600)
    keystore.write_text(authority.issue_server(["127.0.0.1"]).keystore_pem())
    context = ssl.create_default_context(cadata=authority.truststore_pem)
    return (f"ssl.keystore.location={keystore}",), context


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


def check_groups(report: Report, address: Address, groups: Sequence[GroupLoad]) -> int:
    """Return how many groups are stable with all of their members; report the others."""
    names = [group.group_id for group in groups]
    request = DescribeGroupsRequest(groups=names)
    answer = ask(address, request, DescribeGroupsResponse, DESCRIBE_VERSION)
    stable = 0
    for described, group in zip(answer.groups, groups, strict=True):
        found = {one.member_id for one in described.members}
        if described.group_state != GroupState.STABLE.value:
            report.fail(f"{group.group_id}: {described.group_state} at the end")
        elif found != {one.member_id for one in group.members}:
            report.fail(f"{group.group_id}: other members at the end")
        else:
            stable += 1
    return stable


if __name__ == "__main__":
    main(run)
