"""Options: those of the `kafka` source, read as it reads them, or refused by their names."""

from __future__ import annotations

import pickle

import pytest

from kgw.pipeline.errors import OptionError
from kgw.pipeline.options import (
    COLUMNS,
    LATEST,
    OffsetLimit,
    OffsetLimitKind,
    TopicSelection,
    read_sink_options,
    read_source_options,
)
from kgw.pipeline.ranges import TopicPartition
from kgw.records.batch import Compression

CANARY = "c4nary-s3cret"
LOGIN = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
NEEDED = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}


def test_defaults_are_those_of_the_kafka_source() -> None:
    """Nothing but a server and a topic is needed."""
    options = read_source_options(NEEDED)
    assert options.subscription == TopicSelection(topics=("t",))
    assert options.starting is None
    assert options.ending == LATEST
    assert options.reading.fail_on_data_loss
    assert options.columns == COLUMNS
    assert not options.reading.read_committed
    assert options.reading.max_fetch_bytes == 64 << 20


def test_names_come_in_any_case() -> None:
    """Spark hands names on in lower case."""
    given = {
        "kafka.bootstrap.servers": "h:1,[::1]:2",
        "subscribepattern": "a.*",
        "startingoffsets": '{"a":{"0":5,"1":-2}}',
        "endingtimestamp": "1000",
        "failondataloss": "FALSE",
        "includeheaders": "true",
        "minpartitions": "7",
        "maxfetchrate": "2k",
        "kafka.isolation.level": "read_committed",
        "kafka.max.partition.fetch.bytes": "8388608",
        "kafka.max.poll.records": "20000",
    }
    options = read_source_options(given)
    assert options.subscription == TopicSelection(pattern="a.*")
    assert options.starting == OffsetLimit(
        OffsetLimitKind.OFFSETS,
        {TopicPartition("a", 0): 5, TopicPartition("a", 1): -2},
        option="startingOffsets",
    )
    assert options.ending == OffsetLimit(
        OffsetLimitKind.TIMES,
        timestamp_ms=1000,
        option="endingTimestamp",
        latest_without_match=True,
    )
    assert not options.reading.fail_on_data_loss
    assert options.columns == (*COLUMNS, "headers")
    assert options.min_partitions == 7
    assert options.reading.max_bytes_per_s == 2048
    assert options.reading.read_committed
    assert options.reading.max_fetch_bytes == 8 << 20


def test_a_time_goes_before_offsets() -> None:
    """As in the `kafka` source, the most general time wins."""
    times = {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "latest"}
    by_time = read_source_options(NEEDED | times).starting
    assert by_time is not None
    assert by_time.by_partition == {TopicPartition("t", 0): 7}
    assert not by_time.latest_without_match
    strategy = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": "9"}
    for_all = read_source_options(NEEDED | times | strategy).starting
    assert for_all is not None
    assert for_all.timestamp_ms == 9
    assert for_all.latest_without_match


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOfsets": "latest"}, "no option startingofsets; did you mean startingOffsets"),
        ({"kafka.fetch.max.byts": "1"}, "did you mean kafka.fetch.max.bytes"),
        ({"kafka.nonsense": "1"}, "there is no option kafka.nonsense"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets instead"),
        ({"kafka.ssl.truststore.loc": "x"}, "did you mean kafka.ssl.truststore.location"),
        ({"kafka.sasl.kerberos.service.name": "x"}, r"name cannot be set: Kerberos is not spoken"),
        ({"kafka.ssl.engine.factory.class": "x"}, "class cannot be set: kgw loads no classes"),
        (
            {"kafka.sasl.jaas.config": CANARY},
            r"^kafka.sasl.jaas.config: it has no effect without kafka.security.protocol \(SASL_SSL",
        ),
        ({"kafka.security.protocol": "TLS"}, "^kafka.security.protocol: it is none of PLAINTEXT"),
        (
            {"kafka.security.protocol": "SASL_SSL"},
            "^kafka.security.protocol: a login needs kafka.sasl.mechanism",
        ),
        (
            LOGIN | {"kafka.sasl.jaas.config": CANARY},
            "^kafka.sasl.jaas.config: after the login mod",
        ),
        (
            LOGIN | {"kafka.sasl.username": "a", "kafka.sasl.jaas.config": CANARY},
            "^kafka.sasl.username: kafka.sasl.jaas.config names the user already",
        ),
        (
            LOGIN | {"kafka.sasl.mechanisms": "PLAIN"},
            "kafka.sasl.mechanism is another name of it, and is given, too",
        ),
        ({"kafka.bootstrap.servers": ""}, "where does the gateway listen"),
        ({"kafka.bootstrap.servers": "h"}, "has no port"),
        ({"kafka.bootstrap.servers": ","}, "names no server"),
        ({"assign": '{"t":[0]}'}, "subscribe and assign are"),
        ({"subscribe": ""}, "none is"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern"),
        ({"subscribe": "", "assign": '{"t":["0"]}'}, "it must be like"),
        ({"subscribe": "", "assign": "[]"}, "it must be like"),
        ({"startingOffsets": "newest"}, "or earliest, or latest"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets is"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets cannot be -2"),
        ({"startingTimestamp": "now"}, "milliseconds since 1970"),
        ({"failOnDataLoss": "no"}, "it can be true, false"),
        ({"minPartitions": "0"}, "a number above 0"),
        ({"maxFetchRate": "10x"}, "one with k, m or g"),
        ({"columns": "key,offsets"}, "columns names 'offsets'"),
        ({"kafka.isolation.level": "serializable"}, "it can be read_uncommitted"),
    ],
)
def test_what_cannot_be_honoured_is_refused(given: dict[str, str], said: str) -> None:
    """Each refusal names the option and says what would be right."""
    with pytest.raises(OptionError, match=said) as raised:
        read_source_options(NEEDED | given)
    assert CANARY not in str(raised.value)


def test_a_micro_batch_is_limited_in_one_way() -> None:
    """By offsets or by bytes; a batch is limited by neither, as in the `kafka` source."""
    given = NEEDED | {"maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "10m"}
    with pytest.raises(OptionError, match="exclude each other"):
        read_source_options(given, is_stream=True)
    assert read_source_options(given) == read_source_options(NEEDED)
    del given["maxOffsetsPerTrigger"]
    assert 10 << 20 == read_source_options(given, is_stream=True).max_bytes_per_trigger


def test_options_of_a_login_are_carried_and_not_shown() -> None:
    """To each task as they were given, blanks in a password, too; files are not read here."""
    given = LOGIN | {
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": f" {CANARY} ",
        "kafka.ssl.truststore.location": "/on/the/workers/ca.pem",
    }
    for options in (read_source_options(NEEDED | given), read_sink_options(NEEDED | given)):
        kept = pickle.loads(pickle.dumps(options)).connect.cluster  # noqa: S301 - of this process
        assert {f"kafka.{name}": value for name, value in kept.properties.items()} == given
        assert CANARY not in repr(options)
        assert "h:9092" in repr(options)


def test_columns_keep_their_order() -> None:
    """`columns` says which, not in which order."""
    assert read_source_options(NEEDED | {"columns": "Offset, value"}).columns == ("value", "offset")
    both = {"columns": "value", "includeHeaders": "true"}
    assert read_source_options(NEEDED | both).columns == ("value", "headers")


def test_a_sink_is_told() -> None:
    """Producers' options mean what they mean to Kafka's producer."""
    to = {"kafka.bootstrap.servers": "h:9092"}
    options = read_sink_options(to)
    assert (options.topic, options.acks, options.is_idempotent) == (None, -1, True)
    options = read_sink_options(
        to | {"topic": "t", "kafka.compression.type": "lz4", "kafka.acks": "1"}
    )
    assert (options.compression, options.acks, options.is_idempotent) == (Compression.LZ4, 1, False)
    with pytest.raises(OptionError, match=r"needs kafka\.acks=all"):
        read_sink_options(to | {"kafka.acks": "1", "kafka.enable.idempotence": "true"})
    with pytest.raises(OptionError, match="needs exactlyOnce"):
        read_sink_options(to | {"kafka.transactional.id": "x"})
