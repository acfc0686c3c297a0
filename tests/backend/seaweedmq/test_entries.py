from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.seaweedmq.entries.log_entries import EntryError, append_around, read_number, walk

_FIELDS = [("ts_ns", 1, 3), ("partition_key_hash", 2, 5), ("data", 3, 12), ("key", 4, 12)]


def _message_class() -> Any:
    """Return protobuf's own LogEntry, with our field declared behind SMQ's."""
    file = descriptor_pb2.FileDescriptorProto(
        name="log_entry.proto", package="test", syntax="proto3"
    )
    message = file.message_type.add(name="LogEntry")
    for name, number, kind in [*_FIELDS, ("offset", 5, 3), ("extension", 1001, 12)]:
        message.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.LogEntry"))


LogEntry = _message_class()

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
some_bytes = st.binary(max_size=300)


@given(int64s, int32s, some_bytes, some_bytes, int64s, some_bytes)
def test_entries_are_what_protobuf_writes(
    ts_ns: int, key_hash: int, data: bytes, key: bytes, offset: int, extension: bytes
) -> None:
    """Byte for byte, and they are read again as they were."""
    output, tail = bytearray(), bytearray()
    append_around(
        output,
        tail,
        offset=offset,
        ts_ns=ts_ns,
        data_bytes=len(data),
        key=key,
        key_hash=key_hash,
        extension=extension,
    )
    written = bytes(output + data + tail)
    message = LogEntry(
        ts_ns=ts_ns,
        partition_key_hash=key_hash,
        data=data,
        key=key,
        offset=offset,
        extension=extension,
    )
    expected = message.SerializeToString(deterministic=True)
    assert len(expected).to_bytes(4, "big") + expected == written
    (entry,) = walk(written)
    assert (offset, ts_ns, data, key, key_hash, extension, 0) == tuple(
        bytes(one) if isinstance(one, memoryview) else one for one in entry
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_entries_or_an_entry_error(data: bytes) -> None:
    """Whatever stands in a file, nothing else is raised."""
    with suppress(EntryError):
        assert len(data) >= sum(1 for _ in walk(data))


def test_fields_of_later_versions_are_skipped() -> None:
    """Of every type that protobuf has today."""
    fields = bytes.fromhex("29 0102030405060708 35 01020304 38 05")
    (entry,) = walk((len(fields)).to_bytes(4, "big") + fields)
    assert (0, 0) == (entry.offset, entry.ts_ns)


def test_what_is_cut_off_is_said() -> None:
    """With the place at which it begins."""
    whole = (3).to_bytes(4, "big") + b"\x1a\x01x"
    for cut in range(1, len(whole)):
        with pytest.raises(EntryError, match="at byte 7"):
            list(walk(whole + whole[:cut]))


@pytest.mark.parametrize(
    "field", ["1a0578", "227f7878", "2901020304050607", "35010203", "08", "1a"]
)
def test_a_field_that_its_entry_ends_in_is_no_field(field: str) -> None:
    """Bytes and numbers of every length: a part of a value is never taken for the value."""
    body = bytes.fromhex(field)
    whole = (3).to_bytes(4, "big") + b"\x1a\x01x"
    with pytest.raises(EntryError, match="cut off"):
        list(walk(len(body).to_bytes(4, "big") + body + whole))


def test_numbers_of_more_than_64_bits_are_none() -> None:
    """However they go on."""
    assert ((1 << 64) - 1, 10) == read_number(b"\xff" * 9 + b"\x01", 0)
    with pytest.raises(EntryError):
        read_number(b"\xff" * 11, 0)
