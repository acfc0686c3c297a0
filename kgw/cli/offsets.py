"""`kgw offsets`: what partitions hold, and where seeks would lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.client import bootstrap_option, with_client
from kgw.cli.errors import ExitCode
from kgw.cli.formats import format_time
from kgw.cli.offset_lag import lag
from kgw.cli.output import print_json, print_table
from kgw.cli.seeks import (
    choose_seeks,
    partitions_option,
    require_group,
)
from kgw.cli.settings import json_option
from kgw.client import GroupPosition, WireReader, describe_ranges
from kgw.offsets.seeker import OffsetSeeker, Seek
from kgw.offsets.where import WHERE_HELP, parse_seek, seek_as_json

if TYPE_CHECKING:
    from kgw.cli.seeks import PartitionSeek
    from kgw.client import AsyncClient, PartitionRange

Bootstrap = list[tuple[str, int]]
_COLUMNS = ("offset", "earliest", "latest")


@click.group(short_help="Look at what partitions hold, and where seeks would lead.")
def offsets() -> None:
    """Look at the offsets of partitions: what there is, and where a seek would lead."""


offsets.add_command(lag)


@offsets.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@json_option()
def describe(topics: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """Show what each partition of topics holds.

    Records are at most so many: offsets that compaction left empty count as well.
    """

    async def action(client: AsyncClient) -> list[tuple[str, list[PartitionRange]]]:
        found = []
        for topic in topics:
            description = await client.topic(topic)
            numbers = [one.partition for one in description.partitions]
            found.append((topic, await describe_ranges(client, topic, numbers)))
        return found

    found = with_client(bootstrap, action)
    if is_json:
        print_json([_as_json(topic, one) for topic, ranges in found for one in ranges])
        return
    print_table(
        (
            *("topic", "partition", "start", "high watermark", "stable", "end"),
            *("offsets", "epoch", "first", "newest"),
        ),
        [
            (
                topic,
                one.partition,
                one.log_start_offset,
                one.high_watermark,
                one.last_stable_offset,
                one.end_offset,
                one.offset_count,
                one.epochs[0].leader_epoch if one.epochs else "-",
                _time(one.first_timestamp_ms),
                _time(one.greatest_timestamp_ms),
            )
            for topic, ranges in found
            for one in ranges
        ],
    )


def _parse_seeks(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, Seek]:
    try:
        return {text: parse_seek(text) for text in values}
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@offsets.command("seek-dry-run")
@click.argument("topic")
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    callback=_parse_seeks,
    metavar="WHERE",
    help=f"Where to seek; may be given several times: {WHERE_HELP}.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    callback=partitions_option,
    metavar="N[:WHERE]",
    help="A partition, and where to seek in it if not --to; may be given several times."
    "  [default: all]",
)
@click.option("-g", "--group", metavar="GROUP", help="Whose position to resume.")
@bootstrap_option
@json_option()
def seek_dry_run(
    *,
    topic: str,
    targets: dict[str, Seek],
    partitions: tuple[PartitionSeek, ...],
    group: str | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Show where seeks would lead in the partitions of TOPIC, and which offsets they have.

    Nothing is read or moved. A seek that leads nowhere is shown with its reason, and the exit code
    is 1.
    """
    require_group([*targets.values(), *(one.seek for one in partitions if one.seek)], group)

    async def action(client: AsyncClient) -> list[dict[str, Any]]:
        reader = WireReader(client, await client.topic(topic))
        positions = None if group is None else GroupPosition(client, group, topic)
        seeker = OffsetSeeker(reader, positions)
        rows = []
        for text, target in targets.items():
            seeks = choose_seeks(reader, target, partitions)
            for partition, found in (await seeker.seek(seeks)).items():
                row = {"topic": topic, "partition": partition, "to": text}
                rows.append(row | {"kind": seeks[partition].kind.value} | seek_as_json(found))
        return rows

    rows = with_client(bootstrap, action)
    if is_json:
        print_json(rows)
    else:
        print_table(
            ("partition", "to", *_COLUMNS, "time", "error"),
            [
                (
                    one["partition"],
                    one["to"],
                    *(
                        "-" if one[name] is None else one[name]
                        for name in ("offset", "earliest", "latest")
                    ),
                    "-" if one["timestamp_ms"] is None else _time(one["timestamp_ms"]),
                    one["error"] or "",
                )
                for one in rows
            ],
        )
    if any(one["error"] for one in rows):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _as_json(topic: str, one: PartitionRange) -> dict[str, Any]:
    return {
        "topic": topic,
        **one._asdict(),
        "offset_count": one.offset_count,
        "epochs": [epoch._asdict() for epoch in one.epochs],
    }


def _time(timestamp_ms: int) -> str:
    return format_time(timestamp_ms) if timestamp_ms >= 0 else "-"
