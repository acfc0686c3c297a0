"""The admin listeners over real sockets: what hostile or careless clients get, and the end."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from kgw.admin.server import AdminServer
from kgw.config import Config, ConfigError, Listener
from kgw.errors import ListenError
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import create_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# uvicorn looks ten times a second whether it should end.
pytestmark = pytest.mark.slow

LOCAL = Listener("ADMIN", "127.0.0.1", 0)
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Running:
    """A started admin server, and connections to it."""

    def __init__(self, gateway: InProcessGateway, server: AdminServer, port: int) -> None:
        self.gateway = gateway
        self.server = server
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return Client(reader, writer)

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send bytes; return status and body of the next answer."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        return status, await self.reader.readexactly(int(fields.get(b"content-length", b"0")))

    async def ended(self) -> bytes:
        """Return what comes until the server closes."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return b""


@asynccontextmanager
async def serving_admin(
    connections_max: int = 8, request_s: float = 30.0, token_file: str = ""
) -> AsyncIterator[Running]:
    """Serve a gateway with a topic."""
    async with InProcessGateway(Config.of(admin_token_file=token_file)) as gateway:
        await create_topic(gateway)
        server = AdminServer(gateway.gateway, connections_max, request_s)
        (bound,) = await server.bind([LOCAL])
        await server.start()
        running = Running(gateway, server, bound.port)
        try:
            yield running
        finally:
            await running.close()
            await server.aclose()
        assert {} == gateway.internal_errors


async def test_serves() -> None:
    """Requests on one connection, one after the other and several at once."""
    async with serving_admin() as running:
        client = await running.connect()
        assert (200, b'{"live":true}\n') == await client.ask(LIVE)
        status, body = await client.ask(LIVE.replace(b"/health/live", b"/api/v1/offsets"))
        assert (200, "orders") == (status, json.loads(body)["partitions"][0]["topic"])
        client.writer.write(LIVE + LIVE)
        assert (200, b'{"live":true}\n') == await client.ask(LIVE)
        assert 200 == (await client.ask(b""))[0]
        assert 200 == (await client.ask(b""))[0]


async def test_clients_wait_until_it_serves() -> None:
    """Between the ready line and the end of the imports, connections stand in line."""
    async with InProcessGateway() as gateway:
        server = AdminServer(gateway.gateway, 8)
        (bound,) = await server.bind([LOCAL])
        running = Running(gateway, server, bound.port)
        client = await running.connect()
        asked = asyncio.ensure_future(client.ask(LIVE))
        await server.start()
        assert 200 == (await asked)[0]
        await running.close()
        await server.aclose()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff" * 10,
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\n\r\n",
        b"GET /health/live\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000,
        b"GET /" + b"x" * 20_000,
        b"A" * 100_000,
    ],
)
async def test_bad_requests_cost_their_connection(request_bytes: bytes) -> None:
    """Noise, TLS, Kafka's protocol, broken or endless heads: refused, closed, others go on."""
    async with serving_admin() as running:
        canary = await running.connect()
        bad = await running.connect()
        bad.writer.write(request_bytes)
        bad.writer.write_eof()
        answer = await bad.ended()
        assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421")), answer
        assert 200 == (await canary.ask(LIVE))[0]


async def test_a_body_is_not_read() -> None:
    """Nothing takes a body: who sends one is told so, and its bytes are not kept."""
    async with serving_admin() as running:
        client = await running.connect()
        head = b"POST /api/v1/lag HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
        assert 405 == (await client.ask(head))[0]


async def test_a_broken_body_is_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A request whose body breaks while it is answered gets 400: no traceback, no other harm."""
    async with serving_admin() as running:
        client = await running.connect()
        client.writer.write(LIVE[:-2] + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n")
        assert (await client.ended()).startswith(b"HTTP/1.1 400")
        assert 200 == (await (await running.connect()).ask(LIVE))[0]
    assert [] == [one for one in caplog.records if one.name.startswith("uvicorn")]


async def test_upgrades_are_not_served() -> None:
    """A WebSocket is answered as what it also is: a GET."""
    async with serving_admin() as running:
        client = await running.connect()
        upgrade = LIVE[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        assert (await client.ask(upgrade))[0] in {200, 400}
        assert 200 == (await (await running.connect()).ask(LIVE))[0]


async def test_too_many_connections() -> None:
    """The one that has waited longest for its next request makes room for who asks."""
    async with serving_admin(connections_max=2) as running:
        first = await running.connect()
        assert 200 == (await first.ask(LIVE))[0]
        silent = await running.connect()
        assert 200 == (await first.ask(LIVE))[0]
        third = await running.connect()
        assert 200 == (await third.ask(LIVE))[0]
        assert b"" == await silent.ended()
        assert 200 == (await first.ask(LIVE))[0]


async def test_silent_connections_keep_nobody_out(token_file: str) -> None:
    """However many are opened at once, a probe is answered afterwards."""
    async with serving_admin(token_file=token_file, connections_max=2) as running:
        silent = [await running.connect() for _ in range(20)]
        assert 200 == (await (await running.connect()).ask(LIVE))[0]
        assert [b""] * 18 == [await one.ended() for one in silent[:18]]


async def test_all_connections_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who is being answered makes room: a further connection is closed."""
    async with serving_admin(connections_max=1) as running:
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            asked.set()
            await may_answer.wait()

        monkeypatch.setattr(running.gateway.gateway, "sample_metrics", wait)
        first = await running.connect()
        first.writer.write(LIVE.replace(b"/health/live", b"/metrics"))
        await asked.wait()
        assert b"" == await (await running.connect()).ended()
        may_answer.set()
        assert 200 == (await first.ask(b""))[0]


async def test_slow_clients_are_cut() -> None:
    """Who connects and says nothing, or a byte now and then, does not stay."""
    async with serving_admin(request_s=0.5) as running:
        silent, slow = await running.connect(), await running.connect()
        slow.writer.write(LIVE[:10])
        assert b"" == await silent.ended()
        assert b"" == await slow.ended()
        assert 200 == (await (await running.connect()).ask(LIVE))[0]


async def test_requests_in_hand_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end a request that has begun is answered, idle connections are closed."""
    async with serving_admin() as running:
        began, go_on = asyncio.Event(), asyncio.Event()
        monitor = running.gateway.lag
        real = monitor.sample

        async def sample() -> Any:
            began.set()
            await go_on.wait()
            return await real()

        monkeypatch.setattr(monitor, "sample", sample)
        idle, busy = await running.connect(), await running.connect()
        assert 200 == (await idle.ask(LIVE))[0]
        asked = asyncio.ensure_future(busy.ask(LIVE.replace(b"/health/live", b"/api/v1/lag")))
        await began.wait()
        ended = asyncio.ensure_future(running.server.aclose())
        assert b"" == await idle.ended()
        go_on.set()
        assert 200 == (await asked)[0]
        await ended
        with pytest.raises(OSError, match="Connect call failed"):
            await running.connect()


async def test_signals_stay_with_the_process() -> None:
    """The server takes over no signal handler: the gateway has its own."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with serving_admin() as running:
        await (await running.connect()).ask(LIVE)
        assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))


@pytest.mark.parametrize("is_twice", [False, True])
async def test_taken_address(*, is_twice: bool) -> None:
    """A port that another server or this one has is an error of the start; no socket stays open."""
    async with serving_admin() as running:
        server = AdminServer(running.gateway.gateway, 8)
        (free,) = await server.bind([LOCAL])
        await server.aclose()
        taken = free if is_twice else LOCAL._replace(port=running.port)
        with pytest.raises(ListenError, match="cannot listen at ADMIN://127"):
            await server.bind([free, taken])
        await server.aclose()


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    """A file that holds a token."""
    path = tmp_path / "token"
    path.write_text("correct-horse-battery")
    path.chmod(0o600)
    return str(path)


BEARER = b"Authorization: Bearer correct-horse-battery\r\n"


HOST = b" HTTP/1.1\r\nHost: kgw\r\n"
STATUSES = {
    b"GET /metrics" + HOST + BEARER: 200,
    b"GET /metrics HTTP/1.0\r\n" + BEARER: 200,
    b"GET /metrics" + HOST + BEARER.upper(): 401,
    b"GET /metrics" + HOST + BEARER + BEARER: 401,
    b"GET /metrics" + HOST + b"X-" + BEARER: 401,
    b"GET /metrics" + HOST + b"Proxy-" + BEARER: 401,
    b"GET /metrics?access_token=correct-horse-battery" + HOST: 401,
    b"GET http://kgw/metrics" + HOST: 401,
    b"GET http://kgw/metrics" + HOST + BEARER: 404,
    b"GET http://kgw/health/live" + HOST: 401,
    b"GET /health/live/../../metrics" + HOST: 401,
    b"GET /health/live%2F..%2F..%2Fmetrics" + HOST: 401,
    b"GET /%6Detrics" + HOST: 401,
    b"GET //metrics" + HOST: 401,
    b"GET /metrics/" + HOST: 401,
    b"GET /health/live?/../metrics" + HOST: 400,
    b"GET /metrics#/health/live" + HOST: 401,
    b"OPTIONS *" + HOST: 401,
    b"GET /%68ealth/live" + HOST: 200,
}
"""What is answered to requests, each over a connection of its own."""


async def test_the_token_on_the_wire(token_file: str) -> None:
    """However a request is spelled, what it reaches without the token is the status alone."""
    async with serving_admin(token_file=token_file, connections_max=32) as running:
        answers = {head: await (await running.connect()).ask(head + b"\r\n") for head in STATUSES}
    assert STATUSES == {head: status for head, (status, _) in answers.items()}
    errors = [body for status, body in answers.values() if status != 200]
    assert [] == [body for body in errors if not body.startswith(b'{"error":')]


async def test_a_guess_costs_a_connection(token_file: str) -> None:
    """After a wrong token the connection is closed, whatever else was sent through it."""
    async with serving_admin(token_file=token_file) as running:
        client = await running.connect()
        wrong = LIVE.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer correct-horse\r\n\r\n")
        assert 401 == (await client.ask(wrong + LIVE))[0]
        assert b"" == await client.ended()


async def test_no_token_in_the_file(tmp_path: Path) -> None:
    """A start with a token that cannot be read is refused before anything is bound."""
    async with InProcessGateway(Config.of(admin_token_file=f"{tmp_path}/none")) as gateway:
        server = AdminServer(gateway.gateway, 8)
        with pytest.raises(ConfigError, match="none cannot be read"):
            await server.bind([LOCAL])
