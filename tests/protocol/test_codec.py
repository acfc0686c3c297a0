"""Round trips, hostile bytes, and what cannot be encoded."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.codec import codec
from kgw.protocol.encoding import GATHER_BYTES
from kgw.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kgw.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kgw.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kgw.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kgw.protocol.messages.join_group import JoinGroupRequest
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kgw.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    float64,
    string,
    struct,
    uint16,
    uuid,
)
from tests.protocol.random_messages import all_messages, all_versions, random_message

EXAMPLES = settings(max_examples=max(5, settings().max_examples // 20), deadline=None)
SEEDS = st.integers(0, 2**64 - 1)

_messages = pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)


@pytest.mark.parametrize("way", ["decode", "decode_prefix", "decode_in_turns"])
def test_a_refusal_keeps_nothing_that_was_decoded(way: str) -> None:
    """Whoever keeps the error for a while keeps no message of a hundred times its size."""
    ours = codec(MetadataRequest, 1)
    topics = [MetadataRequestTopic(name=f"name-{number}") for number in range(100)]
    cut = ours.encode(MetadataRequest(topics=topics))[:-1]
    topics.clear()
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(DecodeError) as refusal:
            list(getattr(ours, way)(cut))
        topics = [one for one in gc.get_objects() if isinstance(one, MetadataRequestTopic)]
        assert [] == [one for one in topics if str(one.name).startswith("name-")]
        assert "truncated" in str(refusal.value)
    finally:
        gc.enable()


@pytest.mark.slow
@_messages
@EXAMPLES
@given(seed=SEEDS)
def test_round_trip(message: Any, seed: int) -> None:
    """Decoding what was encoded gives an equal message, from any kind of buffer."""
    first, last = message.valid_versions
    for version in range(first, last + 1):
        ours = codec(message, version)
        value = random_message(message, version, Random(seed))
        encoded = ours.encode(value)
        assert value == ours.decode(encoded)
        assert value == ours.decode(memoryview(encoded))
        assert (value, len(encoded) + 1) == ours.decode_prefix(b"\xff" + encoded + b"tail", 1)
        assert encoded == b"".join(ours.encode_parts(value))


@pytest.mark.slow
@_messages
@EXAMPLES
@given(seed=SEEDS)
def test_every_truncation_is_refused(message: Any, seed: int) -> None:
    """A message cut anywhere, or with a byte too many, is a DecodeError."""
    first, last = message.valid_versions
    random = Random(seed)
    version = random.randint(first, last)
    ours = codec(message, version)
    encoded = ours.encode(random_message(message, version, random, max_items=2))
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            ours.decode(encoded[:size])
    with pytest.raises(DecodeError):
        ours.decode(encoded + b"\0")


@pytest.mark.slow
@_messages
@EXAMPLES
@given(seed=SEEDS)
def test_mutations_give_a_message_or_a_decode_error(message: Any, seed: int) -> None:
    """Changed bytes raise nothing else, and what is accepted can be encoded and decoded again."""
    random = Random(seed)
    first, last = message.valid_versions
    for version in range(first, last + 1):
        ours = codec(message, version)
        data = bytearray(ours.encode(random_message(message, version, random)) or b"\0")
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random.getrandbits(8))
            )
        try:
            decoded = ours.decode(data)
        except DecodeError:
            continue
        encoded = ours.encode(decoded)
        assert encoded == ours.encode(ours.decode(encoded))


@EXAMPLES
@given(data=st.binary(max_size=200), seed=SEEDS)
def test_arbitrary_bytes_give_a_message_or_a_decode_error(data: bytes, seed: int) -> None:
    """Bytes that were never a message raise DecodeError or nothing."""
    random = Random(seed)
    for message, version in random.sample(list(all_versions()), 20):
        try:
            codec(message, version).decode(data)
        except DecodeError as error:
            prefix = str(error)[: len(f"{message.__name__} v{version}: ")]
            if prefix != f"{message.__name__} v{version}: ":
                raise


class Inner(Struct):
    """A structure within `Everything`."""

    flag: bool = boolean(default=True)
    name: str | None = string(nullable_since=0)


class Everything(Message):
    """Every kind in every place, also where no message of Kafka's has one."""

    valid_versions = (0, 1)
    flexible_since = 1

    small: int = uint16()
    ratio: float = float64(default=1.5)
    ids: list[bytes] = array("uuid")
    blobs: list[bytes] = array("bytes")
    flags: list[bool] = array("bool")
    ratios: list[float] | None = array("float64", nullable_since=0, default=None)
    only: Inner = struct(Inner)
    maybe: Inner | None = struct(Inner, nullable_since=0)
    names: list[str] | None = array("string", nullable_since=0, since=1)
    tagged_id: bytes = uuid(since=1, tag=5, default=b"i" * 16)
    tagged_names: list[str] = array("string", since=1, tag=0)
    tagged_item: Inner | None = struct(Inner, since=1, nullable_since=1, tag=3, default=None)
    tagged_items: list[Inner] = array(Inner, since=1, tag=200)


@EXAMPLES
@given(seed=SEEDS)
def test_kinds_in_unusual_places(seed: int) -> None:
    """The vocabulary means the same in combinations that Kafka does not use yet."""
    for version in (0, 1):
        ours = codec(Everything, version)
        value = random_message(Everything, version, Random(seed))
        encoded = ours.encode(value)
        assert value == ours.decode(encoded)
        for size in range(len(encoded)):
            with pytest.raises(DecodeError):
                ours.decode(encoded[:size])


def test_null_is_not_the_default_of_a_field_that_a_version_lacks() -> None:
    """Null in a field whose default is an empty array would be lost, and is an error."""
    with pytest.raises(EncodeError, match="names: version 0 has no such field"):
        codec(Everything, 0).encode(Everything(names=None))
    assert codec(Everything, 0).encode(Everything(names=[]))


def test_unknown_version_is_a_programming_error() -> None:
    """There is no codec for a version that the message does not have."""
    with pytest.raises(ValueError, match="ProduceRequest has versions 0 to 13, not 14"):
        codec(ProduceRequest, 14)
    with pytest.raises(ValueError, match="not -1"):
        codec(ProduceRequest, -1)


def _produce(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def test_records_are_views_of_the_frame() -> None:
    """Decoding copies no records: they are memoryviews into the input."""
    frame = bytearray(codec(ProduceRequest, 9).encode(_produce(b"abc")))
    records = codec(ProduceRequest, 9).decode(frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"abc")] = ord("x")
    assert b"xbc" == bytes(records)


def test_large_records_are_passed_by_reference() -> None:
    """Records of some size are parts of their own; what lies between them is joined."""
    first, second = bytes(GATHER_BYTES), memoryview(bytes(GATHER_BYTES))
    partitions = [
        PartitionData(partition_index=0, records=first),
        PartitionData(partition_index=1, records=[second, b"tail"]),
        PartitionData(partition_index=2, records=b"small"),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    ours = codec(FetchResponse, 11)
    parts = ours.encode_parts(response)
    assert parts[1] is first
    assert parts[3] is second
    assert b"tail" == parts[4]
    assert 6 == len(parts)
    decoded = ours.decode(b"".join(parts)).responses[0].partitions
    assert [first, bytes(second) + b"tail", b"small"] == [item.records for item in decoded]


def test_records_in_several_small_buffers() -> None:
    """A list of buffers is one run of records."""
    encoded = codec(ProduceRequest, 3).encode(_produce([b"ab", b"", memoryview(b"c")]))
    assert _produce(b"abc") == codec(ProduceRequest, 3).decode(encoded)


def test_ignorable_fields_are_dropped_where_a_version_lacks_them() -> None:
    """What Kafka calls ignorable does not hinder encoding for an old client."""
    request = ApiVersionsRequest(client_software_name="kgw", client_software_version="1")
    assert b"" == codec(ApiVersionsRequest, 0).encode(request)


def test_other_fields_must_not_be_lost() -> None:
    """A value for a field that the version lacks is an EncodeError unless it is the default."""
    with pytest.raises(EncodeError, match="MetadataRequest v3: allow_auto_topic_creation"):
        codec(MetadataRequest, 3).encode(MetadataRequest(allow_auto_topic_creation=False))
    with pytest.raises(EncodeError, match="FetchRequest v14: replica_state"):
        codec(FetchRequest, 14).encode(FetchRequest(replica_state=ReplicaState(replica_id=1)))
    request = FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t")])
    with pytest.raises(EncodeError, match="FetchRequest v6: forgotten_topics_data"):
        codec(FetchRequest, 6).encode(request)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, MetadataRequest(topics=None)),
        (9, MetadataRequest(topics=[MetadataRequestTopic(name=None)])),
        (9, MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)])),
        (8, MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)])),
        (9, MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")])),
        (9, MetadataRequest(topics=[MetadataRequestTopic(name=5)])),  # type: ignore[arg-type]
        (9, MetadataRequest(topics=7)),  # type: ignore[arg-type]
        (9, MetadataRequest(topics=[None])),  # type: ignore[list-item]
        (12, MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")])),
        (0, FetchRequest(max_wait_ms=2**31)),
        (0, FetchRequest(max_wait_ms="1")),  # type: ignore[arg-type]
        (9, _produce(7)),
        (6, JoinGroupRequest(protocols=None)),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_encoded(version: int, message: Any) -> None:
    """Nulls where none may be, wrong types, wrong sizes and numbers out of range are errors."""
    with pytest.raises(EncodeError, match=f"^{type(message).__name__} v{version}: "):
        codec(type(message), version).encode(message)


def test_strings_of_the_largest_size() -> None:
    """32,767 bytes are Kafka's limit for strings, also where a compact length could say more."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32767)])
    encoded = codec(MetadataRequest, 9).encode(request)
    assert request == codec(MetadataRequest, 9).decode(encoded)
    longer = encoded.replace(b"\x80\x80\x02", b"\x81\x80\x02").replace(b"xx", b"xxx", 1)
    with pytest.raises(DecodeError, match="name: truncated or too long"):
        codec(MetadataRequest, 9).decode(longer)


@pytest.mark.parametrize(
    ("message", "version", "data", "problem"),
    [
        (MetadataRequest, 1, "ffffffff", None),
        (MetadataRequest, 0, "ffffffff", "topics: negative length"),
        (MetadataRequest, 1, "fffffffe", "topics: negative length"),
        (MetadataRequest, 1, "00000001ffff", "name: negative length"),
        (MetadataRequest, 1, "000000010002c328", None),
        (MetadataRequest, 9, "0201000000000000", "bytes too many"),
        (MetadataRequest, 9, "02000000000000", "name: null is not allowed"),
        (MetadataRequest, 9, "020262000000000000", "bytes too many"),
        (MetadataRequest, 9, "0202620000000000", None),
        (MetadataRequest, 9, "828000" + "0262000000000000"[:12] + "00", None),
        (MetadataRequest, 9, "8280808000" + "02620000000000", None),
        (MetadataRequest, 9, "828080808000" + "02620000000000", "more than 5 bytes"),
        (MetadataRequest, 9, "8280", "truncated"),
        (ApiVersionsRequest, 3, "01010103ff", "truncated"),
        (ApiVersionsRequest, 3, "0101020301aa0501bb", None),
        (ApiVersionsRequest, 3, "0101020301aa0301bb", "tags must ascend"),
        (ApiVersionsRequest, 3, "0101020301aa0201bb", "tags must ascend"),
        (ApiVersionsRequest, 3, "0101010005ffffff", "truncated tagged field"),
        (ApiVersionsRequest, 3, "0101" + "40" + "".join(f"{tag:02x}00" for tag in range(64)), None),
        (
            ApiVersionsRequest,
            3,
            "0101" + "41" + "".join(f"{tag:02x}00" for tag in range(65)),
            "at most 64",
        ),
        (DescribeTopicPartitionsRequest, 0, "01000000010001", "truncated"),
        (DescribeTopicPartitionsRequest, 0, "0100000001ff00", None),
        (DescribeTopicPartitionsRequest, 0, "01000000010102610000000100" + "00", None),
    ],
)
def test_lengths_nulls_and_tags(message: Any, version: int, data: str, problem: str | None) -> None:
    """Each way in which lengths, nulls and tags can be wrong, beside what Kafka accepts."""
    if problem is None:
        codec(message, version).decode(bytes.fromhex(data))
    else:
        with pytest.raises(DecodeError, match=problem):
            codec(message, version).decode(bytes.fromhex(data))


def test_tagged_fields_are_written_only_when_they_differ() -> None:
    """A tagged field with its default takes no bytes; others come in the order of their tags."""
    ours = codec(CreateTopicsResponse, 5)
    plain = ours.encode(CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
    value = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", topic_config_error_code=29)]
    )
    encoded = ours.encode(value)
    assert plain[:-2] + b"\x01\x00\x02\x00\x1d\x00" == encoded
    assert value == ours.decode(encoded)


def test_known_tags_with_wrong_sizes_or_order_are_refused() -> None:
    """A known tagged field must fill the size that precedes it."""
    ours = codec(ApiVersionsResponse, 3)
    start = "00000100000000"
    good = "0201080000000000000007030201ff"[2:]
    with pytest.raises(DecodeError):
        ours.decode(bytes.fromhex(start + good))
    for tail, problem in (
        ("0101070000000000000007", "finalized_features_epoch: a size that is not its own"),
        ("0203010101080000000000000007", "truncated or out of order"),
        ("0101090000000000000007", "truncated or out of order"),
        ("4101080000000000000007", "more than 64 tagged fields"),
    ):
        with pytest.raises(DecodeError, match=problem):
            ours.decode(bytes.fromhex(start + tail))
    for tail in (
        "0101080000000000000007",
        "810001080000000000000007",
        "02010800000000000000070903aabbcc",
    ):
        decoded = ours.decode(bytes.fromhex(start + tail))
        assert 7 == decoded.finalized_features_epoch
