"""Lag, anomalies, clients and the lag history, as JSON."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kgw.admin.answers import NotFoundError, page
from kgw.admin.offsets import cursor, parse_cursor
from kgw.admin.parameters import AFTER, GROUP, PARTITION, TOPIC, Parameter, ParameterError
from kgw.lag.samples import ALL_PARTITIONS, ALL_TOPICS
from kgw.state.history import FOR_EVER_MS, SampleFilter

if TYPE_CHECKING:
    from kgw.admin.answers import Answer
    from kgw.admin.parameters import QueryParameters
    from kgw.admin.rights import Viewer
    from kgw.gateway import Gateway
    from kgw.lag.samples import AtRisk, GroupSample, PartitionSample
    from kgw.offsets.lag import LagSum

FRESH_S = 5.0
TOPICS_LISTED = 100
"""How many topics of each group a list of groups has; `/api/v1/lag/partitions` has all topics."""

SINCE = Parameter("since_ms", "Nothing sampled before, wall time in milliseconds.", is_number=True)
UNTIL = Parameter("until_ms", "Nothing sampled then or later.", is_number=True)
CLIENT = Parameter("client", "Only this client id.")
_ENTRIES_A_TURN = 200
"""After this many entries, other tasks of the event loop get to run."""


async def groups(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    monitor = gateway.lag
    sample = await monitor.fresh(FRESH_S)
    name = query.text(GROUP)
    if name is None:
        after = query.text(AFTER)
        seen = filter(viewer.sees_group, sample.groups)
        behind = (one for one in seen if after is None or one > after)
        names = nsmallest(query.limit + 1, behind)
    elif name in gateway.groups.ids():
        names = [name] if name in sample.groups else []
    else:
        raise NotFoundError(f"there is no group {name!r}")
    rows = [_group(sample.groups[one], viewer) for one in names]
    counts = monitor.finding_count, sample.at_risk_count, len(monitor.positions)
    findings, at_risk_count, clients_count = counts if viewer.sees_cluster else (None,) * 3
    return {
        **page("groups", rows, query.limit, itemgetter("group")),
        "sampled_ms": sample.taken_ms,
        "anomalies": findings,
        "at_risk": at_risk_count,
        "clients": clients_count,
    }


async def partitions(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    name = query.text(GROUP) or ""
    if gateway.groups.offsets(name) is None:
        raise NotFoundError(f"there is no group {name!r}")
    after = parse_cursor(query.text(AFTER))
    topic = query.text(TOPIC)
    rows = [
        _standing(one)
        for one in await gateway.lag.standings(name)
        if one[:2] > after and topic in {None, one.topic} and viewer.sees_topic(one.topic)
    ][: query.limit + 1]
    return page("partitions", rows, query.limit, cursor)


async def at_risk(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    name = query.text(GROUP)
    if name is not None and gateway.groups.offsets(name) is None:
        raise NotFoundError(f"there is no group {name!r}")
    topic = query.text(TOPIC)
    sample = await gateway.lag.fresh(FRESH_S)
    rows = [
        _at_risk(one)
        for one in sample.at_risk
        if name in {None, one.group_id}
        and topic in {None, one.topic}
        and viewer.sees_group(one.group_id)
        and viewer.sees_topic(one.topic)
    ]
    is_all = name is topic is None and len(rows) == len(sample.at_risk)
    return {
        "at_risk": rows[: query.limit],
        "count": sample.at_risk_count if is_all else len(rows),
        "is_complete": sample.at_risk_count == len(sample.at_risk),
        "sampled_ms": sample.taken_ms,
        "risk_ms": gateway.lag.config.lag_risk_ms,
    }


async def anomalies(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    monitor = gateway.lag
    group, topic = query.text(GROUP), query.text(TOPIC)
    lasting = [
        {
            "kind": finding.kind.value,
            "group": finding.group_id,
            "topic": name,
            "partition": finding.partition,
            "since_ms": since_ms,
        }
        for finding, name, since_ms in monitor.findings()
        if group in {None, finding.group_id}
        and topic in {None, name}
        and (finding.group_id is None or viewer.sees_group(finding.group_id))
        and viewer.sees_topic(name)
    ]
    events = [
        {
            "kind": one.kind,
            "group": one.group_id,
            "topic": one.topic,
            "partition": one.partition,
            "at_ms": one.at_ms,
            "detail": one.detail,
        }
        for one in reversed(monitor.events)
        if group in {None, one.group_id}
        and topic in {None, one.topic}
        and (one.group_id is None or viewer.sees_group(one.group_id))
        and viewer.sees_topic(one.topic)
    ]
    counted = {**gateway.metrics.offset_anomalies, **gateway.backend.recovery_anomalies}
    return {
        "lasting": lasting[: query.limit],
        "lasting_count": len(lasting),
        "is_complete": not monitor.is_full,
        "events": events[: query.limit],
        "counted": counted if viewer.sees_cluster else None,
    }


async def clients(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    now_s = gateway.clock.monotonic_s()
    client, topic = query.text(CLIENT), query.text(TOPIC)
    rows: list[dict[str, Any]] = []
    groups_of = await _groups_by_client(gateway)
    for number, one in enumerate(gateway.lag.positions):
        if number % _ENTRIES_A_TURN == 0:
            await asyncio.sleep(0)
        found = gateway.catalog.by_id(one.topic_id)
        partition = None if found is None else found.partition(one.partition)
        if found is None or partition is None:
            continue
        if client not in {None, one.client_id} or topic not in {None, found.name}:
            continue
        if not viewer.sees_topic(found.name):
            continue
        rows.append(
            {
                "client": one.client_id,
                "topic": found.name,
                "partition": one.partition,
                "fetch_offset": one.fetch_offset,
                "lag": partition.view().bounds().end_offset - one.fetch_offset,
                "seen_ms_ago": round((now_s - one.seen_s) * 1000),
                # For a client in a group, the group's committed offsets show its position better.
                "groups": sorted(filter(viewer.sees_group, groups_of.get(one.client_id, ()))),
            }
        )
    rows.sort(key=lambda row: (row["client"], row["topic"], row["partition"]))
    return {"clients": rows[: query.limit], "count": len(rows)}


async def history(gateway: Gateway, query: QueryParameters, viewer: Viewer) -> Answer:
    topic, partition = query.text(TOPIC), query.number(PARTITION)
    if partition is not None and topic is None:
        raise ParameterError("a partition needs a topic")
    since_ms, until_ms = query.number(SINCE), query.number(UNTIL)
    wanted = SampleFilter(
        query.text(GROUP),
        ALL_TOPICS if topic is None else topic,
        ALL_PARTITIONS if partition is None else partition,
        since_ms or 0,
        FOR_EVER_MS if until_ms is None else until_ms,
    )
    points = await gateway.backend.state.lag_history.load(wanted, limit=query.limit)
    return {
        "group": wanted.group_id,
        "topic": topic,
        "partition": partition,
        "samples": [
            {"at_ms": one.sampled_at_ms, "lag": one.lag, "time_lag_ms": one.time_lag_ms}
            for one in points
        ],
    }


def _sum(total: LagSum) -> dict[str, Any]:
    return {
        "lag": total.known_lag,
        "time_lag_ms": total.time_lag_ms,
        "committed": total.committed,
        "partitions": total.partitions,
        "anomalies": total.anomalies,
        "unknown_lags": total.unknown_lags,
        "unknown_ages": total.unknown_ages,
    }


def _group(one: GroupSample, viewer: Viewer) -> dict[str, Any]:
    topics = sorted(row for row in one.topics.items() if viewer.sees_topic(row[0]))
    return {
        "group": one.group_id,
        **_sum(one.total),
        "topics": [{"topic": name, **_sum(part)} for name, part in topics[:TOPICS_LISTED]],
        "topic_count": len(topics),
    }


def _standing(one: PartitionSample) -> dict[str, Any]:
    lag = one.lag
    is_damaged = one.committed_offset < 0
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed_offset": None if is_damaged else one.committed_offset,
        "log_start_offset": None if lag is None else lag.log_start_offset,
        "high_watermark": None if lag is None else lag.high_watermark,
        "lag": None if lag is None or is_damaged else lag.lag,
        "time_lag_ms": one.age_ms,
        "anomaly": None if lag is None or lag.anomaly is None else lag.anomaly.value,
    }


def _at_risk(one: AtRisk) -> dict[str, Any]:
    return {
        "group": one.group_id,
        "topic": one.topic,
        "partition": one.partition,
        "committed_offset": one.standing.committed_offset,
        "log_start_offset": one.standing.log_start_offset,
        "next_log_start_offset": one.next_log_start_offset,
        "lost": one.lost_count,
    }


async def _groups_by_client(gateway: Gateway) -> dict[str, set[str]]:
    """Return for each client id the groups that have it as a member."""
    found: dict[str, set[str]] = {}
    coordinator = gateway.groups
    for number, group_id in enumerate(coordinator.ids()):
        if number % _ENTRIES_A_TURN == 0:
            await asyncio.sleep(0)
        described = coordinator.describe(group_id)
        for member in () if described is None else described.members:
            found.setdefault(member.client_id, set()).add(group_id)
    return found
