"""The table of options: each row says what becomes of an option, and so it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.pipeline.errors import OptionError
from kgw.pipeline.option_table import OPTIONS, SECURITY_NAMES, Side, Use, find_option
from kgw.pipeline.options import read_sink_options, read_source_options

if TYPE_CHECKING:
    from kgw.pipeline.option_table import OptionRow
    from kgw.pipeline.options import SinkOptions, SourceOptions

SOURCE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
SINK = {"kafka.bootstrap.servers": "h:9092"}
ONCE = {"exactlyOnce": "true", "kafka.transactional.id": "x"}

# A value that makes a difference to SOURCE or SINK, and what else it needs.
EXAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "kafka.bootstrap.servers": ("other:1", {}),
    "kafka.client.id": ("me", {}),
    "subscribe": ("t,u", {}),
    "subscribePattern": ("t.*", {"subscribe": ""}),
    "assign": ('{"t":[0]}', {"subscribe": ""}),
    "startingOffsets": ("earliest", {}),
    "startingTimestamp": ("5", {}),
    "startingOffsetsByTimestamp": ('{"t":{"0":5}}', {}),
    "startingOffsetsByTimestampStrategy": ("latest", {"startingTimestamp": "5"}),
    "endingOffsets": ('{"t":{"0":5}}', {}),
    "endingTimestamp": ("5", {}),
    "endingOffsetsByTimestamp": ('{"t":{"0":5}}', {}),
    "failOnDataLoss": ("false", {}),
    "minPartitions": ("5", {}),
    "maxRecordsPerPartition": ("5", {}),
    "maxOffsetsPerTrigger": ("5", {}),
    "maxBytesPerTrigger": ("5", {}),
    "includeHeaders": ("true", {}),
    "columns": ("key", {}),
    "maxFetchRate": ("5", {}),
    "kafka.isolation.level": ("read_committed", {}),
    "kafka.fetch.max.bytes": ("5", {}),
    "kafka.max.partition.fetch.bytes": ("5", {}),
    "kafka.check.crcs": ("false", {}),
    "kafka.default.api.timeout.ms": ("5", {}),
    "topic": ("t", {}),
    "kafka.acks": ("1", {}),
    "kafka.enable.idempotence": ("false", {}),
    "kafka.compression.type": ("lz4", {}),
    "kafka.batch.size": ("5", {}),
    "kafka.delivery.timeout.ms": ("5", {}),
    "exactlyOnce": ("true", {"kafka.transactional.id": "x"}),
    "kafka.transactional.id": ("x", {"exactlyOnce": "true"}),
    "kafka.transaction.timeout.ms": ("5", ONCE),
}

TLS = {"kafka.security.protocol": "SSL"}
LOGIN = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
USER = {**LOGIN, "kafka.sasl.username": "alice", "kafka.sasl.password": "secret"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
SECURED: dict[str, tuple[str, dict[str, str]]] = {
    "kafka.security.protocol": ("SSL", {}),
    "kafka.sasl.mechanism": ("SCRAM-SHA-256", USER),
    "kafka.sasl.mechanisms": ("PLAIN", {"kafka.security.protocol": "PLAINTEXT"}),
    "kafka.sasl.username": ("bob", USER),
    "kafka.sasl.password": ("other", USER),
    "kafka.ssl.ca.pem": ("text", TLS),
    "kafka.ssl.certificate.pem": ("text", TLS),
    "kafka.ssl.key.pem": ("text", TLS),
}
"""Options of TLS and logins that are known by name; of others the value does not matter here."""

SPARKS = {
    *("assign", "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets"),
    *("endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "minPartitions"),
    *("maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"),
    *("groupIdPrefix", "includeHeaders", "topic"),
}
"""The options of Spark 4.2's `kafka` source and sink."""

CLIENTS = {
    *("acks", "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter"),
    *("auto.offset.reset", "batch.size", "bootstrap.resolve.timeout.ms", "bootstrap.servers"),
    *("buffer.memory", "buffer.memory.allocation.strategy", "check.crcs", "client.dns.lookup"),
    *("client.id", "client.rack", "compression.gzip.level", "compression.lz4.level"),
    *("compression.type", "compression.zstd.level", "config.providers"),
    *("connections.max.idle.ms", "default.api.timeout.ms", "delivery.timeout.ms"),
    *("enable.auto.commit", "enable.idempotence", "enable.metrics.push"),
    *("exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes"),
    *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
    *("heartbeat.interval.ms", "interceptor.classes", "isolation.level", "key.deserializer"),
    *("key.serializer", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection"),
    *("max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records"),
    *("max.request.size", "metadata.cluster.check.enable", "metadata.max.age.ms"),
    *("metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms"),
    *("metadata.recovery.strategy", "metric.reporters", "metrics.num.samples"),
    *("metrics.recording.level", "metrics.sample.window.ms", "partition.assignment.strategy"),
    *("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"),
    *("partitioner.class", "partitioner.ignore.keys", "partitioner.rack.aware"),
    *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
    *("request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms"),
    *("sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.service.name"),
    *("sasl.login.callback.handler.class", "sasl.login.class", "sasl.login.retry.backoff.ms"),
    *("sasl.mechanism", "sasl.oauthbearer.token.endpoint.url", "security.protocol"),
    *("security.providers", "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.key.password"),
    *("ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.keystore.key"),
    *("ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.password"),
    *("ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation"),
    *("ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.password"),
    *("ssl.truststore.type",),
    *("send.buffer.bytes", "session.timeout.ms", "share.acknowledgement.mode"),
    *("share.acquire.mode", "socket.connection.setup.timeout.max.ms"),
    *("socket.connection.setup.timeout.ms", "ssl.keystore.location", "ssl.truststore.location"),
    *("transaction.timeout.ms", "transaction.two.phase.commit.enable", "transactional.id"),
    *("value.deserializer", "value.serializer"),
}
"""The settings of kafka-clients 4.4's consumer and producer, and what 3.9's have beside them.

Of those of Kerberos, OAuth and login threads a few; none that is internal.
"""


def read(side: Side, given: dict[str, str]) -> SourceOptions | SinkOptions:
    """Return what options say to one side."""
    if side is Side.SINK:
        return read_sink_options(SINK | given)
    return read_source_options(SOURCE | given, is_stream=side is Side.STREAM)


@pytest.mark.parametrize("side", Side, ids=lambda one: one.name.lower())
@pytest.mark.parametrize("row", OPTIONS, ids=lambda one: one.name)
def test_each_row_says_what_becomes_of_an_option(row: OptionRow, side: Side) -> None:
    """Obeyed: it makes a difference. Refused: by its name. Passed over: it makes none."""
    name = row.name.replace("*", "anything")
    value, others = EXAMPLES.get(row.name, ("anything", {}))
    match row.use(side):
        case Use.REFUSED:
            with pytest.raises(OptionError, match=f"{name} cannot be set"):
                read(side, {name: value})
        case Use.PASSED_OVER:
            assert read(side, {}) == read(side, {name: value})
        case Use.OBEYED if name == "kafka.sasl.jaas.config":
            assert read(side, USER) != read(side, {**LOGIN, name: JAAS})
        case Use.OBEYED if name in SECURITY_NAMES:
            # Their files may be on other machines, and are not read here.
            value, others = SECURED.get(name, ("/no/such/file", TLS))
            assert read(side, others) != read(side, {**others, name: value})
        case Use.OBEYED if name in ONCE:
            # One needs the other.
            with pytest.raises(OptionError, match=f"{name}|needs"):
                read(side, others)
            assert read(side, {}) != read(side, {**others, name: value})
        case Use.OBEYED if "subscribe" in others:
            with pytest.raises(OptionError, match="none is"):
                read(side, others)
            assert read(side, {}) != read(side, {**others, name: value})
        case Use.OBEYED:
            assert read(side, others) != read(side, {**others, name: value})


def test_the_table_has_each_option_once() -> None:
    """Of Spark's source and sink, and of Kafka's consumer and producer."""
    wanted = SPARKS | {f"kafka.{one}" for one in CLIENTS}
    assert set() == {one for one in wanted if find_option(one) is None}
    names = [one.name.lower() for one in OPTIONS]
    assert sorted(set(names)) == sorted(names)
    assert set(EXAMPLES) | SECURITY_NAMES == {one.name for one in OPTIONS if Use.OBEYED in one[1:4]}


def test_a_stream_has_no_end() -> None:
    """The refusal says how one is ended."""
    with pytest.raises(
        OptionError,
        match="endingTimestamp cannot be set for a stream: a stream has no end; "
        r"trigger\(availableNow=True\) ends it",
    ):
        read_source_options(SOURCE | {"endingtimestamp": "5"}, is_stream=True)
