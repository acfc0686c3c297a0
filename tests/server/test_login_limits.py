"""What a connection allows before its client has logged in, and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import FrameTooLargeError, ProtocolError
from kgw.handlers.context import Session
from kgw.handlers.login import Login
from kgw.handlers.login_attempts import LoginAttempts
from kgw.protocol.framing import FrameReader
from kgw.security.principal import Principal
from kgw.security.sasl.exchange import Authenticated, Challenge
from kgw.security.sasl.failed_logins import FailedLogins
from kgw.server.limits import Limits
from kgw.testing.gateway import InProcessGateway
from tests.server.fakes import API_VERSIONS, METADATA, FakeServer, Peer, request, settle

if TYPE_CHECKING:
    import asyncio

    from kgw.server.connection import KafkaConnection

LIMITS = Limits(
    frame_bytes=1 << 20, login_frame_bytes=2_000, login_timeout_s=10.0, idle_timeout_s=100.0
)


class AnyExchange:
    """A login that nobody checks."""

    mechanism = "PLAIN"

    def respond(self, message: bytes, now_ms: int) -> Challenge:
        return Challenge(message)


class LoginServer(FakeServer):
    """Its listener asks for a login."""

    def __init__(self) -> None:
        super().__init__(LIMITS)
        self.login = Login(("PLAIN",), 60_000, 1000.0 + LIMITS.login_timeout_s)

    def admit(self, connection: KafkaConnection, transport: asyncio.Transport) -> Session:
        return Session(client_host="192.0.2.1", login=self.login)

    def begin(self) -> None:
        """Begin a login."""
        attempts = LoginAttempts(FailedLogins(), "192.0.2.1", None, InProcessGateway().gateway)
        self.login.begin(AnyExchange(), self.now_s, has_bare_tokens=False, attempts=attempts)

    def log_in(self) -> None:
        """Begin a login and complete it."""
        self.begin()
        done = Authenticated(b"", Principal("User", "alice"), None, None)
        self.login.finish(done, 0, self.now_s)


@pytest.fixture
async def server() -> LoginServer:
    """A listener with a login."""
    return LoginServer()


def frame(size_bytes: int, correlation_id: int = 1) -> bytes:
    """Return a request whose frame has so many bytes."""
    return request(API_VERSIONS, correlation_id, bytes(size_bytes - 8))


class TestFrames:
    async def test_the_size_before_the_login(self, server: LoginServer) -> None:
        """The largest allowed frame passes, one more byte ends the connection at its length."""
        peer = Peer(server)
        peer.send(frame(2_000))
        assert [1] == peer.dispatcher.started
        peer.send(frame(2_001)[:4])
        assert peer.transport.is_closing()
        assert ["protocol"] == server.drops
        assert 0 == server.memory.used_bytes

    async def test_the_size_after_the_login(self, server: LoginServer) -> None:
        """The same frame passes, and the limit is that of other listeners."""
        peer = Peer(server)
        server.log_in()
        peer.send(frame(2_001))
        peer.send(frame(1 << 20, 2))
        await settle()
        assert [1, 2] == peer.dispatcher.started
        peer.send(frame((1 << 20) + 1)[:4])
        assert peer.transport.is_closing()

    async def test_a_failed_login_raises_nothing(self, server: LoginServer) -> None:
        """The limits stay low when a login has begun, and when it has failed."""
        peer = Peer(server)
        server.begin()
        server.login.end(server.now_s)
        peer.send(frame(2_001)[:4])
        assert peer.transport.is_closing()

    async def test_a_later_login_lowers_nothing(self, server: LoginServer) -> None:
        """A client that logs in again may have large requests behind it."""
        peer = Peer(server)
        server.log_in()
        server.log_in()
        peer.send(frame(500_000))
        await settle()
        assert [1] == peer.dispatcher.started

    @pytest.mark.parametrize("size_bytes", [0, 1, 2, 3])
    async def test_tokens_are_short(self, server: LoginServer, size_bytes: int) -> None:
        """A token of any size passes, whatever it resembles, and none after the login."""
        taken = []

        def take(frame: memoryview, session: Session) -> None:
            taken.append(bytes(frame))

        peer = Peer(server)
        server.dispatcher.start = take  # type: ignore[method-assign]
        peer.send(size_bytes.to_bytes(4, "big") + b"\xff" * size_bytes)
        assert [b"\xff" * size_bytes] == taken
        assert not peer.transport.is_closing()
        server.log_in()
        peer.send(b"\0\0\0\3\0\0\0")
        assert peer.transport.is_closing()
        assert 1 == len(taken)

    async def test_other_listeners(self) -> None:
        """A listener without a login has the limits that it had."""
        peer = Peer(FakeServer(LIMITS))
        peer.send(frame(2_001))
        await settle()
        assert [1] == peer.dispatcher.started
        peer.send(b"\0\0\0\3\0\0\0")
        assert peer.transport.is_closing()


class TestDeadline:
    async def test_no_login_in_time(self, server: LoginServer) -> None:
        """Requests that keep the connection busy do not help."""
        peer = Peer(server)
        for now_s in range(10):
            peer.at(now_s)
            peer.send(request(API_VERSIONS, now_s))
        peer.at(9.9)
        assert [] == server.drops
        peer.at(10.0)
        assert ["login"] == server.drops
        assert peer.transport.is_aborted()

    async def test_a_login_that_has_only_begun(self, server: LoginServer) -> None:
        """It must be complete by then."""
        peer = Peer(server)
        server.begin()
        peer.at(9.9)
        assert [] == server.drops
        peer.at(10.0)
        assert ["login"] == server.drops

    async def test_a_request_that_waits(self, server: LoginServer) -> None:
        """The time counts also while a token is being checked."""
        peer = Peer(server)
        peer.send(request(METADATA, 1))
        peer.at(10.0)
        assert ["login"] == server.drops

    async def test_a_started_frame(self, server: LoginServer) -> None:
        """Half a frame keeps nobody in; a connection is dropped once."""
        peer = Peer(server)
        peer.send(frame(100)[:50])
        peer.at(5.0)
        peer.at(200.0)
        assert 1 == len(server.drops)

    async def test_after_the_login(self, server: LoginServer) -> None:
        """Never; the idle time-out holds as for every connection."""
        peer = Peer(server)
        server.log_in()
        for now_s in (10.0, 50.0, 99.0):
            peer.at(now_s)
        assert [] == server.drops
        peer.at(100.0)
        assert ["idle"] == server.drops

    async def test_a_later_login_that_fails(self, server: LoginServer) -> None:
        """The connection serves nothing then, and the server ends it soon."""
        peer = Peer(server)
        server.log_in()
        server.begin()
        server.login.end(server.now_s)
        peer.at(4.0)
        assert [] == server.drops
        peer.at(5.0)
        assert ["login"] == server.drops

    async def test_idle_before_the_deadline(self) -> None:
        """A shorter idle time-out still ends a connection that has not logged in, once."""
        server = LoginServer()
        server.limits = LIMITS._replace(idle_timeout_s=4.0)
        peer = Peer(server)
        peer.at(3.9)
        assert [] == server.drops
        peer.at(12.0)
        assert ["idle"] == server.drops


class TestFinishOverTls:
    """A transport of TLS cannot write an end of file."""

    async def test_it_closes_after_its_answers(self) -> None:
        """What was started is answered first."""
        peer = Peer()
        peer.transport.can_end = False
        peer.send(request(METADATA, 1))
        peer.connection.finish()
        assert not peer.transport.is_closing()
        peer.finish(1)
        await settle()
        assert [1] == peer.transport.answers()
        assert not peer.transport.is_aborted()
        for now_s in (1.0, 2.0, 3.0):
            peer.at(now_s)
        assert peer.transport.is_closing()
        assert not peer.transport.is_aborted()
        assert not peer.transport.is_ended()

    async def test_a_silent_client(self) -> None:
        """It has nothing on its way, and is closed at once."""
        peer = Peer()
        peer.transport.can_end = False
        peer.send(request(API_VERSIONS, 1))
        peer.at(1.0)
        peer.connection.finish()
        assert not peer.transport.is_closing()
        silent = Peer(peer.server)
        silent.transport.can_end = False
        silent.at(3.0)
        silent.connection.finish()
        assert silent.transport.is_closing()
        assert not silent.transport.is_aborted()

    async def test_later_requests_are_read_and_dropped(self) -> None:
        """Closing with unread bytes would reset the connection, and lose answers on their way."""
        peer = Peer()
        peer.transport.can_end = False
        peer.send(request(METADATA, 1))
        peer.connection.finish()
        peer.finish(1)
        await settle()
        assert not peer.transport.is_closing()
        sent = request(METADATA, 2)
        assert len(sent) == peer.send(sent)
        assert [1] == peer.dispatcher.started
        assert [1] == peer.transport.answers()

    async def test_unsent_answers_are_waited_for(self) -> None:
        """A client that takes its answers slowly is not cut by this limit."""
        peer = Peer()
        peer.transport.can_end = False
        peer.send(request(METADATA, 1))
        peer.transport.unsent = 100
        peer.connection.finish()
        peer.finish(1)
        await settle()
        for now_s in (2.0, 4.0, 6.0):
            peer.at(now_s)
            assert not peer.transport.is_closing()
        peer.transport.unsent = 0
        peer.at(8.0)
        assert peer.transport.is_closing()


class TestAllow:
    """`FrameReader.allow`."""

    def test_new_limits_count_for_the_next_frames(self) -> None:
        """Both sizes and the API keys are replaced."""
        reader = FrameReader(16, 3, None)
        shared = memoryview(bytearray(64))

        def take(data: bytes) -> list[bytes]:
            reader.room(shared)[: len(data)] = data
            return [bytes(one) for one in reader.take(shared, len(data))]

        assert [b"abc"] == take(b"\0\0\0\3abc")
        reader.allow(32, 8, {7})
        assert [b"\0\7" + bytes(30)] == take(b"\0\0\0\x20\0\7" + bytes(30))
        with pytest.raises(ProtocolError, match="API key 8"):
            take(b"\0\0\0\x20\0\x08")

    @pytest.mark.parametrize("data", [b"\0\0\0\x07", b"\0\0\0\x21"])
    def test_sizes_outside(self, data: bytes) -> None:
        """The first length that is not allowed is an error, whatever was allowed before."""
        reader = FrameReader(1 << 20, 0, None)
        reader.allow(32, 8, None)
        shared = memoryview(bytearray(64))
        shared[:4] = data
        with pytest.raises(ProtocolError):
            reader.take(shared, 4)

    def test_a_frame_that_has_begun_stays(self) -> None:
        """A frame that was allowed at its beginning is taken, though the limits are lower now."""
        reader = FrameReader(100, 0, None)
        shared = memoryview(bytearray(64))
        shared[:8] = b"\0\0\0\x40abcd"
        assert [] == reader.take(shared, 8)
        reader.allow(8, 0, None)
        room = reader.room(shared)
        size = min(len(room), 60)
        while size:
            reader.room(shared)[:size] = bytes(size)
            frames = reader.take(shared, size)
            if frames:
                break
            size = len(reader.room(shared))
        assert [64] == [len(one) for one in frames]
        shared[:4] = b"\0\0\0\x09"
        with pytest.raises(FrameTooLargeError):
            reader.take(shared, 4)
