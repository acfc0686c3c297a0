"""What hostile clients do, each as a coroutine against a host and port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any

from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class
from kgw.protocol.framing import encode_request_header, request_frame
from tests.protocol.random_messages import random_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from random import Random

API_VERSIONS_V0 = bytes.fromhex("0000000a00120000") + b"\0\0\0\7\xff\xff"
TLS_HELLO = bytes.fromhex("16030102000100 01fc0303".replace(" ", "")) + bytes(500)

Address = tuple[str, int]


@contextlib.asynccontextmanager
async def connected(
    address: Address,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect, and close whatever happens."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ended(reader: asyncio.StreamReader, within_s: float) -> bool:
    """Whether the server closes the connection in time, whatever it says before."""
    try:
        async with asyncio.timeout(within_s):
            while await reader.read(1 << 16):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


async def answered(address: Address) -> bool:
    """Whether a new connection gets an answer, rather than being closed."""
    async with connected(address) as (reader, writer):
        writer.write(API_VERSIONS_V0)
        try:
            return bool(await reader.read(4))
        except ConnectionError:
            return False


# --- garbage -------------------------------------------------------------------------------------


def garbage(random: Random) -> bytes:
    """Return bytes that no Kafka client sends first."""
    return random.choice(
        (
            b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
            b"POST /topics HTTP/1.1\r\n\r\n" + random.randbytes(100),
            TLS_HELLO,
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"\r\n\r\n\r\n\r\n",
            bytes(4 * random.randint(1, 50)),
            b"\xff" * random.randint(8, 300),
            # A length that is believable, then noise: the API key gives it away.
            struct.pack(">ih", random.randint(100, 10_000), random.randint(1000, 30_000))
            + random.randbytes(20),
            struct.pack(">i", random.randint(-(2**31), -1)) + random.randbytes(50),
        )
    )


async def send_garbage(address: Address, random: Random, count: int, within_s: float) -> int:
    """Open connections that begin with garbage; return how many were still open after a while."""
    left_open = 0
    for _ in range(count):
        async with connected(address) as (reader, writer):
            writer.write(garbage(random))
            left_open += not await ended(reader, within_s)
    return left_open


# --- mutations of valid requests -----------------------------------------------------------------


def _mutated(frame: bytes, random: Random) -> bytes:
    """Return a frame with one thing wrong; its length is right unless that is what is wrong."""
    body = bytearray(frame[4:])
    match random.randint(0, 7):
        case 0:
            del body[random.randint(0, len(body)) :]
        case 1:
            body += random.randbytes(random.randint(1, 30))
        case 2:
            return struct.pack(">i", len(body) + random.randint(-8, 8)) + bytes(body)
        case 3:
            place = random.randrange(len(body))
            body[place] ^= 1 << random.randint(0, 7)
        case 4:
            place = random.randrange(len(body))
            body[place : place + 4] = random.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
        case 5:
            place = random.randrange(len(body))
            body[place:place] = body[place : place + random.randint(1, 40)]
        case 6:
            place = random.randrange(len(body))
            del body[place : place + random.randint(1, 8)]
        case _:
            place = random.randrange(len(body))
            body[place : place + 2] = random.choice((b"\xc3\x28", b"\xed\xa0", b"\xff\xfe"))
    return struct.pack(">i", len(body)) + bytes(body)


def mutated_request(random: Random) -> bytes:
    """Return a request of a served API and version, with one mutation."""
    api_key = random.choice(list(HANDLERS))
    handler = HANDLERS[api_key]
    version = random.randint(handler.min_version, handler.max_version)
    first, last = request_class(api_key).valid_versions
    version = min(max(version, first), last)
    message: Any = random_message(request_class(api_key), version, random)
    frame = b"".join(request_frame(message, version, random.randint(0, 1 << 30), "hostile"))
    return _mutated(frame, random)


async def send_mutations(address: Address, random: Random, count: int) -> int:
    """Send mutated requests, a new connection whenever one was closed. Returns how many closed."""
    sent = closed = 0
    while sent < count:
        async with connected(address) as (reader, writer):
            while sent < count:
                writer.write(mutated_request(random))
                sent += 1
                # Most are answered or closed within a millisecond; who waits is left alone.
                try:
                    async with asyncio.timeout(0.02):
                        if not await reader.read(1 << 16):
                            closed += 1
                            break
                except TimeoutError:
                    break
                except ConnectionError:
                    closed += 1
                    break
    return closed


# --- allocation bombs ----------------------------------------------------------------------------


def _frame(api_key: ApiKey, version: int, body: bytes) -> bytes:
    header = encode_request_header(api_key, version, 7, "bomb")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _varint(value: int) -> bytes:
    """Return the encoding of a number, also of one that is too large."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


# What stands before the count of elements in a request, by API and version.
_BEFORE_THE_COUNT = (
    (ApiKey.METADATA, 1, b""),
    (ApiKey.DELETE_TOPICS, 1, b""),
    (ApiKey.CREATE_TOPICS, 1, b""),
    (ApiKey.LIST_OFFSETS, 1, b"\xff" * 4),
    (ApiKey.FETCH, 4, b"\xff" * 4 + bytes(13)),
    (ApiKey.PRODUCE, 3, b"\xff" * 4 + bytes(4)),
)


def bombs(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield named frames of about `size` bytes, each made to become as much memory as it can."""
    yield "claims 100 MB, sends nothing", struct.pack(">i", 100 << 20)
    yield "claims 100 MB, sends a header", struct.pack(">ihhi", 100 << 20, 3, 1, 7)
    yield "claims 100 MB of Produce", struct.pack(">ihhi", 100 << 20, 0, 9, 7) + bytes(size)
    header = struct.pack(">hhih", 18, 3, 7, -1)
    tags = b"".join(_varint(tag) + b"\0" for tag in range(size // 3))
    for name, count in (("honest", size // 3), ("2**31", 2**31 - 1), ("2**35", 2**35 - 1)):
        body = header + _varint(count) + tags
        yield f"{name} tagged fields in the header", struct.pack(">i", len(body)) + body
    same = header + _varint(size // 2) + b"\1\0" * (size // 2)
    yield "one tag many times in the header", struct.pack(">i", len(same)) + same
    for count in (size // 2, 2**31 - 1, -2):
        for api_key, version, before in _BEFORE_THE_COUNT:
            body = before + struct.pack(">i", count) + bytes(size)
            yield f"{api_key.name} of {count} empty elements", _frame(api_key, version, body)
    names = b"".join(b"\0\x08%08d" % index for index in range(size // 10))
    for api_key in (ApiKey.METADATA, ApiKey.DELETE_TOPICS):
        body = struct.pack(">i", size // 10) + names + bytes(4)
        yield f"{api_key.name} of {size // 10} names", _frame(api_key, 1, body)
    for count in (2**32 - 1, 2**28, 0x7F):
        body = _varint(count) + b"\1\1" * (size // 2)
        for api_key, version in (
            (ApiKey.METADATA, 9),
            (ApiKey.DELETE_TOPICS, 4),
            (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
        ):
            yield f"flexible {api_key.name} of {count}", _frame(api_key, version, body)
    yield "endless varint", _frame(ApiKey.METADATA, 9, b"\xff" * size)
    batch = struct.pack(
        ">qiibIhiqqqhii", 0, 2**31 - 1, 0, 2, 0, 4, 2**31 - 1, 0, 0, 1, 0, 0, 2**31 - 1
    )
    records = batch + bytes(size)
    topic = b"\0\1t" + struct.pack(">iii", 1, 0, len(records)) + records
    produce = b"\xff\xff" + b"\xff\xff" + bytes(4) + struct.pack(">i", 1) + topic
    yield "Produce of a batch that claims two billion records", _frame(ApiKey.PRODUCE, 3, produce)


async def send_bomb(address: Address, frame: bytes, wait_s: float) -> None:
    """Send one frame and wait until it is answered, refused, or the time is over."""
    async with connected(address) as (reader, writer):
        writer.write(frame)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(wait_s):
                await writer.drain()
                await reader.read(1 << 16)


# --- slow, many, greedy --------------------------------------------------------------------------


async def drip(address: Address, interval_s: float) -> float:
    """Send a request a byte at a time; returns after how many seconds that was ended."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with connected(address) as (reader, writer):
        writer.write(struct.pack(">ihhi", 10_000, 3, 1, 7))
        with contextlib.suppress(ConnectionError):
            while not await ended(reader, interval_s):
                writer.write(b"\0")
    return loop.time() - began


async def never_read(address: Address, requests: bytes) -> float:
    """Ask and never read; returns after how many seconds the connection was ended."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    client = socket.socket()
    # The kernel would take megabytes in the client's name.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    try:
        await loop.sock_connect(client, address)
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(client, requests)
            while True:
                await asyncio.sleep(0.1)
                await loop.sock_sendall(client, API_VERSIONS_V0)
    finally:
        client.close()
    return loop.time() - began


async def flood(address: Address, per_second: int, seconds: float, least: int) -> int:
    """Connect at a pace, stay for a moment, go away with a reset; returns how many began.

    Goes on until there were the least that are wanted, however slow the machine is.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    opened = 0
    held: list[socket.socket] = []
    reset = struct.pack("ii", 1, 0)
    while (elapsed_s := loop.time() - began) < seconds or opened < least:
        for one in held:
            one.close()
        held.clear()
        # A client that cannot keep the pace must not make up for it in one burst.
        for _ in range(min(int(elapsed_s * per_second) - opened, 250)):
            one = socket.socket()
            one.setblocking(False)
            # Else each leaves its port unusable for a minute.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            one.connect_ex(address)
            held.append(one)
        opened += len(held)
        await asyncio.sleep(0.05)
    for one in held:
        one.close()
    return opened


LONG_POLL_EVERY = 500
LONG_POLL_MS = 10
METADATA_OF_ORDERS = _frame(ApiKey.METADATA, 1, struct.pack(">ih", 1, 6) + b"orders")


def _long_poll(correlation_id: int) -> bytes:
    """Return a Fetch at the end of an empty partition, which waits for records."""
    limits = struct.pack(">iiiib", -1, LONG_POLL_MS, 1, 1 << 20, 0)
    topic = struct.pack(">ih", 1, 6) + b"orders" + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    body = struct.pack(">hhih", ApiKey.FETCH, 4, correlation_id, -1) + limits + topic
    return struct.pack(">i", len(body)) + body


async def pipeline(address: Address, requests: int) -> list[int]:
    """Send many requests before reading anything; returns the correlation ids of the answers."""
    async with connected(address) as (reader, writer):
        for number in range(requests):
            if number % LONG_POLL_EVERY:
                writer.write(API_VERSIONS_V0[:8] + struct.pack(">ih", number, -1))
            else:
                writer.write(_long_poll(number))
        ids = []
        for _ in range(requests):
            size = int.from_bytes(await reader.readexactly(4), "big")
            ids.append(int.from_bytes((await reader.readexactly(size))[:4], "big"))
        return ids
