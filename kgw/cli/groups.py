"""`kgw groups`: list, describe, members, offsets, lag, reset-offsets, delete, explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.client import (
    Bootstrap,
    client_options,
    confirm,
    topics_option,
    with_client,
    yes_option,
)
from kgw.cli.formats import format_time
from kgw.cli.group_offsets import chosen_places, standings
from kgw.cli.group_reset import reset_offsets
from kgw.cli.group_what_if import what_if
from kgw.cli.output import note, print_json, print_table, printable
from kgw.client.groups import GroupClient

if TYPE_CHECKING:
    from kgw.cli.group_offsets import Standing
    from kgw.cli.group_what_if import Share
    from kgw.client import AsyncClient, GroupDetails, GroupMember, GroupSummary


@click.group(short_help="Look at groups, move their offsets, delete them.")
def groups() -> None:
    """Look at groups of consumers, move their offsets, ask why they rebalanced."""


groups.add_command(reset_offsets)


@groups.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only groups in this state."
)
@client_options
def list_groups(states: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """List every group with its state."""
    wanted = {state.lower() for state in states}

    async def action(client: AsyncClient) -> list[GroupSummary]:
        found = await GroupClient(client).groups()
        return [one for one in found if not wanted or one.state.lower() in wanted]

    found = with_client(bootstrap, action)
    if is_json:
        print_json([one._asdict() for one in found])
    elif found:
        print_table(
            ("group", "state", "type", "protocol type"),
            [(one.group_id, one.state, one.type, one.protocol_type) for one in found],
        )
    else:
        note("There are no groups.")


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@client_options
def describe(names: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """Show state, members and lag of groups."""

    async def action(client: AsyncClient) -> list[tuple[GroupDetails, list[Standing]]]:
        return [
            (await GroupClient(client).describe(name), await standings(client, name))
            for name in names
        ]

    described = with_client(bootstrap, action)
    if is_json:
        print_json([_as_json(details, rows) for details, rows in described])
        return
    for number, (details, rows) in enumerate(described):
        if number:
            click.echo()
        click.echo(
            f"{printable(details.group_id)}  {details.state}  "
            f"{printable(details.protocol_type)}  {printable(details.protocol_name)}".rstrip()
        )
        _print_members(details.members)
        _print_standings(rows)


@groups.command()
@click.argument("group")
@client_options
def members(group: str, bootstrap: Bootstrap, is_json: bool) -> None:
    """Show the members of a group and what each has been given."""

    async def action(client: AsyncClient) -> GroupDetails:
        return await GroupClient(client).describe(group)

    details = with_client(bootstrap, action)
    if is_json:
        print_json([_member_as_json(one) for one in details.members])
    elif details.members:
        _print_members(details.members)
    else:
        note("The group has no members.")


@groups.command()
@click.argument("group")
@client_options
def offsets(group: str, bootstrap: Bootstrap, is_json: bool) -> None:
    """Show what a group has committed, partition by partition."""
    rows = with_client(bootstrap, lambda client: _standings_of_existing(client, group))
    if is_json:
        print_json([one.as_json() for one in rows])
    elif rows:
        _print_standings(rows)
    else:
        note("The group has committed nothing.")


@groups.command()
@click.argument("group")
@client_options
def lag(group: str, bootstrap: Bootstrap, is_json: bool) -> None:
    """Show how many records a group has still to read, topic by topic."""
    rows = with_client(bootstrap, lambda client: _standings_of_existing(client, group))
    topics: dict[str, list[Standing]] = {}
    for one in rows:
        topics.setdefault(one.topic, []).append(one)
    summary = [
        {
            "topic": topic,
            "partitions": len(ones),
            "lag": sum(max(0, one.lag or 0) for one in ones),
            "anomalies": sum(bool(one.anomaly) for one in ones),
        }
        for topic, ones in topics.items()
    ]
    total = sum(max(0, one.lag or 0) for one in rows)
    if is_json:
        print_json({"group": group, "lag": total, "topics": summary})
        return
    print_table(
        ("topic", "partitions", "lag", "anomalies"), [tuple(one.values()) for one in summary]
    )
    click.echo(f"total lag {total}")


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
    """Forget what a group has committed for topics that it does not read now."""

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
    type=click.Choice(["range", "roundrobin", "sticky", "cooperative-sticky"]),
    help="Say, too, who would have what if this one assigned the partitions now.",
)
@client_options
def explain(group: str, assignor: str | None, bootstrap: Bootstrap, is_json: bool) -> None:
    """Say why a group rebalanced, who caused it, and how long it took."""

    async def action(client: AsyncClient) -> tuple[dict[str, Any], list[Share]]:
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
    print_table(
        ("began", "cause", "member", "generation", "members", "joining", "total", "coordinator"),
        [
            (
                format_time(one["began_ms"]),
                one["cause"] + (f" ({one['reason']})" if one["reason"] else ""),
                one["member_id"],
                one["generation"] if one["generation"] >= 0 else "-",
                one["members"],
                _duration(one["joining_took_ms"]),
                _duration(one["took_ms"]),
                _duration(one["coordinator_ms"]),
            )
            for one in explained["rounds"]
        ],
    )
    click.echo()
    print_table(
        ("at", "generation", "what", "member", "reason"),
        [
            (
                format_time(one["at_ms"]),
                one["generation"],
                one["what"],
                one["member_id"],
                one["reason"] or "",
            )
            for one in explained["decisions"]
        ],
    )

    if assignor is not None:
        click.echo()
        print_table(
            ("member", "has", f"with {assignor}", "gains", "loses"),
            [
                (one.member_id, len(one.has), len(one.would_have), one.gains, one.loses)
                for one in shares
            ],
        )


async def _standings_of_existing(client: AsyncClient, group_id: str) -> list[Standing]:
    """Return where a group stands. Raises KafkaError when there is no such group."""
    rows = await standings(client, group_id)
    if not rows:
        # OffsetFetch answers the same for a group that does not exist; this one raises.
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


def _as_json(details: GroupDetails, rows: list[Standing]) -> dict[str, Any]:
    return {
        **details._asdict(),
        "members": [_member_as_json(one) for one in details.members],
        "offsets": [one.as_json() for one in rows],
    }


def _print_members(found: tuple[GroupMember, ...]) -> None:
    if found:
        print_table(
            ("member", "instance", "client", "host", "partitions"),
            [
                (
                    one.member_id,
                    one.group_instance_id or "-",
                    one.client_id,
                    one.client_host,
                    _partition_list(one.partitions),
                )
                for one in found
            ],
        )


def _partition_list(partitions: tuple[tuple[str, int], ...] | None) -> str:
    if partitions is None:
        return "?"
    topics: dict[str, list[str]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items()) or "-"


def _print_standings(rows: list[Standing]) -> None:
    if rows:
        print_table(
            ("topic", "partition", "offset", "start", "end", "lag", "anomaly"),
            [
                (
                    one.topic,
                    one.partition,
                    "-" if one.offset is None else one.offset,
                    one.log_start_offset,
                    one.high_watermark,
                    "-" if one.lag is None else one.lag,
                    one.anomaly,
                )
                for one in rows
            ],
        )
