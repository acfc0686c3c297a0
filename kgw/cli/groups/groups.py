"""`kgw groups`: list, describe, members, offsets, lag, reset-offsets, delete, explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.groups.group_offsets import chosen_places, reset_offsets, standings
from kgw.cli.shared.client import (
    Bootstrap,
    client_options,
    confirm,
    topics_option,
    with_client,
    yes_option,
)
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.formats import format_time
from kgw.cli.shared.output import print_json, print_result, print_rows
from kgw.client.groups import GroupClient
from kgw.groups.assignors import ASSIGNORS, Subscription
from kgw.types import printable

if TYPE_CHECKING:
    from kgw.cli.groups.group_offsets import OffsetAndBounds
    from kgw.client import AsyncClient, GroupDetails, GroupMember


class AssignmentChange(NamedTuple):
    """The partitions that a member has, and the ones that it would get."""

    member_id: str
    has: tuple[tuple[str, int], ...]
    would_have: tuple[tuple[str, int], ...]

    @property
    def gains(self) -> int:
        return len(set(self.would_have) - set(self.has))

    @property
    def loses(self) -> int:
        return len(set(self.has) - set(self.would_have))

    def as_json(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "has": len(self.has),
            "would_have": len(self.would_have),
            "gains": self.gains,
            "loses": self.loses,
            "partitions": [
                {"topic": topic, "partition": partition} for topic, partition in self.would_have
            ],
        }


_STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
"""Kafka's names of the states that groups of any type can have."""


@click.group(short_help="Look at groups, move their offsets, delete them.")
def groups() -> None:
    """Look at groups of consumers, move their offsets, ask why they rebalanced."""


groups.add_command(reset_offsets)


@groups.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES, case_sensitive=False),
    multiple=True,
    metavar="STATE",
    help=f"Only groups in this state: {', '.join(_STATES)}. May be given several times.",
)
@client_options
def list_groups(states: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """List every group with its state."""
    found = with_client(bootstrap, lambda client: GroupClient(client).groups())
    print_result(
        [one._asdict() for one in found if not states or one.state in states],
        "group=group_id state type protocol_type",
        is_json=is_json,
        nothing="There are no groups.",
    )


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option(
    "--members",
    "is_members",
    is_flag=True,
    help="Show the members alone, and how far each is: pending (was given an id, and has yet to "
    "join), joining, stable (has its assignment), leaving (was asked to join again and has not), "
    "unknown (has just gone). A Kafka broker does not tell.",
)
@client_options
def describe(names: tuple[str, ...], is_members: bool, bootstrap: Bootstrap, is_json: bool) -> None:
    """Show state, members and lag of groups."""

    async def action(client: AsyncClient) -> list[tuple[GroupDetails, list[OffsetAndBounds]]]:
        groups = GroupClient(client)
        if is_members:
            return [(await groups.members(name), []) for name in names]
        return [(await groups.describe(name), await standings(client, name)) for name in names]

    described = with_client(bootstrap, action)
    if is_json:
        found = [_as_json(details, rows) for details, rows in described]
        if is_members:
            for one in found:
                del one["offsets"]
        print_json(found)
        return
    for number, (details, rows) in enumerate(described):
        if number:
            click.echo()
        click.echo(
            f"{printable(details.group_id)}  {details.state}  "
            f"{printable(details.protocol_type)}  {printable(details.protocol_name)}".rstrip()
        )
        if details.members:
            _print_members(details, are_states_known=is_members)
        if rows:
            _print_standings(rows)


@groups.command()
@click.argument("group")
@client_options
def members(group: str, bootstrap: Bootstrap, is_json: bool) -> None:
    """Show the members of a group, with their assigned partitions and their progress."""
    details = with_client(bootstrap, lambda client: GroupClient(client).members(group))
    _print_members(details, is_json=is_json, are_states_known=True)


@groups.command()
@click.argument("group")
@client_options
def offsets(group: str, bootstrap: Bootstrap, is_json: bool) -> None:
    """Show what a group has committed, partition by partition."""
    rows = with_client(bootstrap, lambda client: _standings_of_existing(client, group))
    _print_standings(rows, is_json=is_json)


@groups.command()
@click.argument("group")
@client_options
def lag(group: str, bootstrap: Bootstrap, is_json: bool) -> ExitCode:
    """Show how many records a group has still to read, topic by topic.

    If a lag is unknown, e.g. because the offset is damaged, it is shown as "?", or as null if no
    lag is known, and the exit code is 1.
    """
    rows = with_client(bootstrap, lambda client: _standings_of_existing(client, group))
    topics: dict[str, list[OffsetAndBounds]] = {}
    for one in rows:
        topics.setdefault(one.topic, []).append(one)
    summary = [
        {
            "topic": topic,
            "partitions": len(ones),
            **_lag_of(ones),
            "anomalies": sum(bool(one.anomaly) for one in ones),
        }
        for topic, ones in topics.items()
    ]
    total = _lag_of(rows)
    if is_json:
        print_json({"group": group, **total, "topics": summary})
    else:
        print_rows(
            [one | {"lag": _lag_text(one)} for one in summary], "topic partitions lag anomalies"
        )
        click.echo(f"total lag {_lag_text(total)}")
    return ExitCode.FAILED if total["unknown_lags"] else ExitCode.OK


def _lag_of(rows: list[OffsetAndBounds]) -> dict[str, Any]:
    """Return the sum of the partitions' known lags, and the number of unknown lags."""
    known = [max(0, one.lag) for one in rows if one.lag is not None]
    return {
        "lag": sum(known) if known or not rows else None,
        "unknown_lags": len(rows) - len(known),
    }


def _lag_text(one: dict[str, Any]) -> str:
    if one["lag"] is None:
        return "?"
    return f"{one['lag']} + ?" if one["unknown_lags"] else str(one["lag"])


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@yes_option
@client_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: Bootstrap, is_json: bool) -> None:
    """Delete groups without members, and all they have committed."""
    confirm(f"{', '.join(names)} and all offsets", yes=yes)

    async def action(client: AsyncClient) -> None:
        for name in names:
            await GroupClient(client).delete(name)

    with_client(bootstrap, action)
    if is_json:
        print_json([{"group": name, "deleted": True} for name in names])
    else:
        click.echo(f"Deleted {', '.join(map(printable, names))}.")


@groups.command("delete-offsets")
@click.argument("group")
@topics_option(required=True)
@client_options
def delete_offsets(
    group: str, topics: tuple[str, ...], bootstrap: Bootstrap, is_json: bool
) -> None:
    """Delete the offsets that a group has committed for topics that it does not read now."""

    async def action(client: AsyncClient) -> list[tuple[str, int]]:
        places = await chosen_places(client, group, topics, all_topics=False)
        await GroupClient(client).delete_offsets(group, places)
        return places

    places = with_client(bootstrap, action)
    if is_json:
        print_json([{"topic": topic, "partition": partition} for topic, partition in places])
    else:
        count = len(places)
        click.echo(f"Deleted the offsets of {count} partition{'s' * (count != 1)}.")


@groups.command()
@click.argument("group")
@click.option(
    "--assignor",
    type=click.Choice(list(ASSIGNORS)),
    help="Say, too, who would have what if this one assigned the partitions now.",
)
@client_options
def explain(group: str, assignor: str | None, bootstrap: Bootstrap, is_json: bool) -> None:
    """Say why a group rebalanced, who caused it, and how long it took."""

    async def action(client: AsyncClient) -> tuple[dict[str, Any], list[AssignmentChange]]:
        explained = await GroupClient(client).explain(group)
        return explained, [] if assignor is None else await what_if(client, group, assignor)

    explained, shares = with_client(bootstrap, action)
    if is_json:
        if assignor is not None:
            explained["what_if"] = [one.as_json() for one in shares]
        print_json(explained)
        return
    click.echo(
        f"{printable(group)}  {explained['state']}  generation {explained['generation']}  "
        f"{explained['members']} members"
    )
    for one in explained.get("transactions", ()):  # older servers do not report them
        click.echo(
            f"{one['partitions']} partitions are unstable: the transaction of producer "
            f"{one['producer_id']}, epoch {one['producer_epoch']}, has not ended"
        )
    print_rows(
        [
            one | {"cause": one["cause"] + (f" ({one['reason']})" if one["reason"] else "")}
            for one in explained["rounds"]
        ],
        "began=began_ms cause member=member_id generation members joining=joining_took_ms "
        "total=took_ms coordinator=coordinator_ms",
        began_ms=format_time,
        generation=lambda generation: generation if generation >= 0 else "-",
        joining_took_ms=_duration,
        took_ms=_duration,
        coordinator_ms=_duration,
    )
    click.echo()
    print_rows(
        explained["decisions"],
        "at=at_ms generation what member=member_id reason",
        at_ms=format_time,
        reason=lambda reason: reason or "",
    )
    if assignor is not None:
        click.echo()
        columns = f"member=member_id has with_{assignor}=would_have gains loses"
        print_rows([one.as_json() for one in shares], columns)


async def what_if(client: AsyncClient, group_id: str, assignor: str) -> list[AssignmentChange]:
    """Return the assignment that an assignor of Kafka would make for the present members.

    Raises CommandError if their subscriptions are unknown: they are not consumers, or the group is
    not stable.
    """
    details = await GroupClient(client).describe(group_id)
    members: dict[str, Subscription] = {}
    for one in details.members:
        if one.topics is None:
            raise CommandError(
                f"group {group_id} is {details.state}, of type {details.protocol_type}: "
                "only of consumers in a stable group is it known what they read"
            )
        members[one.member_id] = Subscription(frozenset(one.topics), one.partitions or ())
    counts: dict[str, int] = {one.name: len(one.partitions) for one in await client.topics()}
    assigned = ASSIGNORS[assignor](members, counts)
    return [
        AssignmentChange(member_id, one.owned, tuple(assigned[member_id]))
        for member_id, one in members.items()
    ]


async def _standings_of_existing(client: AsyncClient, group_id: str) -> list[OffsetAndBounds]:
    """Return a group's committed offset and bounds in each partition.

    Raises KafkaError if the group does not exist.
    """
    rows = await standings(client, group_id)
    if not rows:
        # Only this call raises for a group that does not exist; OffsetFetch returns no offsets.
        await GroupClient(client).describe(group_id)
    return rows


def _duration(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:g} ms"


def _member_as_json(one: GroupMember) -> dict[str, Any]:
    fields = one._asdict()
    if one.partitions is not None:
        fields["partitions"] = [
            {"topic": topic, "partition": partition} for topic, partition in one.partitions
        ]
    return fields


def _as_json(details: GroupDetails, rows: list[OffsetAndBounds]) -> dict[str, Any]:
    return {
        **details._asdict(),
        "members": [_member_as_json(one) for one in details.members],
        "offsets": [one.as_json() for one in rows],
    }


def _print_members(
    details: GroupDetails, *, is_json: bool = False, are_states_known: bool = False
) -> None:
    state = "state " if are_states_known else ""
    print_result(
        [_member_as_json(one) for one in details.members],
        f"member=member_id {state}instance=group_instance_id client=client_id host=client_host "
        "partitions",
        is_json=is_json,
        nothing="The group has no members.",
        state=lambda state: state or "?",
        group_instance_id=lambda instance_id: instance_id or "-",
        partitions=_partition_list,
    )


def _partition_list(partitions: list[dict[str, Any]] | None) -> str:
    if partitions is None:
        return "?"
    topics: dict[str, list[str]] = {}
    for one in partitions:
        topics.setdefault(one["topic"], []).append(str(one["partition"]))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items()) or "-"


def _print_standings(rows: list[OffsetAndBounds], *, is_json: bool = False) -> None:
    print_result(
        [one.as_json() for one in rows],
        "topic partition offset start=log_start_offset end=high_watermark lag anomaly",
        is_json=is_json,
        nothing="The group has committed nothing.",
        anomaly=lambda anomaly: anomaly or "",
    )
