"""Bytes of a segment, through the page cache and past it."""

from __future__ import annotations

import os

import pytest

from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.embedded.read.source import Files
from tests.backend.embedded.driver import DIRECT, Driver

LEAST_BYTES = 8_192


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 5000])
@pytest.mark.parametrize("size_bytes", [LEAST_BYTES - 1, LEAST_BYTES, 3 * LEAST_BYTES])
def test_much_that_is_not_in_memory_is_read_past_it(position: int, size_bytes: int) -> None:
    """From any place to any other; little is not, as it takes longer so."""
    driver = Driver(DIRECT)
    driver.append(os.urandom(8 * LEAST_BYTES))
    segment = driver.log().segments[0]
    wanted = bytes(driver.fs.content(segment.log_path))[position : position + size_bytes]
    files = Files(ReadBuffers(2), least_direct_bytes=LEAST_BYTES)
    driver.fs.drop_page_cache()
    assert files.peek(segment, position, size_bytes) is None
    assert wanted == bytes(files.read(segment, position, size_bytes))
    is_direct = size_bytes >= LEAST_BYTES
    assert is_direct == driver.fs.direct_reads
    assert is_direct == (files.peek(segment, position, size_bytes) is None)
    segment.read_bytes(0, segment.size_bytes)
    assert wanted == bytes(files.read(segment, position, size_bytes))
    assert is_direct == driver.fs.direct_reads
    peeked = files.peek(segment, position, size_bytes)
    assert peeked is not None
    assert wanted == bytes(peeked)


def test_a_read_ends_where_the_file_ends() -> None:
    """Whoever compares what came notices what is missing."""
    driver = Driver(DIRECT)
    driver.append(b"x" * LEAST_BYTES)
    segment = driver.log().segments[0]
    files = Files(ReadBuffers(2), least_direct_bytes=1)
    for _ in range(2):
        assert segment.size_bytes - 10 == len(files.read(segment, 10, 2 * LEAST_BYTES))
        driver.fs.drop_page_cache()
