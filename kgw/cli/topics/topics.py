"""`kgw topics`: list, describe, create, alter, delete, delete records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.shared.client import (
    Bootstrap,
    assignments,
    client_options,
    confirm,
    numbers_option,
    set_option,
    unset_option,
    with_client,
    yes_option,
)
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import note, print_json, print_result, print_rows
from kgw.client import AdminClient, ServerRefusedError
from kgw.client.admin import TOPIC
from kgw.config.setting import LONG_MAX
from kgw.errors import ErrorCode
from kgw.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kgw.client import AsyncClient
    from kgw.offsets.ranges import OffsetBounds


_HIGH_WATERMARK = -1


@click.group(short_help="Create, describe, change and delete topics.")
def topics() -> None:
    """Create, look at, change and delete topics."""


@topics.command("list")
@client_options
def list_topics(bootstrap: Bootstrap, is_json: bool) -> None:
    """List every topic with its partitions."""
    found = [
        {
            "name": topic.name,
            "topic_id": format_uuid(topic.topic_id),
            "partitions": len(topic.partitions),
            "internal": topic.is_internal,
        }
        for topic in with_client(bootstrap, lambda client: client.topics())
    ]
    columns = "name partitions topic_id"
    print_result(found, columns, is_json=is_json, nothing="There are no topics.")


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@client_options
def describe(names: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """Show partitions, offsets and settings of topics."""

    async def action(client: AsyncClient) -> list[dict[str, Any]]:
        return [await _describe(client, name) for name in names]

    described = with_client(bootstrap, action)
    if is_json:
        print_json(described)
        return
    for number, topic in enumerate(described):
        if number:
            click.echo()
        _print_topic(topic)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions.  [default: the server's num.partitions]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1, max=32_767),
    metavar="N",
    help="Number of copies; there is one node, so 1.  [default: the server's]",
)
@set_option(
    help="A setting of the topic, as in max.message.bytes=2000000; may be given several times."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists already.")
@client_options
def create(
    *,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Create topics. They are durable when the command ends."""
    config = assignments(settings)
    tolerated = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None

    async def action(client: AsyncClient) -> list[dict[str, Any]]:
        results = []
        for name in names:
            creating = AdminClient(client).create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                config=config,
            )
            is_created = await _is_done(creating, tolerated)
            topic = await client.topic(name, auto_create=False)
            results.append(
                {
                    "name": name,
                    "topic_id": format_uuid(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "created": is_created,
                }
            )
        return results

    results = with_client(bootstrap, action)
    if is_json:
        print_json(results)
        return
    for result in results:
        verb = "Created" if result["created"] else "Found"
        count = result["partitions"]
        click.echo(f"{verb} {result['name']} with {count} partition{'s' * (count != 1)}.")


@topics.command()
@click.argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="Raise their number to N."
)
@set_option(help="Set a setting of the topic.")
@unset_option(help="Let a setting go back to the server's default.")
@client_options
def alter(
    *,
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Change a topic's settings, or add partitions."""
    changes: dict[str, str | None] = {**assignments(settings), **dict.fromkeys(unset)}
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --set, --unset or --partitions")

    async def action(client: AsyncClient) -> dict[str, Any]:
        admin = AdminClient(client)
        if changes:
            await admin.alter_settings(TOPIC, name, changes)
        if partitions is not None:
            await admin.create_partitions(name, partitions)
        return await _describe(client, name)

    described = with_client(bootstrap, action)
    if is_json:
        print_json(described)
    else:
        _print_topic(described)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="Succeed when the topic does not exist.")
@yes_option
@client_options
def delete(
    *, names: tuple[str, ...], if_exists: bool, yes: bool, bootstrap: Bootstrap, is_json: bool
) -> None:
    """Delete topics and all of their records."""
    confirm(f"{', '.join(names)} and all records", yes=yes)
    tolerated = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None

    async def action(client: AsyncClient) -> list[dict[str, Any]]:
        admin = AdminClient(client)
        return [
            {"name": name, "deleted": await _is_done(admin.delete_topic(name), tolerated)}
            for name in names
        ]

    results = with_client(bootstrap, action)
    if is_json:
        print_json(results)
        return
    for result in results:
        click.echo(f"{'Deleted' if result['deleted'] else 'There was no'} {result['name']}.")


def _is_beyond(answer: int | ServerRefusedError) -> bool:
    """Return whether the server has answered that the partition has no such offset."""
    return isinstance(answer, ServerRefusedError) and answer.code is ErrorCode.OFFSET_OUT_OF_RANGE


@topics.command("delete-records")
@click.argument("name")
@numbers_option(help="Of this partition; may be given several times.  [default: all of them]")
@click.option(
    "--before",
    "offset",
    type=click.IntRange(0, LONG_MAX),
    metavar="OFFSET",
    help="Delete what lies below this offset.",
)
@click.option("--all", "is_all", is_flag=True, help="Delete everything up to the high watermark.")
@yes_option
@client_options
def delete_records(
    *,
    name: str,
    partitions: tuple[int, ...],
    offset: int | None,
    is_all: bool,
    yes: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> ExitCode:
    """Delete the oldest records of a topic, for ever; offsets stay as they are.

    A partition that refuses is named, the others are cut all the same; the exit code is 1 then.
    """
    if is_all == (offset is not None):
        raise click.UsageError("give either --before OFFSET or --all")
    what = "all records" if offset is None else f"the records below {offset}"
    confirm(f"{what} of {name}", yes=yes)

    async def action(client: AsyncClient) -> dict[int, int | ServerRefusedError]:
        numbers = partitions or [one.partition for one in (await client.topic(name)).partitions]
        wanted = dict.fromkeys(numbers, _HIGH_WATERMARK if offset is None else offset)
        answers = await AdminClient(client).delete_records(name, wanted)
        beyond = [partition for partition, one in answers.items() if _is_beyond(one)]
        if beyond:
            bounds.update(await client.bounds(name, beyond))
        return answers

    bounds: dict[int, OffsetBounds] = {}
    rows = []
    for partition, answer in sorted(with_client(bootstrap, action).items()):
        start, error = (answer, None) if isinstance(answer, int) else (None, str(answer))
        if partition in bounds:
            error = f"{error}: it goes from {bounds[partition][0]} to {bounds[partition][1]}"
        rows.append({"partition": partition, "log_start_offset": start, "error": error})
    if is_json:
        print_json(rows)
    else:
        for one in rows:
            if one["error"] is None:
                click.echo(f"{name}-{one['partition']} begins at {one['log_start_offset']}.")
            else:
                note(f"error: {one['error']}")
    return ExitCode.FAILED if any(one["error"] for one in rows) else ExitCode.OK


async def _is_done(action: Awaitable[None], tolerated: ErrorCode | None) -> bool:
    """Return True if the action succeeds, False if the server refuses it with `tolerated`."""
    try:
        await action
    except ServerRefusedError as error:
        if error.code is not tolerated:
            raise
        return False
    return True


async def _describe(client: AsyncClient, name: str) -> dict[str, Any]:
    """Return everything about one topic, in the form that --json prints."""
    topic = await client.topic(name)
    numbers = [one.partition for one in topic.partitions if one.leader_id >= 0]
    bounds = await client.bounds(name, numbers)
    settings = await AdminClient(client).describe_settings(TOPIC, name)
    partitions = [
        {
            "partition": one.partition,
            "leader": one.leader_id,
            "leader_epoch": one.leader_epoch,
            "replicas": list(one.replicas),
            "in_sync_replicas": list(one.in_sync_replicas),
            "log_start_offset": bounds[one.partition].earliest if one.partition in bounds else -1,
            "high_watermark": bounds[one.partition].latest if one.partition in bounds else -1,
        }
        for one in topic.partitions
    ]
    return {
        "name": topic.name,
        "topic_id": format_uuid(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": partitions,
        "settings": {row.name: {"value": row.value, "source": row.source} for row in settings},
    }


def _print_topic(topic: dict[str, Any]) -> None:
    click.echo(f"{topic['name']}  {topic['topic_id']}")
    print_rows(
        [
            one | {"offsets": one["high_watermark"] - one["log_start_offset"]}
            for one in topic["partitions"]
        ],
        "partition leader epoch=leader_epoch start=log_start_offset end=high_watermark offsets",
    )
    for name, setting in topic["settings"].items():
        if setting["source"] == "topic":
            click.echo(f"{name} = {setting['value']}")
