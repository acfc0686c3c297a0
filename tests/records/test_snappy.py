"""Snappy beside two other implementations: Java's, as stored bytes, and the format description."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.records.batch import Compression, read_batch
from kgw.records.compression import XERIAL_MAGIC, compress, decompress
from kgw.records.limits import DEFAULT_LIMITS
from kgw.records.message_set import read_message_set
from kgw.records.reader import read_records
from tests.records import snappy_format

JAVA = Path(__file__).parent / "java" / "snappy.jsonl"
"""Written by java/write.sh."""

START_MS = 1_700_000_000_000


def of_java(*forms: str) -> list[Any]:
    """Return what Java made in some forms."""
    lines = map(json.loads, JAVA.read_text().splitlines())
    return [
        pytest.param(one, base64.b64decode(one["bytes"]), id=f"{one['content']}, {one['form']}")
        for one in lines
        if one["form"] in forms
    ]


def blocks(data: bytes) -> list[bytes]:
    """Return the blocks within Java's framing: a header, then each with its length before it."""
    assert data.startswith(XERIAL_MAGIC + bytes([0, 0, 0, 1, 0, 0, 0, 1]))
    found, position = [], 16
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        found.append(data[position + 4 : end])
        position = end
    return found


@pytest.mark.parametrize(("made", "data"), of_java("block", "stream of 32 KB", "stream of 1 KB"))
def test_what_java_has_compressed_is_read(made: dict[str, Any], data: bytes) -> None:
    """Bare blocks, and streams of its framing with blocks of any size."""
    found = bytes(decompress(Compression.SNAPPY, data))
    assert (made["size"], made["sha256"]) == (len(found), sha256(found).hexdigest())


@pytest.mark.parametrize(("made", "data"), of_java("block"))
def test_the_other_implementation_reads_what_java_has_compressed(
    made: dict[str, Any], data: bytes
) -> None:
    """The one of the tests is held against Java's, too."""
    assert made["sha256"] == sha256(snappy_format.decode(data)).hexdigest()


@pytest.mark.parametrize(("made", "data"), of_java("records"))
def test_what_javas_producer_makes_is_read(made: dict[str, Any], data: bytes) -> None:
    """A batch of format 2, and message sets of the formats 0 and 1."""
    magic = int(made["content"][-1])
    expected = [
        (
            START_MS + number if magic else -1,
            f"key{number % 7}".encode(),
            f"value {number} of a hundred".encode(),
        )
        for number in range(100)
    ]
    records: Any
    if magic < 2:
        records = read_message_set(data, DEFAULT_LIMITS).messages
    else:
        records = list(read_records(read_batch(data)))
        assert [((b"number", bytes([one])),) for one in range(100)] == [
            tuple((name.encode(), value) for name, value in one.headers) for one in records
        ]
    assert expected == [(one.timestamp_ms, bytes(one.key), bytes(one.value)) for one in records]


@given(data=st.one_of(st.binary(max_size=2_000), st.text("ab", max_size=2_000).map(str.encode)))
def test_what_is_compressed_is_what_the_format_says(data: bytes) -> None:
    """In Java's framing, blocks of 32 KB at most, each of the format."""
    made = blocks(bytes(compress(Compression.SNAPPY, data)))
    assert data == b"".join(map(snappy_format.decode, made))


@pytest.mark.parametrize(("made", "data"), of_java("stream of 32 KB"))
def test_blocks_are_those_of_java(made: dict[str, Any], data: bytes) -> None:
    """As many as Java's stream has of the same content, and the same bytes in each."""
    expected = [snappy_format.decode(one) for one in blocks(data)]
    content = b"".join(expected)
    ours = blocks(bytes(compress(Compression.SNAPPY, content)))
    assert expected == [snappy_format.decode(one) for one in ours]
    assert made["size"] == len(content)


@given(data=st.one_of(st.binary(max_size=2_000), st.text("ab", max_size=2_000).map(str.encode)))
def test_what_others_compress_is_read(data: bytes) -> None:
    """A bare block, as librdkafka and Go clients write it, of literals and copies."""
    block = snappy_format.encode(data)
    assert data == snappy_format.decode(block)
    assert data == decompress(Compression.SNAPPY, block)
