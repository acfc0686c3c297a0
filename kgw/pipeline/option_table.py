"""The table of all options of `format("kgw")`.

A page of the documentation is generated from this table.

It has a row for each option of Spark's `kafka` source and sink, and for each setting of Kafka's
consumer and producer. Options that would change the records that are read or written are either
obeyed or refused by name. Options that only tune Java's clients are ignored.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kgw.client.client_properties import ALIASES, IGNORED, OBEYED, REFUSED

KAFKA: Final = "kafka."
"""The beginning of options that are properties of Kafka's clients."""


class Side(Enum):
    """The kinds of queries that have options."""

    BATCH = "a batch"
    STREAM = "a stream"
    SINK = "a sink"


class Use(Enum):
    """What kgw does with an option."""

    OBEYED = "obeyed"
    REFUSED = "refused"
    PASSED_OVER = "passed over"


class OptionRow(NamedTuple):
    """One option; if the name ends with a star, all options that begin with it."""

    name: str
    batch: Use
    stream: Use
    sink: Use
    text: str
    """The effect of the option; if no kind of query obeys it, the reason."""

    def use(self, side: Side) -> Use:
        """Return how the option is used by a kind of query."""
        uses = {Side.BATCH: self.batch, Side.STREAM: self.stream, Side.SINK: self.sink}
        return uses[side]


_O, _R, _P = Use.OBEYED, Use.REFUSED, Use.PASSED_OVER
_READING: Final = (_O, _O, _P)
_STREAMS: Final = (_P, _O, _P)
_BATCHES: Final = (_O, _R, _P)
_WRITING: Final = (_P, _P, _O)
_ALL: Final = (_O, _O, _O)
_REFUSED: Final = (_R, _R, _R)
_PASSED_OVER: Final = (_P, _P, _P)

# Options that are obeyed.
_OBEYED: Final = (
    OptionRow("kafka.bootstrap.servers", *_ALL, "Where the server listens; must be given"),
    OptionRow("kafka.client.id", *_ALL, "As for Kafka's clients"),
    OptionRow("subscribe", *_READING, "Which topics: `a,b`; exactly one of these three"),
    OptionRow("subscribePattern", *_READING, "Topics whose whole name the pattern matches"),
    OptionRow("assign", *_READING, 'Which partitions: `{"a":[0,1]}`'),
    OptionRow(
        "startingOffsets",
        *_READING,
        "Where reading begins: `earliest` for a batch, `latest` for a new stream, unless said "
        "otherwise. A batch cannot begin at `latest`",
    ),
    OptionRow("startingTimestamp", *_READING, "The first record of that time or later, everywhere"),
    OptionRow("startingOffsetsByTimestamp", *_READING, "The same by partition"),
    OptionRow(
        "startingOffsetsByTimestampStrategy",
        *_READING,
        "`error` or `latest`, where no record is that young",
    ),
    OptionRow(
        "endingOffsets",
        *_BATCHES,
        "Where a batch ends: `latest`, unless said otherwise. An end before the start is an error. "
        "A stream has no end: `trigger(availableNow=True)` ends it where partitions end then",
    ),
    OptionRow("endingTimestamp", *_BATCHES, "The same by time, everywhere"),
    OptionRow("endingOffsetsByTimestamp", *_BATCHES, "The same by time and partition"),
    OptionRow(
        "failOnDataLoss",
        *_READING,
        "`true`: offsets that are no more end the query, and the error names them. `false`: they "
        "are logged and left out; a stream that stands behind the end of a partition goes on at "
        "its end",
    ),
    OptionRow(
        "minPartitions",
        *_READING,
        "How many ranges there are at least; otherwise as many as processors",
    ),
    OptionRow("maxRecordsPerPartition", *_READING, "How many offsets a range has at most"),
    OptionRow("maxOffsetsPerTrigger", *_STREAMS, "How many offsets a micro-batch reads"),
    OptionRow(
        "maxBytesPerTrigger",
        *_STREAMS,
        "How many stored bytes a micro-batch reads at most; more only where one batch of records "
        "takes more. The driver reads them first, to count them. Not together with "
        "`maxOffsetsPerTrigger`. Not of Spark's `kafka`",
    ),
    OptionRow("includeHeaders", *_READING, "`true`: the column `headers` is there"),
    OptionRow(
        "columns",
        *_READING,
        "Which columns are read; those that nobody wants are not decoded. Not of Spark's `kafka`",
    ),
    OptionRow(
        "maxFetchRate",
        *_READING,
        "How many bytes a second one task reads at most. Not of Spark's `kafka`",
    ),
    OptionRow(
        "kafka.isolation.level",
        *_READING,
        "`read_committed` leaves out what was aborted or is not decided",
    ),
    OptionRow("kafka.fetch.max.bytes", *_READING, "As for Kafka's consumer; 64 MiB at most"),
    OptionRow("kafka.max.partition.fetch.bytes", *_READING, "As for Kafka's consumer"),
    OptionRow("kafka.check.crcs", *_READING, "As for Kafka's consumer"),
    OptionRow(
        "kafka.default.api.timeout.ms",
        *_READING,
        "How long a server that is away is waited for",
    ),
    OptionRow("topic", *_WRITING, "Where all rows go; without it, the column `topic` says so"),
    OptionRow("kafka.acks", *_WRITING, "`all` unless said otherwise"),
    OptionRow(
        "kafka.enable.idempotence",
        *_WRITING,
        "`true` with `acks=all`: a repeated request is stored once",
    ),
    OptionRow("kafka.compression.type", *_WRITING, "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
    OptionRow("kafka.batch.size", *_WRITING, "Bytes of a batch before compression; 512 KiB"),
    OptionRow("kafka.delivery.timeout.ms", *_WRITING, "How long one task tries to store a record"),
    OptionRow(
        "exactlyOnce",
        *_WRITING,
        "`true`: [exactly once](#exactly-once), by a stream; a batch refuses it. Not of Spark's "
        "`kafka`",
    ),
    OptionRow(
        "kafka.transactional.id",
        *_WRITING,
        "Names the query, with `exactlyOnce`: no other query has it, and it stays the same after a "
        "restart. Transactions of tasks begin with it, then `-task-`",
    ),
    OptionRow(
        "kafka.transaction.timeout.ms",
        *_WRITING,
        "With `exactlyOnce`: how long a micro-batch may take from its first row to its end; 15 "
        "minutes, the longest that servers allow by default",
    ),
)

# Options of TLS and the login: the properties that all clients of kgw have.
_SECURITY: Final = (
    *(OptionRow(f"{KAFKA}{name}", *_ALL, text.removesuffix(".")) for name, text in OBEYED.items()),
    *(
        OptionRow(f"{KAFKA}{alias}", *_ALL, f"librdkafka's name of `{KAFKA}{name}`")
        for alias, name in ALIASES.items()
    ),
)
SECURITY_NAMES: Final = frozenset(one.name for one in _SECURITY)
"""The names of the options of TLS and the login, in lower case."""
_SECURITY_STARTS: Final = ("enable.ssl.", "sasl.", "security.", "ssl.")

_NO_CLASSES: Final = "there are no Java classes here"
_BINARY: Final = "keys and values are binary; cast the column"
_TRIGGER: Final = "set a trigger interval instead"
_BY_KEY: Final = "give a partition column, or leave it to the key"
_REFUSALS: Final = (
    (_REFUSED, "set startingOffsets instead", ("kafka.auto.offset.reset",)),
    (_REFUSED, "Spark's checkpoint says what has been read", ("kafka.enable.auto.commit",)),
    (
        _REFUSED,
        _NO_CLASSES,
        (
            "kafka.config.providers",
            "kafka.interceptor.classes",
            "kafka.metric.reporters",
        ),
    ),
    (
        _REFUSED,
        _BINARY,
        (
            "kafka.key.deserializer",
            "kafka.key.serializer",
            "kafka.value.deserializer",
            "kafka.value.serializer",
        ),
    ),
    (_REFUSED, _BY_KEY, ("kafka.partitioner.class", "kafka.partitioner.ignore.keys")),
    (
        _REFUSED,
        "a pattern matches no internal topic; name it with subscribe",
        ("kafka.exclude.internal.topics",),
    ),
    (
        _REFUSED,
        "the end of a transaction is decided by exactlyOnce",
        ("kafka.transaction.two.phase.commit.enable",),
    ),
    # Spark's own source ignores these options in a batch query, too.
    ((_P, _R, _P), _TRIGGER, ("maxTriggerDelay", "minOffsetsPerTrigger")),
    *(
        # A beginning with a dot at its end stands for several properties.
        (_REFUSED, reason, (f"{KAFKA}{start}*" if start.endswith(".") else f"{KAFKA}{start}",))
        for start, reason in REFUSED
        if start.startswith(_SECURITY_STARTS)
    ),
)

# Options that only tune Java's clients, or Spark's use of them, and never change the records that
# are read or written.
_TUNING: Final = (
    (
        "no consumer group is joined, and none is committed to",
        (
            "groupIdPrefix",
            "kafka.auto.commit.interval.ms",
            "kafka.group.id",
            "kafka.group.instance.id",
            "kafka.group.protocol",
            "kafka.group.remote.assignor",
            "kafka.heartbeat.interval.ms",
            "kafka.max.poll.interval.ms",
            "kafka.partition.assignment.strategy",
            "kafka.session.timeout.ms",
            "kafka.share.acknowledgement.mode",
            "kafka.share.acquire.mode",
        ),
    ),
    (
        "kafka.default.api.timeout.ms and kafka.delivery.timeout.ms say how long is tried again",
        (
            "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
            "kafka.max.block.ms",
            "kafka.reconnect.backoff.max.ms",
            "kafka.reconnect.backoff.ms",
            "kafka.request.timeout.ms",
            "kafka.retries",
            "kafka.retry.backoff.max.ms",
            "kafka.retry.backoff.ms",
            "kafka.socket.connection.setup.timeout.max.ms",
            "kafka.socket.connection.setup.timeout.ms",
            "kafkaConsumer.pollTimeoutMs",
        ),
    ),
    (
        "whole ranges are fetched, as fast as they are decoded",
        (
            "kafka.fetch.max.wait.ms",
            "kafka.fetch.min.bytes",
            "kafka.max.poll.records",
            "kafka.receive.buffer.bytes",
        ),
    ),
    (
        "rows are packed as Spark hands them over; the server limits what is too large",
        (
            "kafka.buffer.memory",
            "kafka.buffer.memory.allocation.strategy",
            "kafka.linger.ms",
            "kafka.max.in.flight.requests.per.connection",
            "kafka.max.request.size",
            "kafka.send.buffer.bytes",
        ),
    ),
    (
        "each codec packs by its default",
        (
            "kafka.compression.gzip.level",
            "kafka.compression.lz4.level",
            "kafka.compression.zstd.level",
        ),
    ),
    (
        "rows without key and partition go to one partition for each batch of rows",
        (
            "kafka.partitioner.adaptive.partitioning.enable",
            "kafka.partitioner.availability.timeout.ms",
            "kafka.partitioner.rack.aware",
        ),
    ),
    ("leaders are asked", ("kafka.client.rack",)),
    ("topics are looked up when a query is planned", ("kafka.allow.auto.create.topics",)),
    (
        "connections and what is known of the cluster are this client's affair",
        (
            "kafka.bootstrap.resolve.timeout.ms",
            "kafka.client.dns.lookup",
            "kafka.connections.max.idle.ms",
            "kafka.metadata.cluster.check.enable",
            "kafka.metadata.max.age.ms",
            "kafka.metadata.max.idle.ms",
            "kafka.metadata.recovery.rebootstrap.trigger.ms",
            "kafka.metadata.recovery.strategy",
            "kafka.auto.include.jmx.reporter",
        ),
    ),
    (
        "there are no metrics of Java's clients",
        (
            "kafka.enable.metrics.push",
            "kafka.metrics.num.samples",
            "kafka.metrics.recording.level",
            "kafka.metrics.sample.window.ms",
        ),
    ),
    (
        "they choose among Java's providers of TLS",
        tuple(f"{KAFKA}{name}" for name in IGNORED if name.startswith(_SECURITY_STARTS)),
    ),
    ("of Spark, for its own use", ("checkpointLocation", "queryName", "outputMode")),
)

OPTIONS: Final = (
    *_OBEYED,
    *_SECURITY,
    *(OptionRow(name, *uses, text) for uses, text, names in _REFUSALS for name in names),
    *(OptionRow(name, *_PASSED_OVER, text) for text, names in _TUNING for name in names),
)

_BY_NAME: Final = {one.name.lower(): one for one in OPTIONS}
_PREFIXES: Final = tuple(one for one in OPTIONS if one.name.endswith("*"))


def find_option(name: str) -> OptionRow | None:
    """Return the row of an option, whatever the case of its name; None if there is none."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        starts = (one for one in _PREFIXES if name.lower().startswith(one.name[:-1].lower()))
        found = next(starts, None)
    return found
