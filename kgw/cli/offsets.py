"""`kgw offsets`: what partitions hold, and where seeks would lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kgw.cli.client import bootstrap_option, with_client
from kgw.cli.formats import format_time
from kgw.cli.output import print_json, print_table
from kgw.cli.settings import json_option
from kgw.client import describe_ranges

if TYPE_CHECKING:
    from kgw.client import AsyncClient, PartitionRange

Bootstrap = list[tuple[str, int]]


@click.group(short_help="Look at what partitions hold, and where seeks would lead.")
def offsets() -> None:
    """Look at the offsets of partitions: what there is, and where a seek would lead."""


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
            *("records", "epoch", "first", "newest"),
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


def _as_json(topic: str, one: PartitionRange) -> dict[str, Any]:
    return {
        "topic": topic,
        **one._asdict(),
        "offset_count": one.offset_count,
        "epochs": [epoch._asdict() for epoch in one.epochs],
    }


def _time(timestamp_ms: int) -> str:
    return format_time(timestamp_ms) if timestamp_ms >= 0 else "-"
