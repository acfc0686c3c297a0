"""`kgw produce`: stores each input line as a record."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from kgw.cli.shared.client import Bootstrap, bootstrap_option, with_client
from kgw.cli.shared.command_config import command_config_option
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.formats import FORMATS, InputFormat, parse_header
from kgw.cli.shared.output import is_terminal, note, print_json, progress_bar
from kgw.cli.shared.settings import json_option, parsed
from kgw.cli.topics.lines import InputLines
from kgw.client import CannotConnectError, ClientError, Producer, ServerRefusedError
from kgw.client.ack_journal import AckJournal, content_crc, journal_lines
from kgw.client.partitioner import partition_for_key
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.cli.shared.formats import Headers, InputRecord
    from kgw.client import AsyncClient, NewRecord, Produced, TopicDescription

_ACKS = {"all": -1, "1": 1, "0": 0}
# With slow input, how long a record waits for others to share its batch.
_LINGER_S = 0.05


class _Stored:
    """The records that were stored in one partition."""

    __slots__ = ("first_offset", "last_offset", "records")

    def __init__(self) -> None:
        self.records = 0
        self.first_offset = -1
        self.last_offset = -1

    def add(self, result: Produced, record_count: int) -> None:
        self.records += record_count
        if result.base_offset >= 0:
            if self.first_offset < 0:
                self.first_offset = result.base_offset
            self.last_offset = max(self.last_offset, result.base_offset + record_count - 1)


@click.command(short_help="Store lines as records.")
@click.argument("topic")
@click.option(
    "-f", "--file", "source", type=click.File("rb"), help="Read this file, not standard input."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="text",
    help="What a line holds: the value itself (text), an object as `kgw consume --json` prints it "
    "(json), or the value as hex or base64. With raw the whole input is one value.",
)
@click.option(
    "-k",
    "--key-separator",
    metavar="TEXT",
    help="What separates key and value in a line; without it records have no key.",
)
@click.option("--null", "null_value", metavar="TEXT", help="A value that stands for null.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=parsed(lambda texts: tuple(map(parse_header, texts))),
    metavar="KEY=VALUE",
    help="A header for every record; may be given several times.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="The partition.  [default: by the hash of the key, as Kafka's clients choose; without a "
    "key each batch goes to the next one]",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    help="Whose word counts: with 0 nobody's is waited for.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice([one.name.lower() for one in Compression]),
    default="none",
    help="How batches are compressed.",
)
@click.option(
    "--batch-bytes",
    type=click.IntRange(min=1),
    default=512 << 10,
    help="Size at which a batch is sent, before compression.",
)
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    default=10_000,
    help="Records at which a batch is sent.",
)
@click.option(
    "--idempotent/--no-idempotent",
    "is_idempotent",
    default=True,
    help="Let the server recognise retries, so that none is stored twice.",
)
@click.option(
    "--ack-journal",
    "journal_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append a line for each record that the server has acknowledged: its offset, and a CRC of "
    "its content. `kgw pipeline audit --level 4` looks for them later.",
)
@click.option("--no-create", is_flag=True, help="Fail when the topic does not exist.")
@bootstrap_option
@command_config_option
@json_option("Print what was stored, by partition, as JSON.")
def produce(
    *,
    topic: str,
    source: IO[bytes] | None,
    format_name: str,
    key_separator: str | None,
    null_value: str | None,
    headers: Headers,
    partition: int | None,
    acks: str,
    compression: str,
    batch_bytes: int,
    batch_records: int,
    is_idempotent: bool,
    journal_path: Path | None,
    no_create: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Store each line of the input as a record of TOPIC.

    Records are stored in the order of the lines, partition by partition. At the end, the number of
    stored records and their offsets are printed on standard error, or as JSON on standard output.
    After Ctrl-C and SIGTERM they are printed, too, with the number of records that were sent and
    not acknowledged: these may be stored.
    """
    if key_separator == "":
        raise click.BadParameter("it cannot be empty", param_hint="--key-separator")
    if journal_path is not None and acks == "0":
        raise click.UsageError("--ack-journal: with --acks 0 nothing is acknowledged")
    input_format = InputFormat(format_name, key_separator, null_value, headers)
    if source is None and sys.stdin is None:
        raise click.UsageError("there is no standard input; name a file with --file")
    stream = source or sys.stdin.buffer
    if stream.isatty() and is_terminal():
        note("One record a line; Ctrl-D ends.")

    runs: list[_Run] = []

    async def action(client: AsyncClient) -> None:
        description = await client.topic(topic, auto_create=not no_create)
        sending = Producer(
            client,
            acks=_ACKS[acks],
            compression=Compression[compression.upper()],
            is_idempotent=is_idempotent,
        )
        with progress_bar(_size_bytes(source), "Read") as advance:
            async with sending as producer:
                run = _Run(producer, description, partition, batch_bytes, batch_records, journal)
                runs.append(run)
                await run.take(InputLines(stream, input_format, advance))

    with _open_journal(journal_path) as journal:
        try:
            with_client(bootstrap, action)
        except KeyboardInterrupt:
            for run in runs:
                _report(topic, run.stored, run.unknown, is_json=is_json)
            raise
    _report(topic, runs[0].stored, is_json=is_json)


class _Run:
    """One run of the command: collects records by partition, and sends them in batches."""

    def __init__(
        self,
        producer: Producer,
        topic: TopicDescription,
        partition: int | None,
        batch_bytes: int,
        batch_records: int,
        journal: AckJournal | None,
    ) -> None:
        self._journal = journal
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._clock = SystemClock()
        self._collected: dict[int, list[NewRecord]] = {}
        self._collected_bytes: dict[int, int] = {}
        self._keyless_partition = 0
        self._sent: list[tuple[int, int, list[int], asyncio.Future[Produced]]] = []
        self.stored: dict[int, _Stored] = {}

    async def take(self, lines: InputLines) -> None:
        """Read all records of the input, and store them. Raises CommandError."""
        try:
            bad_line = None
            try:
                await self._take_all(lines)
            except CommandError as error:
                bad_line = error
            await self._send_collected()
            await self._producer.flush()
            await self._settle()
            if bad_line is not None:
                raise bad_line
        except asyncio.CancelledError:
            failure = await self._take_acknowledged()
            if failure is not None:
                raise self._failure(failure) from None
            raise
        except (ClientError, CommandError) as error:
            await self._take_acknowledged()
            raise self._failure(error) from None

    def _failure(self, error: ClientError | CommandError) -> CommandError:
        """Return the error of a failed run, with the number of stored records."""
        if isinstance(error, CommandError):
            code, kafka_error = error.code, error.kafka_error
        else:
            code = (
                ExitCode.CANNOT_CONNECT
                if isinstance(error, CannotConnectError)
                else ExitCode.FAILED
            )
            kafka_error = error.code.name if isinstance(error, ServerRefusedError) else None
        count = sum(one.records for one in self.stored.values())
        text = str(error)
        if count or self.unknown:
            text += f"; {_counted(count)} stored before"
        if self.unknown:
            text += f", {_counted(self.unknown)} more may be stored"
        return CommandError(text, code, kafka_error=kafka_error)

    @property
    def unknown(self) -> int:
        """The number of records that were sent without a definite answer: they may be stored."""
        return sum(
            record_count for _, record_count, _, future in self._sent if not _is_refused(future)
        )

    async def _take_all(self, lines: InputLines) -> None:
        while True:
            try:
                records = await lines.next(_LINGER_S if self._collected else None)
            except OSError as error:
                raise CommandError(f"the input cannot be read: {error.strerror}") from None
            if records is None:
                return
            if not records:
                await self._send_collected()
                continue
            now_ms = self._clock.wall_ms()
            for record in records:
                await self._collect(record, now_ms)

    async def _collect(self, record: InputRecord, now_ms: int) -> None:
        partition = self._choose(record)
        new = record.at(now_ms)
        batch = self._collected.setdefault(partition, [])
        size = self._collected_bytes.get(partition, 0)
        if batch and (
            size + new.size_bytes > self._batch_bytes or len(batch) >= self._batch_records
        ):
            await self._send(partition)
            # Choose again: sending may have changed the partition of keyless records.
            partition = self._choose(record)
            batch = self._collected.setdefault(partition, [])
            size = self._collected_bytes.get(partition, 0)
        batch.append(new)
        self._collected_bytes[partition] = size + new.size_bytes

    def _choose(self, record: InputRecord) -> int:
        if record.partition is not None:
            return record.partition
        if self._partition is not None:
            return self._partition
        if record.key is not None:
            return partition_for_key(record.key, len(self._topic.partitions))
        return self._keyless_partition

    async def _send_collected(self) -> None:
        for partition in list(self._collected):
            await self._send(partition)

    async def _send(self, partition: int) -> None:
        records = self._collected.pop(partition)
        self._collected_bytes.pop(partition, None)
        if partition == self._keyless_partition:
            # After each batch, keyless records go to the next partition.
            self._keyless_partition = (self._keyless_partition + 1) % len(self._topic.partitions)
        future = await self._producer.send(self._topic.name, partition, records)
        crcs = [] if self._journal is None else [content_crc(*one[:2]) for one in records]
        self._sent.append((partition, len(records), crcs, future))
        await self._settle(only_done=True)

    async def _settle(self, *, only_done: bool = False) -> None:
        """Count stored batches in the order of sending; raise the error of a failed batch."""
        while self._sent and (not only_done or self._sent[0][3].done()):
            partition, record_count, crcs, future = self._sent[0]
            # Wait without awaiting the future itself: an interrupt would cancel the sent batch.
            await asyncio.wait([future])
            try:
                result = future.result()
            except ServerRefusedError as error:
                if error.code is ErrorCode.MESSAGE_TOO_LARGE and record_count > 1:
                    # A single record may be small enough, but the batch is too large.
                    raise CommandError(
                        f"{error}; {record_count} records were sent together, see --batch-bytes",
                        kafka_error=error.code.name,
                    ) from None
                raise
            self._sent.pop(0)
            await self._take_result(partition, record_count, crcs, result)

    async def _take_acknowledged(self) -> CommandError | None:
        """After a failure, count all acknowledged batches, also those sent after the failed one.

        Return the error of writing the journal, if there was one.
        """
        failure = None
        # Repeat, as more acknowledgements may arrive while the journal is written.
        while acknowledged := [one for one in self._sent if _is_acknowledged(one[3])]:
            self._sent = [one for one in self._sent if not _is_acknowledged(one[3])]
            for partition, record_count, crcs, future in acknowledged:
                try:
                    await self._take_result(partition, record_count, crcs, future.result())
                except CommandError as error:
                    failure = error
        return failure

    async def _take_result(
        self, partition: int, record_count: int, crcs: list[int], result: Produced
    ) -> None:
        self.stored.setdefault(partition, _Stored()).add(result, record_count)
        # The offset is -1 if the server stored the batch long before this retry and has forgotten
        # it.
        if self._journal is not None and result.base_offset >= 0:
            now_ms = self._clock.wall_ms()
            lines = journal_lines(self._topic, partition, result.base_offset, crcs, now_ms)
            try:
                await asyncio.to_thread(self._journal.add, lines)
            except OSError as error:
                # Stop using the journal: its last line may be incomplete, and lines after that
                # could not be read.
                self._journal = None
                raise CommandError(f"the journal cannot be written: {error}") from None


@contextmanager
def _open_journal(path: Path | None) -> Iterator[AckJournal | None]:
    if path is None:
        yield None
        return
    try:
        journal = AckJournal(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    with journal:
        yield journal


def _size_bytes(source: IO[bytes] | None) -> int:
    """Return the size of a file; 0 if the source is not a file."""
    import os

    try:
        return 0 if source is None else os.fstat(source.fileno()).st_size
    except (OSError, ValueError):
        return 0


def _is_acknowledged(future: asyncio.Future[Produced]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _is_refused(future: asyncio.Future[Produced]) -> bool:
    """Return whether a batch was certainly not stored."""
    if not future.done() or future.cancelled():
        return False
    failure = future.exception()
    return isinstance(failure, ClientError) and not failure.may_be_done


def _report(
    topic: str, stored: dict[int, _Stored], unknown: int | None = None, *, is_json: bool
) -> None:
    """Print the stored records; `unknown` counts unacknowledged records of an interrupted run."""
    partitions = sorted(stored.items())
    total = sum(one.records for _, one in partitions)
    if is_json:
        told: dict[str, object] = {
            "topic": topic,
            "records": total,
            "partitions": [
                {
                    "partition": partition,
                    "records": one.records,
                    "first_offset": one.first_offset,
                    "last_offset": one.last_offset,
                }
                for partition, one in partitions
            ],
        }
        if unknown is not None:
            told["interrupted"] = True
            told["unacknowledged_records"] = unknown
        print_json(told)
        return
    text = f"{_counted(total)} to {topic}{_places(partitions)}"
    if unknown is not None:
        text = f"Interrupted: {text}; {_counted(unknown)} sent and not acknowledged"
        text += ", which may be stored" if unknown else ""
    note(text)


def _counted(count: int) -> str:
    return f"{count} record{'s' * (count != 1)}"


def _places(partitions: Sequence[tuple[int, _Stored]]) -> str:
    places = [
        f"partition {partition} offsets {one.first_offset} to {one.last_offset}"
        for partition, one in partitions
        if one.first_offset >= 0
    ]
    return f": {', '.join(places)}" if places else ""
