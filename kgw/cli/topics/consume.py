"""`kgw consume`: reads a subscription and prints its records as lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kgw.cli.shared.client import Bootstrap, bootstrap_option, with_client
from kgw.cli.shared.command_config import command_config_option
from kgw.cli.shared.damage import PROBES_WHEN_SKIPPING, SkippedDamage
from kgw.cli.shared.formats import FORMATS, OutputFormat
from kgw.cli.shared.output import note_as, progress_bar
from kgw.cli.shared.seeks import WHERE, choose_seeks, partitions_option, require_group
from kgw.cli.shared.settings import json_option, parsed
from kgw.client import GroupPosition, WireReader
from kgw.client.cursor import Cursor, RecordFilter
from kgw.client.records import PROBES
from kgw.client.subscription import Delivery, OffsetSubscriber
from kgw.clock import SystemClock
from kgw.offsets.ranges import DamagedRangeError
from kgw.offsets.seeker import OffsetSeeker, Seek, SeekKind
from kgw.offsets.where import WHERE_HELP, parse_seek

if TYPE_CHECKING:
    from kgw.cli.shared.seeks import PartitionSeek
    from kgw.client import AsyncClient
    from kgw.client.subscription import OffsetSubscription

# For fewer records the progress bar would vanish at once.
_BAR_RECORDS = 10_000
_WRITE_RECORDS = 500
# No other task needs the event loop.
_DELIVERY = Delivery(read_bytes=16 << 20, unpack_in_threads=False)
_LATEST = Seek(SeekKind.RESET_TO_LATEST)
ISOLATIONS = ("read_uncommitted", "read_committed")
_IN_CURSOR = frozenset({"start", "end", "partitions", "group", "follow"})


def _parse_end(text: str) -> Seek:
    seek = parse_seek(text)
    if seek.kind not in {SeekKind.RESET_TO_LATEST, SeekKind.EXACT_OFFSET, SeekKind.EXACT_TS_NS}:
        raise ValueError(f"{text!r} is neither latest, an offset nor a time")
    return seek


@click.command(short_help="Print records.")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    callback=WHERE,
    default="earliest",
    metavar="WHERE",
    help=f"Where to begin: {WHERE_HELP}.",
)
@click.option(
    "--to",
    "end",
    callback=parsed(_parse_end),
    default="latest",
    metavar="WHERE",
    help="Where to stop: at the end as it is now (latest), before an offset, or before a time. "
    "Times need not rise: records from a time on are left out.",
)
@partitions_option(
    help="A partition to read, and where it begins if not at --from; may be given several times."
    "  [default: all]",
)
@click.option("-g", "--group", metavar="GROUP", help="Whose position to resume; it is not moved.")
@click.option(
    "-n",
    "--max-records",
    "--limit",
    "max_records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N records.",
)
@click.option(
    "--page",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print N records, then say on standard error how to get the next ones.",
)
@click.option(
    "--cursor",
    callback=parsed(Cursor.decode),
    metavar="CURSOR",
    help="Go on where a page ended; what it was to read stays as it was.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Say what is damaged, and go on behind it; the exit code is 6 then.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    default=ISOLATIONS[0],
    help="Whether records of transactions that are open or were aborted are printed; with "
    "read_committed a partition ends where the first open one begins. Not part of a cursor.",
)
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with what is produced later, until Ctrl-C."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="text",
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
@command_config_option
@json_option("Print each record as a JSON object on a line; the same as --format json.")
def consume(
    *,
    topic: str,
    start: Seek,
    end: Seek,
    partitions: tuple[PartitionSeek, ...],
    group: str | None,
    max_records: int | None,
    page: int | None,
    cursor: Cursor | None,
    skip_damaged: bool,
    isolation: str,
    follow: bool,
    format_name: str,
    key_separator: str | None,
    null_value: str,
    offsets: bool,
    timestamps: bool,
    headers: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Print the records of TOPIC, and stop at its end as it is when the command starts.

    The records of a partition come in order; partitions are mixed.

    Damaged records, and a batch whose records contradict its header, are an error that names
    partition, offsets and the fault: exit code 1, or with --skip-damaged 6 at the end.
    """
    if page is not None and max_records is not None:
        raise click.UsageError("give one of --page and --max-records")
    if cursor is not None:
        _refuse_beside_cursor(click.get_current_context())
    else:
        require_group([start, *(one.seek for one in partitions if one.seek)], group)
    output = OutputFormat(
        "json" if is_json else format_name,
        topic,
        key_separator,
        null_value,
        has_offsets=offsets,
        has_timestamps=timestamps,
        has_headers=headers,
    )
    skipped = SkippedDamage(topic, is_skipping=skip_damaged, is_json=is_json)

    async def action(client: AsyncClient) -> None:
        probes = PROBES_WHEN_SKIPPING if skip_damaged else PROBES
        reader = WireReader(
            client,
            await client.topic(topic),
            probes=probes,
            read_committed=isolation == "read_committed",
        )
        positions = None if group is None else GroupPosition(client, group, topic)
        subscriber = OffsetSubscriber(reader, SystemClock(), positions, _DELIVERY)
        if cursor is not None:
            subscription = await subscriber.resume(cursor)
        else:
            seeks = choose_seeks(reader, start, partitions)
            wanted = await _wanted(reader, seeks, end, follow=follow)
            subscription = await subscriber.subscribe(seeks, wanted)
        await _print(subscription, output, page or max_records, skipped)
        if page is not None:
            _tell_cursor(subscription, is_json=is_json)

    with_client(bootstrap, action)
    skipped.tell()


def _refuse_beside_cursor(ctx: click.Context) -> None:
    """Raise UsageError for options that a cursor already contains, rather than ignore them."""
    for param in ctx.command.params:
        name = param.name or ""
        is_given = ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        if name in _IN_CURSOR and is_given:
            raise click.UsageError(f"the cursor says where to read: leave out {param.opts[-1]}")


async def _wanted(
    reader: WireReader, seeks: dict[int, Seek], end: Seek, *, follow: bool
) -> dict[int, RecordFilter]:
    """Return a filter for each partition, up to its present end, or endless if `follow`."""
    until_ns = end.value if end.kind is SeekKind.EXACT_TS_NS else None
    asked = end.value if end.kind is SeekKind.EXACT_OFFSET else None
    if follow:
        return dict.fromkeys(seeks, RecordFilter(asked, None, until_ns))
    found = await OffsetSeeker(reader).seek_all(dict.fromkeys(seeks, _LATEST))
    return {
        partition: RecordFilter(
            one.offset if asked is None else min(one.offset, asked), None, until_ns
        )
        for partition, one in found.items()
    }


def _tell_cursor(subscription: OffsetSubscription, *, is_json: bool) -> None:
    """Print how to read the next page, or that there is no next page."""
    word = None if subscription.is_done else subscription.cursor().encode()
    text = "That was the last page." if word is None else f"The next page: --cursor {word}"
    note_as(text, {"cursor": word}, is_json=is_json)


async def _print(
    subscription: OffsetSubscription,
    output: OutputFormat,
    limit: int | None,
    skipped: SkippedDamage,
) -> None:
    """Print at most `limit` records of the subscription."""
    expected = sum((await subscription.lag()).values())
    if limit is not None:
        expected = min(expected, limit)
    stream = sys.stdout.buffer
    printed = 0
    # On a terminal, the printed records show the progress.
    is_shown = expected >= _BAR_RECORDS and not sys.stdout.isatty()
    with progress_bar(expected if is_shown else 0, "Records") as advance:
        while printed != limit and not subscription.is_done:
            count = _WRITE_RECORDS if limit is None else min(_WRITE_RECORDS, limit - printed)
            try:
                page = await subscription.next_page(count)
            except DamagedRangeError as error:
                await skipped.skip(subscription, error)
                continue
            if page:
                printed += len(page)
                stream.write(b"".join(map(output.write, page)))
                stream.flush()
                advance(len(page))
