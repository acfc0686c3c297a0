"""Gateways that are told to stop while clients are busy: campaign K2."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.client import AsyncClient
from kgw.errors import ErrorCode
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.testing.batches import read_stored
from tests import patience
from tests.handlers.support import batch, fetch_request, produce_request
from tests.hostile import attacks

if TYPE_CHECKING:
    from kgw.protocol.schema import Request
    from kgw.testing.process import GatewayProcess

PRODUCERS = 4
POLLS = 20
DRAIN_S = 10.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(streams: Streams, api_key: int, version: int) -> Any:
    """Return the next response; raises IncompleteReadError when the connection has ended."""
    size = int.from_bytes(await streams[0].readexactly(4), "big")
    return decode_response(await streams[0].readexactly(size), api_key, version)[1]


async def ask(streams: Streams, request: Request, version: int) -> Any:
    """Send a request and return its response."""
    streams[1].write(b"".join(request_frame(request, version, 7, "drain")))
    return await answer(streams, request.api_key, version)


async def high_watermark(address: attacks.Address) -> int:
    """Return where the log of orders ends, creating both topics where they are missing."""
    async with attacks.connected(address) as streams:
        names = [MetadataRequestTopic(name=name) for name in ("orders", "quiet")]
        await ask(streams, MetadataRequest(topics=names), 4)
        end = await ask(streams, fetch_request(0, max_wait_ms=0, max_bytes=1), 11)
        return int(end.responses[0].partitions[0].high_watermark)


async def read_log(address: attacks.Address) -> dict[int, bytes]:
    """Return all values of the log of orders, by their offsets."""
    found: dict[int, bytes] = {}
    offset = 0
    async with AsyncClient([address]) as client:
        await client.topic("orders")
        end = (await client.bounds("orders", [0]))[0].latest
        while offset < end:
            fetched = await client.fetch("orders", {0: offset}, partition_max_bytes=8 << 20)
            for record in read_stored([one.records for one in fetched]):
                found[record.offset] = record.value
                offset = record.offset + 1
    return found


async def produce_until_closed(
    address: attacks.Address, value: bytes, has_begun: asyncio.Event
) -> list[int]:
    """Keep five one-record requests in flight; return the offsets that were acknowledged.

    Says when the first of them was.
    """
    offsets: list[int] = []
    request = produce_request(batch(value))
    frame = b"".join(request_frame(request, 9, 7, "drain"))
    async with attacks.connected(address) as streams:
        streams[1].write(frame * 5)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                response = await answer(streams, request.api_key, 9)
                partition = response.responses[0].partition_responses[0]
                assert ErrorCode.NONE == partition.error_code
                offsets.append(partition.base_offset)
                has_begun.set()
                streams[1].write(frame)
    return offsets


async def poll_until_closed(address: attacks.Address) -> int:
    """Begin a long poll of an empty partition; return how many answers came before the end."""
    async with attacks.connected(address) as streams:
        request = fetch_request(name="quiet", max_wait_ms=60_000)
        streams[1].write(b"".join(request_frame(request, 11, 7, "drain")))
        answers = 0
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await answer(streams, request.api_key, 11)
                answers += 1
        return answers


class Drains(NamedTuple):
    """What came of a number of stops; how long one took is for the full size to judge."""

    acknowledged: int
    longest_s: float


async def stop_under_load(gateway: GatewayProcess, stops: int) -> Drains:
    """Start and stop a gateway under load, so often, and once more without.

    Raises AssertionError unless it ends with 0 each time, everybody's connection ends, and all that
    was acknowledged is there.
    """
    acknowledged: dict[int, bytes] = {}
    longest_s = 0.0
    for stop in range(stops):
        gateway.start()
        address = (gateway.host, gateway.port)
        assert await high_watermark(address) > max(acknowledged, default=-1)
        polls = [asyncio.ensure_future(poll_until_closed(address)) for _ in range(POLLS)]
        values = [b"%d of stop %d" % (index, stop) for index in range(PRODUCERS)]
        begun = [asyncio.Event() for _ in values]
        producers = [
            asyncio.ensure_future(produce_until_closed(address, value, has_begun))
            for value, has_begun in zip(values, begun, strict=True)
        ]
        await asyncio.gather(*(one.wait() for one in begun))
        await asyncio.sleep(0.3)
        assert not any(one.done() for one in (*polls, *producers))
        began = time.monotonic()
        assert 0 == await asyncio.to_thread(gateway.stop, patience.seconds(3 * DRAIN_S))
        longest_s = max(longest_s, time.monotonic() - began)
        ended = await asyncio.gather(*polls)
        assert max(ended) <= 1
        for value, offsets in zip(values, await asyncio.gather(*producers), strict=True):
            assert len(offsets) > 0
            assert offsets == sorted(set(offsets))
            assert not acknowledged.keys() & set(offsets)
            acknowledged |= dict.fromkeys(offsets, value)
    gateway.start()
    found = await read_log((gateway.host, gateway.port))
    assert [] == [offset for offset, value in acknowledged.items() if found.get(offset) != value]
    assert 0 == await asyncio.to_thread(gateway.stop, patience.seconds(3 * DRAIN_S))
    return Drains(len(acknowledged), longest_s)
