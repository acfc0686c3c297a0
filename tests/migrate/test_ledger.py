from __future__ import annotations

import io
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.migrate.ledger import (
    LedgerEntry,
    LedgerFormatError,
    LogMessage,
    OldPosition,
    decode_entry,
    decode_position,
    decode_position_line,
    group_id_of,
    partition_of,
    place_of_position,
    read_log_file,
    ring_range,
    split_topic_partition,
)
from tests.migrate.old_scheme import (
    entry_value,
    json_line,
    log_entry,
    log_file,
    nested,
    plain,
    position_content,
    position_file,
    slots_directory,
    topic_partition,
)

ENTRY = LedgerEntry("orders-eu", 3, 41, 1_757_628_000_123_456_789, 512)
ENTRIES = st.builds(
    LedgerEntry,
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    st.integers(0, (1 << 31) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 31) - 1),
)


def test_topics_may_have_dashes() -> None:
    """The last dash parts topic and partition; a colon, which no topic has, goes before."""
    assert ("my-topic-7", 12) == split_topic_partition("my-topic-7-12")
    assert ("my-topic-7", 12) == split_topic_partition("my-topic-7:12")
    assert ("a-", 0) == split_topic_partition("a--0")


@pytest.mark.parametrize(
    "text", ["", "orders", "orders-", "-1", "orders-x", "a-\u0661", "a-2147483648"]
)
def test_what_names_no_partition_is_refused(text: str) -> None:
    """No partition is guessed, as the old gateway did (it took 0)."""
    with pytest.raises(LedgerFormatError):
        split_topic_partition(text)


@given(ENTRIES)
def test_entries_in_every_form(entry: LedgerEntry) -> None:
    """The topic's protobuf and its exports say the same."""
    key = topic_partition(entry).encode()
    assert entry == decode_entry(key, entry_value(entry))
    assert entry == decode_entry(None, json_line(entry).encode())
    named = {
        "TopicPartition": f"{entry.topic}:{entry.partition}",
        "KafkaOffset": entry.old_offset,
        "Timestamp": entry.ts_ns,
        "Size": entry.size_bytes,
    }
    assert entry == decode_entry(key, json.dumps(named).encode())


def test_an_entry_as_protobufs_own_library_writes_it() -> None:
    """A LogEntry around a RecordValue, made by that library from SeaweedFS's schema, is read."""
    content = bytes.fromhex(
        "08e79b8e95a9ab96b21810f9ffffffffffffffff011a680a120a0c6b61666b615f6f6666736574120218000a130a"
        "0c6d6573736167655f73697a6512031080040a1b0a0d736d715f74696d657374616d70120a18959a8e95a9ab96b2"
        "180a200a0f746f7069635f706172746974696f6e120d3a0b6f72646572732d65752d33220b6f72646572732d6575"
        "2d332809"
    )
    stored = len(content).to_bytes(4, "big") + content
    (message,) = read_log_file(io.BytesIO(stored).read)
    assert isinstance(message, LogMessage)
    assert ENTRY._replace(old_offset=0) == decode_entry(message.key, message.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "empty"),
        (None, "empty"),
        (b"{", "not JSON"),
        (b"{}", "topic_partition is missing"),
        (b'{"topic_partition": 5}', "kafka_offset is missing"),
        (json_line(ENTRY).replace("41", "-41").encode(), "out of range"),
        (json_line(ENTRY).replace("41", "true").encode(), "no whole number"),
        (json_line(ENTRY).replace("41", '"41"').encode(), "no whole number"),
        (json_line(ENTRY).replace("512", "4294967296").encode(), "message_size is out of range"),
        (b"\xff", "cut short"),
        (b"\x0a\x7f", "cut short"),
        (b"\xff" * 11, "too long"),
        (b"\x0b", "not protobuf"),
        (plain(1, 5), "neither JSON nor a RecordValue"),
        (nested(2, b""), "neither JSON nor a RecordValue"),
        (nested(1, nested(1, b"\xff") + nested(2, b"")), "not UTF-8"),
        (nested(1, plain(1, 1)), "not a field"),
        (nested(1, nested(1, b"kafka_offset")), "topic_partition is missing"),
    ],
)
def test_damaged_entries(value: bytes | None, message: str) -> None:
    """What is no entry is refused with the reason."""
    with pytest.raises(LedgerFormatError, match=message):
        decode_entry(None, value)


def test_key_that_names_another_partition() -> None:
    """Key and value must speak of one partition."""
    with pytest.raises(LedgerFormatError, match="the key says 'orders-eu-4'"):
        decode_entry(b"orders-eu-4", entry_value(ENTRY))


@given(st.binary())
def test_nothing_but_the_format_error_is_raised(content: bytes) -> None:
    """Arbitrary bytes are an entry or a LedgerFormatError, as file, entry and position."""
    for decode in (lambda: decode_entry(content, content), lambda: decode_position(content)):
        with suppress(LedgerFormatError):
            decode()
    list(read_log_file(io.BytesIO(content).read))


@given(st.lists(ENTRIES, max_size=5))
def test_log_files(entries: list[LedgerEntry]) -> None:
    """A log file gives back its messages with their places; the control message is left out."""
    content = log_file(entries)
    found = list(read_log_file(io.BytesIO(content).read))
    assert entries == [
        decode_entry(one.key, one.value) for one in found if isinstance(one, LogMessage)
    ]
    assert len(entries) == len(found)


def test_damaged_log_files() -> None:
    """A damaged message is passed over; a cut or impossible length ends the file: both are said."""
    damaged = b"\0\0\0\2\xff\xff"
    content = log_file([ENTRY]) + damaged + log_file([ENTRY])
    kinds = [type(one) for one in read_log_file(io.BytesIO(content).read)]
    assert [LogMessage, LedgerFormatError, LogMessage] == kinds
    for tail, message in (
        (b"\0\0", "not the length"),
        (b"\x7f\0\0\0", "not the length"),
        (log_entry(1, b"k", b"v")[:-1], "ends within a message"),
    ):
        *_, last = read_log_file(io.BytesIO(content + tail).read)
        assert isinstance(last, LedgerFormatError)
        assert f"byte {len(content)}: " in str(last)
        assert message in str(last)


def test_positions_of_groups() -> None:
    """All three forms of a stored position are understood; times are not taken for offsets."""
    assert 1000 == decode_position(position_content(1000))
    assert 1000 == decode_position((1000).to_bytes(8, "big"))
    assert 1000 == decode_position(b'{"type":"offset","value":1000,"committed_at":1,"metadata":""}')
    for content, message in (
        (b'{"type":"timestamp","value":5}', "not an offset"),
        (b'{"type":"offset","value":1757628000123456789}', "a time of a native subscriber"),
        (b"\xff" * 8, "out of range"),
        (b"1234567", "not a JSON object"),
        (b"", "not JSON"),
    ):
        with pytest.raises(LedgerFormatError, match=message):
            decode_position(content)


def test_lines_of_positions() -> None:
    """A line names group, topic, partition and offset; the group under either of its names."""
    line = b'{"group": "kafka-cg-billing", "topic": "orders", "partition": 1, "offset": 5}'
    expected = OldPosition("billing", "orders", 1, 5)
    assert expected == decode_position_line(line)
    assert expected == decode_position_line(line.replace(b"kafka-cg-", b""))
    for changed in (b"[]", line.replace(b'"orders"', b"1"), line.replace(b"5", b"-5")):
        with pytest.raises(LedgerFormatError):
            decode_position_line(changed)


def test_places_of_positions() -> None:
    """Paths of the filer name group, topic and partition: by ring range, or by number."""
    path = position_file("kafka-cg-billing", "orders-eu", 2)
    assert ("billing", "orders-eu", 2) == place_of_position(tuple(path.split("/")))
    path = ".meta/consumer_offsets/billing/orders-eu/2/offset"
    assert ("billing", "orders-eu", 2) == place_of_position(tuple(path.split("/")))
    for other in ("topic.conf", "t/v/0000-0630/consumers/g.offset", "t/v/x/consumers/g.offset"):
        assert place_of_position(tuple(other.split("/"))) is None


@pytest.mark.parametrize(
    ("partition", "start", "stop", "directory"),
    [(0, 0, 31, "0000-0031"), (1, 32, 63, "0032-0063"), (77, 2464, 2495, "2464-2495")],
)
def test_ring_range_of_a_partition(partition: int, start: int, stop: int, directory: str) -> None:
    """Kafka partition N is ring range [N*32, N*32 + 31], named as SeaweedMQ names directories."""
    assert (start, stop) == ring_range(partition)
    assert partition == partition_of(directory)


@given(st.integers(min_value=0, max_value=1 << 26))
def test_ranges_lead_back_and_do_not_overlap(partition: int) -> None:
    """Every range names its own partition, and the next one begins where it ends."""
    assert partition == partition_of(slots_directory(partition))
    assert ring_range(partition)[1] + 1 == ring_range(partition + 1)[0]


@pytest.mark.parametrize("directory", ["0000-0032", "0001-0032", "0000-0630", "0064-0063"])
def test_ranges_of_no_single_partition_are_refused(directory: str) -> None:
    """A range of another division of the ring is no partition: it is not rounded to one."""
    with pytest.raises(ValueError, match="not those of one Kafka partition"):
        partition_of(directory)


@pytest.mark.parametrize(
    "name", ["", "0032", "0032-", "-0063", "-32--1", "a-b", "0-1-2", "\u0661-2"]
)
def test_other_names_are_no_ranges(name: str) -> None:
    """What is not two numbers with a dash between is refused."""
    with pytest.raises(ValueError, match="range of slots"):
        partition_of(name)


@given(st.text(min_size=1))
def test_group_names_lead_back(group_id: str) -> None:
    """A group is called kafka-cg-GROUP in SeaweedMQ, and the name leads back to it."""
    assert group_id == group_id_of(f"kafka-cg-{group_id}")


def test_group_names_without_prefix_are_taken_as_they_are() -> None:
    """Gateways that stored groups under their own ids are understood, too."""
    assert "billing" == group_id_of("billing")
    assert "kafka-cg-" == group_id_of("kafka-cg-")
