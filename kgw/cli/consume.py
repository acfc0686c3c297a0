"""`kgw consume`: records become lines."""

from __future__ import annotations

import sys
from itertools import islice
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from kgw.cli.client import bootstrap_option, with_client
from kgw.cli.errors import CommandError
from kgw.cli.formats import FORMATS, OutputFormat, parse_time
from kgw.cli.output import progress_bar
from kgw.cli.settings import json_option
from kgw.client import TopicReader
from kgw.client.client import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.client import AsyncClient, ReadRecord

# Below this a bar would flash by.
_BAR_RECORDS = 10_000
_WRITE_RECORDS = 500


class _Start(NamedTuple):
    """Where to begin: at an offset, or at a timestamp or special time of ListOffsets."""

    offset: int | None
    timestamp_ms: int


def _parse_start(ctx: click.Context, param: click.Parameter, value: str) -> _Start:
    if value == "earliest":
        return _Start(None, EARLIEST)
    if value == "latest":
        return _Start(None, LATEST)
    if value.isascii() and value.isdigit():
        return _Start(int(value), 0)
    try:
        timestamp_ms = parse_time(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is neither earliest, latest, an offset, nor a time like "
            "2026-01-31T12:00 or @1769860800000",
            ctx,
            param,
        ) from None
    return _Start(None, max(timestamp_ms, 0))


@click.command(short_help="Print records.")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    callback=_parse_start,
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="Where to begin: earliest, latest, an offset, a time as ISO 8601, or @milliseconds.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="A partition to read; may be given several times.  [default: all]",
)
@click.option(
    "-n", "--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after N records."
)
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with what is produced later, until Ctrl-C."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How a record is printed: its value on a line (text, or as hex or base64), an object on a "
    "line (json), or its value and nothing else (raw).",
)
@click.option(
    "-k", "--key-separator", metavar="TEXT", help="Print the key before the value, separated so."
)
@click.option(
    "--null", "null_value", metavar="TEXT", default="", help="What stands for a null key or value."
)
@click.option("--offsets", is_flag=True, help="Print partition:offset before each record.")
@click.option("--timestamps", is_flag=True, help="Print each record's time before it.")
@click.option("--headers", is_flag=True, help="Print each record's headers before it.")
@bootstrap_option
@json_option("Print each record as a JSON object on a line; the same as --format json.")
def consume(
    *,
    topic: str,
    start: _Start,
    partitions: tuple[int, ...],
    max_records: int | None,
    follow: bool,
    format_name: str,
    key_separator: str | None,
    null_value: str,
    offsets: bool,
    timestamps: bool,
    headers: bool,
    bootstrap: list[tuple[str, int]],
    is_json: bool,
) -> None:
    """Print the records of TOPIC, and stop at its end as it is when the command starts.

    The records of a partition come in order; partitions are mixed.
    """
    output = OutputFormat(
        "json" if is_json else format_name,
        topic,
        key_separator,
        null_value,
        has_offsets=offsets,
        has_timestamps=timestamps,
        has_headers=headers,
    )
    stream = sys.stdout.buffer

    async def action(client: AsyncClient) -> None:
        run = _Run(client, output, stream, max_records)
        positions, ends = await run.find_range(start, partitions)
        if follow:
            await run.follow(positions)
        else:
            await run.read_to(positions, ends)

    with_client(bootstrap, action)


class _Run:
    """One run of the command."""

    def __init__(
        self, client: AsyncClient, output: OutputFormat, stream: IO[bytes], max_records: int | None
    ) -> None:
        self._client = client
        self._output = output
        self._stream = stream
        self._left = max_records

    async def find_range(
        self, start: _Start, partitions: tuple[int, ...]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return where each partition begins, and where it ends now."""
        topic = self._output.topic
        description = await self._client.topic(topic)
        known = [one.partition for one in description.partitions]
        for partition in partitions:
            if partition not in known:
                raise CommandError(
                    f"topic {topic} has no partition {partition}: it has {len(known)}, "
                    f"0 to {len(known) - 1}"
                )
        chosen = list(dict.fromkeys(partitions)) or known
        latest = await self._client.list_offsets(topic, dict.fromkeys(chosen, LATEST))
        ends = {partition: found.offset for partition, found in latest.items()}
        if start.timestamp_ms == LATEST and start.offset is None:
            return dict(ends), ends
        if start.offset is None:
            times = dict.fromkeys(chosen, start.timestamp_ms)
            first = await self._client.list_offsets(topic, times)
            return {
                # Nothing that young: begin at the end.
                partition: found.offset if found.offset >= 0 else ends[partition]
                for partition, found in first.items()
            }, ends
        await self._check_offset(start.offset, ends)
        return dict.fromkeys(chosen, start.offset), ends

    async def read_to(self, positions: dict[int, int], ends: dict[int, int]) -> None:
        """Print everything below the ends."""
        reader = TopicReader(self._client, self._output.topic, positions)
        expected = sum(ends[partition] - position for partition, position in positions.items())
        if self._left is not None:
            expected = min(expected, self._left)
        # Records on the terminal are progress enough.
        is_shown = expected >= _BAR_RECORDS and not sys.stdout.isatty()
        with progress_bar(expected if is_shown else 0, "Records") as advance:
            while self._left != 0:
                unread = [
                    partition
                    for partition, position in reader.positions.items()
                    if position < ends[partition]
                ]
                if not unread:
                    return
                found = await reader.read(unread)
                below = (one for one in found if one.record.offset < ends[one.partition])
                self._print(below, advance)

    async def follow(self, positions: dict[int, int]) -> None:
        """Print everything there is and will be."""
        reader = TopicReader(self._client, self._output.topic, positions)
        while self._left != 0:
            self._print(await reader.read(), lambda _: None)

    def _print(self, found: Iterator[ReadRecord], advance: Callable[[int], None]) -> None:
        """Print records as long as any may be printed, some at a time."""
        while self._left != 0:
            count = _WRITE_RECORDS if self._left is None else min(_WRITE_RECORDS, self._left)
            lines = [self._output.write(one) for one in islice(found, count)]
            if not lines:
                return
            if self._left is not None:
                self._left -= len(lines)
            self._stream.write(b"".join(lines))
            self._stream.flush()
            advance(len(lines))

    async def _check_offset(self, offset: int, ends: dict[int, int]) -> None:
        """Refuse an offset that a partition does not have, rather than show something else."""
        topic = self._output.topic
        first = await self._client.list_offsets(topic, dict.fromkeys(ends, EARLIEST))
        for partition, end in ends.items():
            if not first[partition].offset <= offset <= end:
                raise CommandError(
                    f"topic {topic} partition {partition} has no offset {offset}: "
                    f"it goes from {first[partition].offset} to {end}"
                )
