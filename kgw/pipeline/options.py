"""The options of `format("kgw")`: Spark's options for its `kafka` source and sink, and others.

`option_table` says how each option is used. Spark passes option names in lower case; errors show
them as users write them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.cluster import Cluster
from kgw.pipeline.errors import OptionError
from kgw.pipeline.option_table import KAFKA, OPTIONS, SECURITY_NAMES, Side, Use, find_option
from kgw.pipeline.ranges import TopicPartition
from kgw.pipeline.wire import MAX_FETCH_BYTES, Reading
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.pipeline.wire import WireClient

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of the `kafka` source, in its order; `headers` is the last one, if it is asked
for."""
HEADERS: Final = "headers"

_EARLIEST, _LATEST = -2, -1

_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The longest timeout that servers allow by default."""


class OffsetLimitKind(Enum):
    """The ways to give the start or end of reading."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMES = "times"


class OffsetLimit(NamedTuple):
    """The start or end of a read in every partition."""

    kind: OffsetLimitKind
    by_partition: Mapping[TopicPartition, int] = {}
    """Offsets, where -2 is the earliest and -1 the latest; or times in milliseconds."""
    timestamp_ms: int = -1
    """The time for all partitions, unless `by_partition` has times."""
    option: str = ""
    latest_without_match: bool = False
    """Whether to use the latest offset if all records are older than the time; otherwise this is an
    error."""


EARLIEST: Final = OffsetLimit(OffsetLimitKind.EARLIEST)
LATEST: Final = OffsetLimit(OffsetLimitKind.LATEST)


class TopicSelection(NamedTuple):
    """The partitions to read. Exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()


class ConnectOptions(NamedTuple):
    """The cluster, and the client id and timeout of the connection."""

    cluster: Cluster
    client_id: str
    timeout_s: float

    def client(self) -> WireClient:
        """Return a client of the cluster. Raises OptionError."""
        return self.cluster.client(client_id=self.client_id, retry_s=self.timeout_s)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of a reader."""

    connect: ConnectOptions
    subscription: TopicSelection
    starting: OffsetLimit | None
    """None: the earliest offset for a batch, the latest for a stream."""
    ending: OffsetLimit
    reading: Reading
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    columns: tuple[str, ...]


class TransactionOptions(NamedTuple):
    """The options of an exactly-once streaming write."""

    transactional_id: str
    timeout_ms: int


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of a writer."""

    connect: ConnectOptions
    topic: str | None
    compression: Compression
    acks: int
    is_idempotent: bool
    max_batch_bytes: int
    transaction: TransactionOptions | None
    """The options of an exactly-once write; None for an at-least-once write."""


def read_source_options(given: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
    """Return the options of a reader. Raises OptionError, which names the option."""
    options = _Options(given, Side.STREAM if is_stream else Side.BATCH)
    if options.get("maxOffsetsPerTrigger") and options.get("maxBytesPerTrigger"):
        raise OptionError("maxOffsetsPerTrigger and maxBytesPerTrigger exclude each other")
    fetch_bytes = [
        size
        for name in ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
        if (size := options.number(name)) is not None
    ]
    isolation = options.one_of(
        "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
    )
    connect = _connection(options, "kafka.default.api.timeout.ms")
    return SourceOptions(
        connect=connect,
        subscription=_subscription(options),
        starting=_offset_limit(options, "starting"),
        ending=_offset_limit(options, "ending") or LATEST,
        reading=Reading(
            read_committed=isolation == "read_committed",
            max_fetch_bytes=min([*fetch_bytes, MAX_FETCH_BYTES]),
            max_bytes_per_s=options.size_bytes("maxFetchRate"),
            fail_on_data_loss=options.flag("failOnDataLoss", default=True),
            check_crcs=options.flag("kafka.check.crcs", default=True),
            patience_s=connect.timeout_s,
        ),
        min_partitions=options.number("minPartitions"),
        max_records_per_partition=options.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=options.number("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=options.size_bytes("maxBytesPerTrigger"),
        columns=_columns(options),
    )


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a writer. Raises OptionError, which names the option."""
    options = _Options(given, Side.SINK)
    acks = options.one_of("kafka.acks", ("all", "-1", "1", "0"), "all")
    wants_idempotence = options.flag("kafka.enable.idempotence", default=acks in {"all", "-1"})
    if wants_idempotence and acks not in {"all", "-1"}:
        raise OptionError("kafka.enable.idempotence needs kafka.acks=all")
    names = tuple(one.name.lower() for one in Compression)
    compression = options.one_of("kafka.compression.type", names, "none")
    return SinkOptions(
        connect=_connection(options, "kafka.delivery.timeout.ms"),
        topic=options.get("topic"),
        compression=Compression[compression.upper()],
        acks=-1 if acks == "all" else int(acks),
        is_idempotent=wants_idempotence,
        max_batch_bytes=options.number("kafka.batch.size") or 512 << 10,
        transaction=_transaction(options, is_idempotent=wants_idempotence),
    )


def _transaction(options: _Options, *, is_idempotent: bool) -> TransactionOptions | None:
    name = "kafka.transactional.id"
    transactional_id = options.get(name)
    if not options.flag("exactlyOnce", default=False):
        if transactional_id:
            raise OptionError(f"{name} needs exactlyOnce=true")
        return None
    if not transactional_id:
        raise OptionError(
            f"exactlyOnce needs {name}: a name that only this query has, the same after a restart"
        )
    if not is_idempotent:
        raise OptionError("exactlyOnce needs kafka.acks=all and kafka.enable.idempotence=true")
    timeout_ms = options.number("kafka.transaction.timeout.ms")
    return TransactionOptions(transactional_id, timeout_ms or _TRANSACTION_TIMEOUT_MS)


class _Options:
    """Options by name. Options are looked up by the names that users write."""

    def __init__(self, given: Mapping[str, str], side: Side) -> None:
        self._given: dict[str, str] = {}
        for given_name, value in given.items():
            name = given_name.lower()
            found = find_option(name)
            if found is None:
                near = get_close_matches(name, [one.name.lower() for one in OPTIONS], 1)
                row = find_option(near[0]) if near else None
                hint = "" if row is None else f"; did you mean {row.name}?"
                raise OptionError(f"there is no option {name}{hint}")
            use = found.use(side)
            if use is Use.OBEYED:
                self._given[name] = value
            if use is not Use.REFUSED:
                continue
            shown = name if found.name.endswith("*") else found.name
            # The table's text describes what the option does elsewhere, not why it is refused here.
            if found.batch is Use.OBEYED:
                why = "a stream has no end; trigger(availableNow=True) ends it where partitions end"
                raise OptionError(f"{shown} cannot be set for {side.value}: {why}")
            raise OptionError(f"{shown} cannot be set: {found.text}")

    def get(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def security(self) -> dict[str, str]:
        """Return the properties of TLS and the login as they were given, by Kafka's names."""
        return {
            name.removeprefix(KAFKA): value
            for name, value in self._given.items()
            if name in SECURITY_NAMES
        }

    def number(self, name: str) -> int | None:
        return self._read(name, _positive, "a number above 0")

    def size_bytes(self, name: str) -> int | None:
        return self._read(name, parse_size_bytes, "a number of bytes, or one with k, m or g")

    def flag(self, name: str, *, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = (self.get(name) or default).lower()
        if value not in allowed:
            raise OptionError(f"{name} is {value!r}; it can be {', '.join(allowed)}")
        return value

    def _read(self, name: str, read: Callable[[str], int], what: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        try:
            return read(text)
        except ValueError:
            raise OptionError(f"{name} is {text!r}; it must be {what}") from None


def _connection(options: _Options, timeout_option: str) -> ConnectOptions:
    bootstrap = options.get("kafka.bootstrap.servers")
    if not bootstrap:
        raise OptionError("kafka.bootstrap.servers is missing: where does the gateway listen?")
    cluster = Cluster(bootstrap, options.security(), KAFKA)
    cluster.check()
    timeout_ms = options.number(timeout_option)
    return ConnectOptions(
        cluster,
        options.get("kafka.client.id") or "kgw-pipeline",
        30.0 if timeout_ms is None else timeout_ms / 1000,
    )


def _subscription(options: _Options) -> TopicSelection:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if options.get(name)]
    if len(given) != 1:
        what = "none is" if not given else f"{' and '.join(given)} are"
        raise OptionError(f"exactly one of {', '.join(names)} must be given; {what}")
    value = options.get(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(one.strip() for one in value.split(",") if one.strip()))
        if not topics:
            raise OptionError("subscribe names no topic")
        return TopicSelection(topics=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"subscribePattern {value!r}: {error}") from None
        return TopicSelection(pattern=value)
    return TopicSelection(assigned=_assigned(value))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = 'it must be like {"topicA":[0,1],"topicB":[2]}'
    try:
        read = json.loads(text)
        assigned = sorted(
            {
                TopicPartition(topic, partition)
                for topic, partitions in read.items()
                for partition in partitions
                if _is_int(partition)
            }
        )
        is_whole = len(assigned) == sum(len(one) for one in read.values())
    except (AttributeError, TypeError, ValueError):
        is_whole = False
    if not is_whole or not assigned:
        raise OptionError(f"assign is {text!r}; {example}")
    return tuple(assigned)


def _offset_limit(options: _Options, side: str) -> OffsetLimit | None:
    """Return the start or end of reading; None if no option gives it.

    One time for all partitions takes precedence over times by partition, and those over offsets.
    Spark's own source has the same precedence.
    """
    # If all records are older than a given time, the end is the latest offset; for the start this
    # is an error by default.
    strategy = options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    takes_latest = side == "ending" or strategy == "latest"
    name = f"{side}Timestamp"
    text = options.get(name)
    if text is not None:
        if not (text.isascii() and text.isdigit()):
            raise OptionError(f"{name} is {text!r}; it must be milliseconds since 1970")
        return OffsetLimit(
            OffsetLimitKind.TIMES,
            timestamp_ms=int(text),
            option=name,
            latest_without_match=takes_latest,
        )
    name = f"{side}OffsetsByTimestamp"
    text = options.get(name)
    if text is not None:
        times = _by_partition(name, text, least=0)
        return OffsetLimit(
            OffsetLimitKind.TIMES, times, option=name, latest_without_match=takes_latest
        )
    name = f"{side}Offsets"
    text = options.get(name)
    if text is None:
        return None
    if text.lower() in {"earliest", "latest"}:
        kind = OffsetLimitKind(text.lower())
        if side == "ending" and kind is OffsetLimitKind.EARLIEST:
            raise OptionError(f"{name} cannot be earliest: nothing lies before it")
        return OffsetLimit(kind, option=name)
    offsets = _by_partition(name, text, least=_EARLIEST)
    if side == "ending" and _EARLIEST in offsets.values():
        raise OptionError(f"{name} cannot be -2, the earliest: nothing lies before it")
    return OffsetLimit(OffsetLimitKind.OFFSETS, offsets, option=name)


def _by_partition(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    refused = OptionError(
        f'{name} is {text!r}; it must be like {{"topicA":{{"0":23,"1":42}}}}'
        + ("" if least == 0 else ", or earliest, or latest")
    )
    try:
        found = {
            TopicPartition(topic, int(partition)): value
            for topic, partitions in json.loads(text).items()
            for partition, value in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise refused from None
    if not found or not all(_is_int(one) and one >= least for one in found.values()):
        raise refused
    return found


def _columns(options: _Options) -> tuple[str, ...]:
    wants_headers = options.flag("includeHeaders", default=False)
    every = (*COLUMNS, HEADERS) if wants_headers else COLUMNS
    text = options.get("columns")
    if text is None:
        return every
    by_name = {one.lower(): one for one in (*COLUMNS, HEADERS)}
    wanted = set()
    for one in (part.strip() for part in text.split(",")):
        column = by_name.get(one.lower())
        if column is None:
            raise OptionError(f"columns names {one!r}; there are {', '.join((*COLUMNS, HEADERS))}")
        wanted.add(column)
    if wants_headers:
        wanted.add(HEADERS)
    return tuple(one for one in (*COLUMNS, HEADERS) if one in wanted)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(f"not above 0: {text}")
    return number


def parse_size_bytes(text: str) -> int:
    """Return the bytes of `1000`, `64k`, `256m` or `1g`. Raises ValueError."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.lower())
    if match is None:
        raise ValueError(f"not a number of bytes, or one with k, m or g: {text}")
    return _positive(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]
