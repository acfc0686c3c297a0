from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING

import pytest

from kgw.client import (
    CannotConnectError,
    Connection,
    ConnectionLostError,
    NotKafkaError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from kgw.client.api_support import api_support
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import peek_request_header, response_frame
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.client.serving import ServedGateway
from tests.unclosed import unclosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kgw.protocol.schema import Response


@asynccontextmanager
async def scripted_server(
    answer: Callable[[bytes], bytes | Awaitable[bytes] | None],
    ended: asyncio.Event | None = None,
) -> AsyncIterator[int]:
    """Serve a script: it is given each frame and returns bytes to send, or None to hang up.

    `ended` is set when a connection has ended.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                reply = answer(await reader.readexactly(size))
                if isawaitable(reply):
                    reply = await reply
                if reply is None:
                    break
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            if ended is not None:
                ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def pass_turns(count: int) -> None:
    """Let the loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


def reply(frame: bytes, message: Response, version: int) -> bytes:
    """Return the bytes that answer a request."""
    _, _, correlation_id = peek_request_header(memoryview(frame))
    return b"".join(response_frame(message, version, correlation_id))


def versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """Return an ApiVersions answer with these APIs."""
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=ApiKey[name], min_version=first, max_version=last)
            for name, (first, last) in ranges.items()
        ],
    )


async def test_the_highest_common_version_is_spoken() -> None:
    """Versions are negotiated once, and every request uses the highest that both sides have."""
    async with ServedGateway() as served:
        connection = await Connection.open(served.host, served.port)
        answer = await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert 13 == connection.spoken_version(MetadataRequest)
        assert 5 == connection.spoken_version(MetadataRequest, maximum=5)
        assert [served.port] == [broker.port for broker in answer.brokers]
        await connection.aclose()
        assert not connection.is_open


async def test_a_server_that_does_not_know_the_version_says_what_it_knows() -> None:
    """ApiVersions is asked again in the version that the refusal names (KIP-511)."""
    asked = []

    def answer(frame: bytes) -> bytes:
        _, version, _ = peek_request_header(memoryview(frame))
        asked.append(version)
        message = versions(API_VERSIONS=(0, 2), METADATA=(0, 1))
        if version > 2:
            message.error_code = 35
            return reply(frame, message, 0)
        return reply(frame, message, version)

    async with scripted_server(answer) as port:
        connection = await Connection.open("127.0.0.1", port)
        assert [4, 2] == asked
        assert (0, 1) == connection.versions[ApiKey.METADATA]
        await connection.aclose()


async def test_an_api_in_no_common_version_is_refused_before_it_is_sent() -> None:
    """The error says what each side has."""
    async with scripted_server(lambda frame: reply(frame, versions(PRODUCE=(0, 2)), 4)) as port:
        connection = await Connection.open("127.0.0.1", port)
        with pytest.raises(UnsupportedApiError, match="Produce in versions 0 to 2"):
            connection.spoken_version(ProduceRequest, 3)
        with pytest.raises(UnsupportedApiError, match="does not serve Metadata"):
            connection.spoken_version(MetadataRequest)
        support = {api.name: api for api in api_support(connection.versions)}
        assert 2 == support["Produce"].spoken
        await connection.aclose()


@pytest.mark.parametrize(
    ("greeting", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"<!DOCTYPE HTML>\n", "speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks another protocol"),
        (b"\xff\xff\xff\xff", "does not speak Kafka"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "a request that was not asked"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x00\x01", "cannot be read"),
    ],
)
async def test_what_is_no_kafka_server_is_recognised(greeting: bytes, expected: str) -> None:
    """A peer that speaks something else is named, not waited for."""
    async with scripted_server(lambda _: greeting) as port:
        with pytest.raises(NotKafkaError, match=expected):
            await Connection.open("127.0.0.1", port)


async def test_a_server_that_hangs_up_is_told_apart() -> None:
    """Hanging up at the first request is what a listener with TLS does."""
    async with scripted_server(lambda _: None) as port:
        with pytest.raises(CannotConnectError, match="does it speak TLS"):
            await Connection.open("127.0.0.1", port)


async def test_a_silent_server_is_not_waited_for_long() -> None:
    """Connecting, with what belongs to it, has a time limit."""
    async with scripted_server(lambda _: b"") as port:
        connection = await Connection.open("127.0.0.1", port, negotiate=False)
        with pytest.raises(NotKafkaError, match="says nothing"):
            await connection.negotiate(timeout_s=0.01)
        await connection.aclose()


async def test_an_answer_that_does_not_come_times_out() -> None:
    """A request has a time limit, and the connection can still be used after it."""
    silent = versions(METADATA=(0, 13))

    def answer(frame: bytes) -> bytes:
        api_key, version, _ = peek_request_header(memoryview(frame))
        return reply(frame, silent, version) if api_key == ApiKey.API_VERSIONS else b""

    async with scripted_server(answer) as port:
        connection = await Connection.open("127.0.0.1", port)
        with pytest.raises(RequestTimedOutError, match="did not answer Metadata"):
            await connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=0.02)
        assert connection.is_open
        await connection.aclose()


async def test_what_waits_fails_when_the_connection_ends() -> None:
    """Every answer that is awaited fails, and nothing can be sent afterwards."""
    known = versions(METADATA=(0, 13))

    def answer(frame: bytes) -> bytes | None:
        api_key, version, _ = peek_request_header(memoryview(frame))
        return reply(frame, known, version) if api_key == ApiKey.API_VERSIONS else None

    async with scripted_server(answer) as port:
        connection = await Connection.open("127.0.0.1", port)
        futures = [connection.send(MetadataRequest(topics=[]), 13) for _ in range(3)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [ConnectionLostError] * 3 == [type(result) for result in results]
        with pytest.raises(ConnectionLostError):
            connection.send(MetadataRequest(topics=[]), 13)
        await connection.aclose()


async def test_an_unknown_host_is_told() -> None:
    """A name that resolves to nothing is another mistake than a closed port."""
    with pytest.raises(CannotConnectError, match="the host name is not known"):
        await Connection.open("no-such-host.invalid", 9092)


async def test_requests_wait_while_the_socket_is_full() -> None:
    """A server that takes no bytes holds up who wants to send more, not who waits for answers."""
    known = versions(METADATA=(0, 13))

    def answer(frame: bytes) -> bytes:
        _, version, _ = peek_request_header(memoryview(frame))
        return reply(frame, known, version)

    async with scripted_server(answer) as port:
        connection = await Connection.open("127.0.0.1", port)
        connection.pause_writing()
        waiting = asyncio.ensure_future(connection.writable())
        await asyncio.sleep(0)
        assert not waiting.done()
        connection.resume_writing()
        await waiting
        await connection.aclose()
        with pytest.raises(ConnectionLostError):
            connection.send_unanswered(MetadataRequest(topics=[]), 13)


async def test_any_request_can_be_sent() -> None:
    """Tools send what has no method of its own; the answer's class is the request's."""
    async with ServedGateway() as served:
        connection = await Connection.open(served.host, served.port)
        await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        with pytest.raises(TypeError, match="is not answered by ApiVersionsResponse"):
            await connection.ask(MetadataRequest(topics=[]), ApiVersionsResponse)
        await connection.aclose()


async def test_apis_of_a_newer_kafka_are_listed_by_number() -> None:
    """What this client has no messages for is shown all the same."""
    answer = versions(VOTE=(0, 2))
    answer.api_keys.append(ApiVersion(api_key=999, min_version=0, max_version=1))
    async with scripted_server(lambda frame: reply(frame, answer, 4)) as port:
        connection = await Connection.open("127.0.0.1", port)
        support = {api.api_key: api for api in api_support(connection.versions)}
        assert ("Vote", None) == (support[52].name, support[52].spoken)
        assert "API 999" == support[999].name
        await connection.aclose()


@pytest.mark.parametrize("again_after", [None, 0, 1])
def test_an_opening_that_is_cancelled_leaves_nothing_open(again_after: int | None) -> None:
    """Before the socket connects, after it, or while the versions are awaited; once or twice."""

    async def open_and_cancel(port: int, turns: int) -> None:
        opening = asyncio.ensure_future(Connection.open("127.0.0.1", port))
        await pass_turns(turns)
        opening.cancel()
        if again_after is not None:
            await pass_turns(again_after)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening

    # The system connects for a server that never accepts.
    with socket.create_server(("127.0.0.1", 0)) as silent, unclosed() as left:
        for turns in range(7):
            asyncio.run(open_and_cancel(silent.getsockname()[1], turns))
    assert [] == left


@asynccontextmanager
async def stuck_connection() -> AsyncIterator[Connection]:
    """Give a connection whose peer takes no bytes, with more to send than fits into the sockets."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        connection = await Connection.open("127.0.0.1", port, negotiate=False)
        data = [PartitionProduceData(index=0, records=bytearray(32 << 20))]
        topics = [TopicProduceData(name="events", partition_data=data)]
        connection.send_unanswered(ProduceRequest(acks=0, timeout_ms=0, topic_data=topics), 9)
        yield connection


async def test_a_peer_that_takes_no_bytes_does_not_hold_up_the_end() -> None:
    """After a while what was not sent is given up, and the socket is closed on return."""
    async with stuck_connection() as connection:
        await connection.aclose(timeout_s=0)
        assert not connection.is_open


async def test_a_close_that_is_cancelled_closes() -> None:
    """What was not sent to a peer that takes no bytes is given up at once."""
    async with stuck_connection() as connection:
        closing = asyncio.ensure_future(connection.aclose())
        await pass_turns(3)
        assert connection.is_open
        closing.cancel()
        await pass_turns(3)
        assert closing.cancelled()
        assert not connection.is_open
