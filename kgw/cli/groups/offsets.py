"""`kgw offsets`: the bounds of partitions, and the offsets that seeks would find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.groups.offset_lag import lag
from kgw.cli.shared.client import Bootstrap, client_options, with_client
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.formats import format_time
from kgw.cli.shared.output import print_result
from kgw.cli.shared.seeks import choose_seeks, partitions_option, require_group
from kgw.cli.shared.settings import parsed
from kgw.client import GroupPosition, WireReader, describe_ranges
from kgw.offsets.seeker import OffsetSeeker, Seek
from kgw.offsets.where import WHERE_HELP, parse_seek, seek_as_json

if TYPE_CHECKING:
    from kgw.cli.shared.seeks import PartitionSeek
    from kgw.client import AsyncClient, PartitionRange


@click.group(short_help="Look at what partitions hold, and where seeks would lead.")
def offsets() -> None:
    """Look at the offsets of partitions, and at the offsets that seeks would find."""


offsets.add_command(lag)


@offsets.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@client_options
def describe(topics: tuple[str, ...], bootstrap: Bootstrap, is_json: bool) -> None:
    """Show what each partition of topics holds.

    The number of records is at most this: offsets that compaction left empty count as well.
    """

    async def action(client: AsyncClient) -> list[tuple[str, list[PartitionRange]]]:
        found = []
        for topic in topics:
            description = await client.topic(topic)
            numbers = [one.partition for one in description.partitions]
            found.append((topic, await describe_ranges(client, topic, numbers)))
        return found

    found = with_client(bootstrap, action)
    print_result(
        [_as_json(topic, one) for topic, ranges in found for one in ranges],
        "topic partition start=log_start_offset high_watermark stable=last_stable_offset "
        "end=end_offset offsets=offset_count epoch=epochs first=first_timestamp_ms "
        "newest=greatest_timestamp_ms",
        is_json=is_json,
        epochs=lambda epochs: epochs[0]["leader_epoch"] if epochs else "-",
        first_timestamp_ms=_time,
        greatest_timestamp_ms=_time,
    )


@offsets.command("seek-dry-run")
@click.argument("topic")
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    callback=parsed(lambda texts: {text: parse_seek(text) for text in texts}),
    metavar="WHERE",
    help=f"Where to seek; may be given several times: {WHERE_HELP}.",
)
@partitions_option(
    help="A partition, and where to seek in it if not --to; may be given several times."
    "  [default: all]",
)
@click.option("-g", "--group", metavar="GROUP", help="Whose position to resume.")
@client_options
def seek_dry_run(
    *,
    topic: str,
    targets: dict[str, Seek],
    partitions: tuple[PartitionSeek, ...],
    group: str | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> ExitCode:
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
    print_result(
        rows,
        "partition to offset earliest latest time=timestamp_ms error",
        is_json=is_json,
        timestamp_ms=_time,
        error=lambda error: error or "",
    )
    return ExitCode.FAILED if any(one["error"] for one in rows) else ExitCode.OK


def _as_json(topic: str, one: PartitionRange) -> dict[str, Any]:
    return {
        "topic": topic,
        **one._asdict(),
        "offset_count": one.offset_count,
        "epochs": [epoch._asdict() for epoch in one.epochs],
    }


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None or timestamp_ms < 0 else format_time(timestamp_ms)
