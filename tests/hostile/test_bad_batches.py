"""Campaign P5: damaged batches and headers that lie, against a gateway process.

Short forms run always, of batches without compression; the full ones are of all codecs.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.errors import ErrorCode
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.fetch import FetchResponse
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.produce import ProduceResponse
from kgw.records.batch import Compression, read_batch, split_batches
from tests.handlers.support import fetch_request, produce_request
from tests.hostile import attacks
from tests.hostile.bad_batches import (
    KINDS,
    PASS_BY_THE_HEADER,
    BadBatch,
    flips,
    good_batch,
    header_lie,
    is_readable,
    values_of,
    with_a_fitting_crc,
)
from tests.hostile.test_rules import ask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.records.batch import RecordBatch
    from tests.hostile.conftest import Attacked

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PRODUCE, FETCH = 9, 12
LIES = 500
AT_ONCE = 25
"""Bad batches between two that tell the truth."""
VALIDATED = ("kgw.validation=records",)
RECOMPRESSED = ("kgw.validation=records", "compression.type=zstd")

codecs = pytest.mark.parametrize(
    "codec",
    [
        pytest.param(Compression.NONE, marks=pytest.mark.campaign),
        *(pytest.param(one, marks=pytest.mark.full) for one in list(Compression)[1:]),
    ],
    ids=lambda codec: codec.name.lower(),
)


class Book:
    """What was sent to one topic and should be there, and what is."""

    def __init__(self, streams: Streams, topic: str, random: Random, codec: Compression) -> None:
        self._streams = streams
        self._topic = topic
        self._random = random
        self._codec = codec
        self._now_ms = time.time_ns() // 1_000_000
        self.next_sequence = 0
        self.expected: list[bytes] = []
        """The values of the batches that tell the truth, in order."""
        self.refused: list[str] = []
        """Those of them that were not taken."""
        self.codes: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        """Bad batches that were taken, by kind."""

    async def begin(self) -> None:
        """Have the topic created, and its producer known."""
        topics = [MetadataRequestTopic(name=self._topic)]
        await ask(self._streams, MetadataRequest(topics=topics), 12)
        await self.send_good()

    def lie(self, number: int) -> BadBatch:
        return header_lie(number, self._random, self._now_ms, self._codec, self.next_sequence)

    def good(self) -> bytearray:
        return good_batch(self._random, self._now_ms, self._codec)

    async def send_good(self) -> None:
        content = good_batch(self._random, self._now_ms, self._codec, self.next_sequence)
        (code,) = await self._produce([content])
        if code is not ErrorCode.NONE:
            self.refused.append(code.name)
            return
        self.expected += values_of(content)
        self.next_sequence = read_batch(content).last_sequence + 1

    async def send_bad(self, batches: Iterable[BadBatch]) -> None:
        """Send some at once; good ones come between."""
        waiting: list[BadBatch] = []
        for bad in batches:
            waiting.append(bad)
            if len(waiting) == AT_ONCE:
                await self._send_bad(waiting)
                await self.send_good()
                waiting.clear()
        await self._send_bad(waiting)
        await self.send_good()

    async def _send_bad(self, batches: list[BadBatch]) -> None:
        codes = await self._produce([one.content for one in batches])
        for bad, code in zip(batches, codes, strict=True):
            self.codes[code.name] += 1
            if code is ErrorCode.NONE:
                self.passed[bad.kind] += 1
                taken = read_batch(bad.content)
                if taken.has_producer_id:
                    self.next_sequence = taken.last_sequence + 1

    async def _produce(self, contents: list[bytearray]) -> list[ErrorCode]:
        reader, writer = self._streams
        for number, content in enumerate(contents):
            request = produce_request(content, name=self._topic)
            writer.write(b"".join(request_frame(request, PRODUCE, number, "hostile")))
        codes = []
        for number in range(len(contents)):
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            correlation_id, response = decode_response(frame, 0, PRODUCE)
            assert isinstance(response, ProduceResponse)
            assert number == correlation_id
            codes.append(ErrorCode(response.responses[0].partition_responses[0].error_code))
        return codes

    async def stored(self) -> list[RecordBatch]:
        """Return everything that the topic holds."""
        batches: list[RecordBatch] = []
        while True:
            offset = batches[-1].next_offset if batches else 0
            request = fetch_request(offset, name=self._topic)
            response = await ask(self._streams, request, FETCH)
            assert isinstance(response, FetchResponse)
            data = response.responses[0].partitions[0]
            assert ErrorCode.NONE == data.error_code
            assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
            found = split_batches(data.records or b"")
            if not found:
                return batches
            batches += found


def damaged(batches: list[RecordBatch]) -> list[RecordBatch]:
    """Return those that somebody would stumble over."""
    return [one for one in batches if not one.crc_matches() or not is_readable(one.buffer)]


async def holds_exactly_the_good(book: Book) -> None:
    """Hold the topic to what P5 asks: nothing damaged stored, nothing valid refused."""
    batches = await book.stored()
    assert [] == damaged(batches)
    assert {} == book.passed
    assert [] == book.refused
    assert book.expected == [value for one in batches for value in values_of(one.buffer)]


@codecs
@pytest.mark.parametrize(
    "attacked", [VALIDATED, RECOMPRESSED], indirect=True, ids=["as is", "zstd"]
)
async def test_no_flipped_bit_is_stored(attacked: Attacked, codec: Compression) -> None:
    """Each bit of a batch of 1 KB but the leader epoch's, which the server writes itself."""
    async with attacks.connected(attacked.address) as streams:
        book = Book(streams, "flips", Random(51), codec)
        await book.begin()
        content = book.good()
        await book.send_bad(flips(content))
        print(f"{codec.name}: {len(content)} bytes, {book.codes}")
        assert sum(book.codes.values()) == (len(content) - 4) * 8 >= 8_000
        await holds_exactly_the_good(book)
    assert [] == attacked.bugs()


@codecs
@pytest.mark.parametrize(
    "attacked", [VALIDATED, RECOMPRESSED], indirect=True, ids=["as is", "zstd"]
)
async def test_no_lie_is_stored(attacked: Attacked, codec: Compression) -> None:
    """Whatever a header says, under a CRC that fits, what is stored is what it says."""
    async with attacks.connected(attacked.address) as streams:
        book = Book(streams, "lies", Random(52), codec)
        await book.begin()
        kinds: Counter[str] = Counter()
        for start in range(0, LIES, AT_ONCE):
            lies = [book.lie(number) for number in range(start, start + AT_ONCE)]
            kinds.update(one.kind for one in lies)
            await book.send_bad(lies)
        print(f"{codec.name}: {kinds}, {book.codes}")
        assert set(KINDS) == set(kinds)
        assert sum(book.codes.values()) == LIES
        await holds_exactly_the_good(book)
    assert [] == attacked.bugs()


@codecs
async def test_what_passes_by_the_header_can_be_skipped(
    attacked: Attacked, codec: Compression
) -> None:
    """Without kgw.validation=records some lies are stored, of the kinds that are documented.

    `kgw consume --skip-damaged` reads all that tell the truth.
    """
    async with attacks.connected(attacked.address) as streams:
        book = Book(streams, "lies", Random(53), codec)
        await book.begin()
        for number in range(LIES):
            # One at a time: one that is taken moves the sequence of what follows.
            await book.send_bad([book.lie(number)])
        print(f"{codec.name} by the header: {book.passed}, {book.codes}")
        assert [] == book.refused
        assert set(book.passed) <= PASS_BY_THE_HEADER
        assert book.passed.total() >= LIES // 10
        batches = await book.stored()
        bad = damaged(batches)
        assert len(bad) > 0
    address = "{}:{}".format(*attacked.address)
    command = ["consume", "lies", "--skip-damaged", "--format", "base64", "-b", address]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kgw", *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    read, complaint = await process.communicate()
    assert ExitCode.DAMAGED == process.returncode, complaint
    assert set(book.expected) <= {b64decode(line) for line in read.splitlines()}
    assert [] == attacked.bugs()


@pytest.mark.campaign
async def test_the_control_stores_what_is_damaged(attacked: Attacked) -> None:
    """Flips before the CRC was made, which the header does not show: the judge finds them."""
    async with attacks.connected(attacked.address) as streams:
        book = Book(streams, "flips", Random(54), Compression.NONE)
        await book.begin()
        content = book.good()
        payload = [bad for bad in flips(content) if bad.content[:61] == content[:61]]
        await book.send_bad(with_a_fitting_crc(bad) for bad in payload[:320])
        assert book.passed.total() > 250
        assert len(damaged(await book.stored())) > 10
        with pytest.raises(AssertionError):
            await holds_exactly_the_good(book)
