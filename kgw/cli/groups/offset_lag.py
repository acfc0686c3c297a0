"""`kgw offsets lag`: how many records groups have still to read, and signs of problems."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.groups.offset_watch import print_anomalies, print_clients, print_history
from kgw.cli.shared.admin_http import AdminRefusedError, admin_option, get, get_all
from kgw.cli.shared.client import Bootstrap, client_options, with_client
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.formats import format_duration
from kgw.cli.shared.output import clear_screen, note, print_json, print_json_line, print_rows
from kgw.cli.shared.settings import watch_option
from kgw.client import ServerRefusedError
from kgw.client.groups import GroupClient
from kgw.offsets.lag import LagAnomaly, LagSum, PartitionLag
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kgw.cli.shared.admin_http import Address
    from kgw.client import AsyncClient
    from kgw.client.groups import GroupOffset
    from kgw.offsets.ranges import OffsetBounds

Place = tuple[str, int]

GROUPS_AT_A_TIME = 8
AT_RISK = "at risk"
_DAMAGED = -2
_NAME_CHARACTERS = 100


class LagRow(NamedTuple):
    """A group's position in one partition.

    If the partition's bounds are unknown, `lag` is None and `problem` has the reason.
    """

    group: str
    topic: str
    partition: int
    committed_offset: int
    lag: PartitionLag | None
    problem: str = ""
    time_lag_ms: int | None = None
    lost: int = 0
    """The number of unread offsets that retention is about to remove."""
    told: tuple[str, ...] = ()
    """The group's lasting anomalies in this topic, as kgw reports them."""

    @property
    def marks(self) -> list[str]:
        """The names of the group's problems, present or imminent."""
        found = [self.problem] if self.problem else []
        if self.lag is not None and self.lag.anomaly is not None:
            found.append(self.lag.anomaly.value)
        if self.offset_lag:
            found += self.told
        if self.lost:
            found.append(AT_RISK)
        return found

    @property
    def is_damaged(self) -> bool:
        return self.committed_offset < 0

    @property
    def offset_lag(self) -> int | None:
        """The lag; None if it is unknown."""
        return None if self.lag is None or self.is_damaged else self.lag.lag

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed_offset": None if self.is_damaged else self.committed_offset,
            "log_start_offset": None if self.lag is None else self.lag.log_start_offset,
            "high_watermark": None if self.lag is None else self.lag.high_watermark,
            "lag": self.offset_lag,
            "time_lag_ms": self.time_lag_ms,
            "marks": self.marks,
        }


@click.command()
@click.option("-g", "--group", "groups", multiple=True, help="Only this group; may be repeated.")
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("-p", "--partitions", "is_detailed", is_flag=True, help="Show every partition.")
@click.option(
    "--clients",
    "is_clients",
    is_flag=True,
    help="Show where clients were last seen to "
    "fetch instead: for consumers that commit nothing. Needs --admin.",
)
@click.option(
    "--anomalies",
    "is_anomalies",
    is_flag=True,
    help="Show the anomalies of offsets that kgw knows of instead, those that were over at once "
    "and those of the last start among them. Needs --admin.",
)
@click.option(
    "--history",
    "is_history",
    is_flag=True,
    help="Show the lag over time instead, of one group or one of its topics. Needs --admin.",
)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Exit with 1 when an anomaly was found, or a group at risk.",
)
@watch_option(help="Show it again every so often, until Ctrl-C.")
@admin_option
@client_options
def lag(
    *,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    is_detailed: bool,
    is_clients: bool,
    is_anomalies: bool,
    is_history: bool,
    is_check: bool,
    watch_s: float | None,
    admin: Address | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> ExitCode:
    """Show how far groups are behind, the greatest lag first.

    Lag is the high watermark minus the committed offset, which any Kafka broker reports. With
    --admin, kgw also tells how old the first unread record is, and which unread records retention
    is about to remove.

    Marks: committed-ahead (past the high watermark), committed-below-start (records are gone that
    the group had not read), committed-damaged (ask for an explicit reset), and with --admin
    group-standing (its members are there and commit nothing), group-falling-behind, at risk.
    """
    instead = is_clients + is_anomalies + is_history
    if instead:
        if instead > 1 or is_detailed or is_check or watch_s is not None:
            raise click.UsageError(
                "--clients, --anomalies and --history each stand for themselves, without "
                "--partitions, --check and --watch"
            )
        if admin is None:
            raise click.UsageError("--clients, --anomalies and --history need --admin")
        if is_history:
            print_history(admin, groups, topics, is_json=is_json)
        elif is_clients:
            print_clients(admin, groups, topics, is_json=is_json)
        else:
            print_anomalies(admin, groups, topics, is_json=is_json)
        return ExitCode.OK
    if is_check and watch_s is not None:
        raise click.UsageError("--check ends with an answer, --watch does not end")

    async def action(client: AsyncClient) -> list[LagRow]:
        return await _rows(client, groups, frozenset(topics))

    while True:
        rows = with_client(bootstrap, action)
        unlisted = 0
        if admin is not None:
            rows, unlisted = _with_admin(admin, rows)
        if watch_s is None:
            break
        if is_json:
            print_json_line(_as_json(rows))
        else:
            clear_screen()
            _print(rows, is_detailed=is_detailed)
        time.sleep(watch_s)
    if is_json:
        print_json(_as_json(rows))
    elif rows or not (groups or topics):
        _print(rows, is_detailed=is_detailed)
    _refuse_unknown(rows, groups, topics)
    failed = any(row.problem for row in rows)
    failed |= is_check and (unlisted > 0 or any(row.marks for row in rows))
    return ExitCode.FAILED if failed else ExitCode.OK


def _refuse_unknown(rows: list[LagRow], groups: tuple[str, ...], topics: tuple[str, ...]) -> None:
    """Raise CommandError for names without any offset: a misspelt name must not show a lag of 0."""
    unknown = [f"group {one}" for one in groups if all(one != row.group for row in rows)]
    unknown += [f"topic {one}" for one in topics if all(one != row.topic for row in rows)]
    if unknown:
        raise CommandError(printable(f"there are no committed offsets of {', '.join(unknown)}"))


# --- asking --------------------------------------------------------------------------------------


async def _rows(
    client: AsyncClient, groups: tuple[str, ...], topics: frozenset[str]
) -> list[LagRow]:
    """Return the positions of groups; read committed offsets before log ends, which only grow."""
    admin = GroupClient(client)
    names = groups or tuple(one.group_id for one in await admin.groups())
    turns = asyncio.Semaphore(GROUPS_AT_A_TIME)

    async def committed(name: str) -> dict[Place, GroupOffset]:
        async with turns:
            return await admin.offsets(name)

    found = dict(zip(names, await asyncio.gather(*map(committed, names)), strict=True))
    wanted: dict[str, set[int]] = {}
    for places in found.values():
        for topic, partition in places:
            if not topics or topic in topics:
                wanted.setdefault(topic, set()).add(partition)
    bounds = {topic: await _bounds(client, topic, numbers) for topic, numbers in wanted.items()}
    return [
        _row(name, place, one, bounds[place[0]])
        for name, places in found.items()
        for place, one in places.items()
        if place[0] in bounds
    ]


async def _bounds(
    client: AsyncClient, topic: str, partitions: Collection[int]
) -> dict[int, OffsetBounds] | str:
    """Return the log start and high watermark by partition, or why they are unknown.

    If a topic was deleted, a group's lag in it is unknown, not zero; its lag in other topics is
    still shown.
    """
    try:
        bounds = await client.bounds(topic, partitions)
    except ServerRefusedError as error:
        return error.code.name
    return "no offsets" if any(min(one) < 0 for one in bounds.values()) else bounds


def _row(
    group: str, place: Place, one: GroupOffset, bounds: dict[int, OffsetBounds] | str
) -> LagRow:
    offset = _DAMAGED if one.is_damaged else one.offset
    if isinstance(bounds, str):
        problem = LagAnomaly.COMMITTED_DAMAGED.value if one.is_damaged else bounds
        return LagRow(group, *place, offset, None, problem)
    return LagRow(group, *place, offset, PartitionLag(offset, *bounds[place[1]]))


def _with_admin(admin: Address, rows: list[LagRow]) -> tuple[list[LagRow], int]:
    """Add ages, anomalies of groups, and records that retention will remove, which only kgw knows.

    Also return how many partitions at risk are missing: kgw lists at most a thousand.
    """
    told = get(admin, "/api/v1/lag/at-risk", limit=1_000)
    lost = {(one["group"], one["topic"], one["partition"]): one["lost"] for one in told["at_risk"]}
    unlisted = told["count"] - len(lost)
    if unlisted:
        note(f"{unlisted} more places are at risk than can be shown.")
    anomalies = get(admin, "/api/v1/lag/anomalies", limit=1_000)
    kinds: dict[tuple[str, str], list[str]] = {}
    for one in anomalies["lasting"]:
        if one["partition"] is None:
            kinds.setdefault((one["group"], one["topic"]), []).append(one["kind"])
    ages: dict[tuple[str, str, int], int | None] = {}
    for group in sorted({row.group for row in rows}):
        try:
            places = get_all(admin, "/api/v1/lag/partitions", "partitions", group=group)
        except AdminRefusedError as error:
            # Continue without this group's ages: it was deleted, or its name is too long for a
            # request.
            note(printable(f"Group {group[:_NAME_CHARACTERS]} without ages: {error.message}"))
            continue
        for one in places:
            ages[group, one["topic"], one["partition"]] = one["time_lag_ms"]
    added = [
        row._replace(
            time_lag_ms=ages.get(row[:3]),
            lost=lost.get(row[:3], 0),
            told=tuple(kinds.get(row[:2], ())),
        )
        for row in rows
    ]
    return added, unlisted


# --- showing -------------------------------------------------------------------------------------


def _sum(rows: Iterable[LagRow]) -> LagSum:
    total = LagSum()
    for row in rows:
        if row.lag is None:
            total.add_unknown()
        else:
            total.add(row.lag, row.time_lag_ms)
    return total


def _grouped(rows: Iterable[LagRow], column: int) -> list[tuple[str, list[LagRow], LagSum]]:
    """Return rows by group (column 0) or topic (column 1), the greatest lag first."""
    parts: dict[str, list[LagRow]] = {}
    for row in rows:
        parts.setdefault(str(row[column]), []).append(row)
    found = [(name, part, _sum(part)) for name, part in parts.items()]
    return sorted(found, key=lambda one: (-one[2].lag, one[0]))


def _as_json(rows: list[LagRow]) -> dict[str, Any]:
    total = _sum(rows)
    return {
        "lag": total.known_lag,
        "unknown_lags": total.unknown_lags,
        "groups": [
            {
                "group": name,
                "lag": part_total.known_lag,
                "unknown_lags": part_total.unknown_lags,
                "time_lag_ms": part_total.time_lag_ms,
                "partitions": [row.as_json() for row in sorted(part, key=_by_lag)],
            }
            for name, part, part_total in _grouped(rows, 0)
        ],
    }


def _by_lag(row: LagRow) -> tuple[float, str, int]:
    # Sort unknown lags first: they may be large.
    offset_lag = row.offset_lag
    return (float("-inf") if offset_lag is None else -offset_lag, row.topic, row.partition)


def _print(rows: list[LagRow], *, is_detailed: bool) -> None:
    if not rows:
        note("No group has committed anything.")
        return
    if is_detailed:
        print_rows(
            [
                {"group": row.group, **row.as_json()}
                for _, part, _ in _grouped(rows, 0)
                for row in sorted(part, key=_by_lag)
            ],
            "group topic partition committed=committed_offset start=log_start_offset "
            "high_watermark lag time_lag=time_lag_ms marks",
            committed_offset=_known,
            log_start_offset=_known,
            high_watermark=_known,
            lag=_known,
            time_lag_ms=format_duration,
            marks=", ".join,
        )
    else:
        print_rows(
            [
                {"group": name, "topic": topic, "sum": total, "marks": _marks(places)}
                | {"partitions": total.partitions, "time_lag": format_duration(total.time_lag_ms)}
                for name, part, _ in _grouped(rows, 0)
                for topic, places, total in _grouped(part, 1)
            ],
            "group topic partitions lag=sum time_lag marks",
            sum=_sum_text,
        )
    click.echo(f"total lag {_sum_text(_sum(rows))}")


def _known(number: int | None) -> object:
    return "?" if number is None else number


def _sum_text(total: LagSum) -> str:
    return f"{total.lag} + ?" if total.unknown_lags else str(total.lag)


def _marks(rows: Iterable[LagRow]) -> str:
    counts = Counter(mark for row in rows for mark in row.marks)
    return ", ".join(f"{number} {mark}" for mark, number in sorted(counts.items()))
