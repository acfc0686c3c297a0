"""One connection: sends requests concurrently, and matches responses by correlation id."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from kgw.client.delays import Delays
from kgw.client.errors import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    HungUpError,
    NotKafkaError,
    RequestTimedOutError,
    UnsupportedApiError,
    refuse,
)
from kgw.client.failures import describe, is_of_handshake, is_tls_record, what_answers
from kgw.client.login import log_in
from kgw.client.values import REQUEST_TIMEOUT_S
from kgw.clock import SystemClock
from kgw.config.listeners import format_address
from kgw.errors import DecodeError, ErrorCode, ProtocolError
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import FrameReader, decode_response, request_frame
from kgw.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kgw.client.security import ClientSecurity
    from kgw.clock import Clock
    from kgw.protocol.schema import Request, Response
    from kgw.types import Buffer

ResponseT = TypeVar("ResponseT", bound="Response")

# Responses of other protocols must exceed this limit: "HTTP" read as a length is 1.2 GB, a TLS
# alert 350 MB.
MAX_FRAME_BYTES = 256 << 20
_RECEIVE_BUFFER_BYTES = 64 << 10
# How many of the first bytes are kept, to tell in an error which protocol the peer speaks.
_FIRST_BYTES = 8
SOFTWARE_NAME = "kgw"
_USED_LIFETIME = 0.85
"""The part of a login's lifetime after which the client logs in again. Kafka's clients use
0.85, too."""


class _Waiting(NamedTuple):
    """A sent request: its API and version, and the future for its response."""

    api_key: int
    version: int
    future: asyncio.Future[Response]


class Connection(asyncio.BufferedProtocol):
    """A connection to one server, with its API versions."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        delays: Delays | None = None,
        *,
        security: ClientSecurity | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Store the peer's address for error texts; `open` connects."""
        self._delays = delays or Delays()
        self._security = security
        self._clock = clock or SystemClock()
        self._login_again_s = inf
        """The monotonic time from which the next request waits for a new login."""
        self._logging_in: asyncio.Task[None] | None = None
        self._held: list[list[Buffer]] = []
        """The frames that wait for the end of that login."""
        self._is_served = False
        """Whether the server has answered another request than ApiVersions."""
        self.host = host
        self.port = port
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        """For each API key, the lowest and highest version that the server supports."""
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(MAX_FRAME_BYTES)
        self._receive_buffer = memoryview(bytearray(_RECEIVE_BUFFER_BYTES))
        self._first_bytes = b""
        self._waiting: dict[int, _Waiting] = {}
        self._next_correlation_id = 0
        self._lost: Exception | None = None
        self._closed = asyncio.get_running_loop().create_future()
        self._can_write = asyncio.Event()
        self._can_write.set()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "kgw",
        timeout_s: float = 10.0,
        negotiate: bool = True,
        delays: Delays | None = None,
        security: ClientSecurity | None = None,
        clock: Clock | None = None,
    ) -> Connection:
        """Connect, with TLS if `security` says so, ask for the server's versions, and log in.

        Each of the three may take `timeout_s`. Slow requests, now and later, are reported to
        `delays`. Raises CannotConnectError, NotKafkaError, TlsError, LoginRefusedError, LoginError.
        """
        address = format_address(host, port)
        loop = asyncio.get_running_loop()
        delays = delays or Delays()
        connection = cls(host, port, client_id, delays, security=security, clock=clock)
        tls = None if security is None else security.tls
        try:
            with delays.watching(f"no connection to {address} yet", timeout_s):
                async with asyncio.timeout(timeout_s):
                    await loop.create_connection(
                        lambda: connection,
                        host,
                        port,
                        ssl=tls,
                        server_hostname=None if tls is None else host,
                    )
        except TimeoutError:
            raise CannotConnectError(
                f"cannot connect to {address}: no answer within {timeout_s:g} s"
                + ("" if tls is None else ", with the TLS handshake")
            ) from None
        except OSError as error:
            if tls is not None and is_of_handshake(error):
                from kgw.client.tls import tls_failure

                raise tls_failure(address, error) from None
            raise CannotConnectError(f"cannot connect to {address}: {describe(error)}") from None
        if negotiate:
            try:
                await connection.negotiate(timeout_s)
                await connection.log_in(timeout_s)
            except BaseException:
                await connection.aclose()
                raise
        return connection

    @property
    def address(self) -> str:
        """The peer as host:port."""
        return format_address(self.host, self.port)

    @property
    def peer_certificate(self) -> bytes | None:
        """The server's certificate in DER; None without TLS."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.getpeercert(binary_form=True)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._lost is None

    async def negotiate(self, timeout_s: float) -> None:
        """Ask for the server's versions; a server that lacks version 3 answers in version 0."""
        first = min(4, ApiVersionsRequest.valid_versions[1])
        answer = await self._ask_versions(first, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = {entry.api_key: entry.max_version for entry in answer.api_keys}
            second = min(served.get(ApiKey.API_VERSIONS, 0), first)
            answer = await self._ask_versions(second, timeout_s)
        refuse(answer.error_code, f"{self.address} refused to tell its versions")
        self.versions = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys
        }

    async def log_in(self, timeout_s: float) -> None:
        """Log in, if the client has a login; `negotiate` must come before.

        Raises LoginRefusedError, LoginError, CannotConnectError.
        """
        login = None if self._security is None else self._security.login
        if login is None:
            return

        async def ask(
            message: Request, response_type: type[ResponseT], minimum_version: int
        ) -> ResponseT:
            version = self.spoken_version(type(message), minimum_version)
            future = self._expect(message, version, self._write(message, version))
            return await self._answer_of(future, message, response_type, timeout_s=timeout_s)

        begun_s = self._clock.monotonic_s()
        try:
            lifetime_ms = await log_in(ask, self.address, login, begun_s)
        except ConnectionLostError as error:
            raise CannotConnectError(f"{error} during the login") from None
        lasts_s = lifetime_ms / 1000 * _USED_LIFETIME if lifetime_ms > 0 else inf
        self._login_again_s = begun_s + lasts_s

    def spoken_version(
        self, message: type[Request], minimum: int = 0, maximum: int = 0x7FFF
    ) -> int:
        """Return the highest version of a request that both sides support.

        Raises UnsupportedApiError, which names both sides' versions.
        """
        first, last = message.valid_versions
        first, last = max(first, minimum), min(last, maximum)
        served = self.versions.get(message.api_key)
        name = message.__name__.removesuffix("Request")
        if served is None:
            raise UnsupportedApiError(f"{self.address} does not serve {name}")
        if first > served[1] or last < served[0]:
            raise UnsupportedApiError(
                f"{self.address} serves {name} in versions {served[0]} to {served[1]}, "
                f"not in any of {first} to {last}"
            )
        return min(last, served[1])

    def send(self, message: Request, version: int) -> asyncio.Future[Response]:
        """Send a request at once, and return the future for its response.

        Several requests may be pending. A request waits if the client must log in again before it.
        """
        return self._expect(message, version, self.send_unanswered(message, version))

    def send_unanswered(self, message: Request, version: int) -> int:
        """Send a request without a response (Produce with acks=0); return its correlation id."""
        lasts = self._login_again_s == inf or self._clock.monotonic_s() < self._login_again_s
        if not lasts and self._logging_in is None:
            self._check_open()
            self._logging_in = asyncio.ensure_future(self._log_in_again())
        return self._write(message, version, is_held=self._logging_in is not None)

    def _write(self, message: Request, version: int, *, is_held: bool = False) -> int:
        """Write or hold the frame of a request; return its correlation id."""
        transport = self._check_open()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        frame = request_frame(message, version, correlation_id, self.client_id)
        if is_held:
            self._held.append(frame)
        else:
            transport.writelines(frame)
        return correlation_id

    def _check_open(self) -> asyncio.Transport:
        """Return the transport. Raises the error that has ended the connection."""
        if self._lost is not None:
            raise self._lost
        if self._transport is None:
            raise ConnectionLostError(f"{self.address} is not connected")
        return self._transport

    def _expect(
        self, message: Request, version: int, correlation_id: int
    ) -> asyncio.Future[Response]:
        """Return the future for the response to a written request."""
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = _Waiting(message.api_key, version, future)
        return future

    async def _log_in_again(self) -> None:
        """Log in before the login expires (KIP-368), then send the requests that were held."""
        try:
            await self.log_in(REQUEST_TIMEOUT_S)
        except ClientError as error:
            self._fail(error)
        finally:
            self._logging_in = None
            held, self._held = self._held, []
        if self._transport is not None and self._lost is None:
            for frame in held:
                self._transport.writelines(frame)

    async def writable(self) -> None:
        """Wait until the socket has accepted all earlier bytes. Raises RequestTimedOutError."""
        if self._can_write.is_set() and self._logging_in is None:
            return
        try:
            with self._delays.watching(f"{self.address} takes no more bytes", REQUEST_TIMEOUT_S):
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    if self._logging_in is not None:
                        await asyncio.wait([self._logging_in])
                    await self._can_write.wait()
        except TimeoutError:
            raise RequestTimedOutError(
                f"{self.address} has taken no more bytes for {REQUEST_TIMEOUT_S:g} s"
            ) from None

    async def ask(
        self,
        message: Request,
        response_type: type[ResponseT],
        *,
        version: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        wait_s: float = 0.0,
    ) -> ResponseT:
        """Send a request and return its response; by default in the highest common version.

        `wait_s` is how long the server may wait before it answers, as the request allows. Raises
        ConnectionLostError, RequestTimedOutError, NotKafkaError, UnsupportedApiError.
        """
        if version is None:
            version = self.spoken_version(type(message))
        future = self.send(message, version)
        return await self._answer_of(
            future, message, response_type, timeout_s=timeout_s, wait_s=wait_s
        )

    async def _answer_of(
        self,
        future: asyncio.Future[Response],
        message: Request,
        response_type: type[ResponseT],
        *,
        timeout_s: float,
        wait_s: float = 0.0,
    ) -> ResponseT:
        """Wait for the response to a sent request, and return it."""
        name = type(message).__name__.removesuffix("Request")
        answer = await self.answer(future, name, timeout_s=timeout_s, wait_s=wait_s)
        if not isinstance(answer, response_type):
            raise TypeError(f"{type(message).__name__} is not answered by {response_type.__name__}")
        return answer

    async def answer(
        self,
        future: asyncio.Future[Response],
        name: str,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        wait_s: float = 0.0,
    ) -> Response:
        """Wait for the response to a sent request; `name` is the name of its API.

        Raises as `ask`.
        """
        limit_s = timeout_s + wait_s
        reason = f"{self.address} has not answered {name} yet"
        try:
            with self._delays.watching(reason, limit_s, expected_s=wait_s):
                async with asyncio.timeout(limit_s):
                    return await future
        except TimeoutError:
            raise RequestTimedOutError(
                f"{self.address} did not answer {name} within {limit_s:g} s"
            ) from None

    async def aclose(self, timeout_s: float = 1.0) -> None:
        """Close the connection; pending requests fail with ConnectionLostError.

        Bytes that the peer has not accepted within `timeout_s` are dropped.
        """
        if self._transport is None or self._closed.done():
            return
        self._transport.close()
        try:
            # A peer that accepts no bytes must not delay the close.
            await asyncio.wait([self._closed], timeout=timeout_s)
        finally:
            self.abort()
        # The socket is closed in the next turn of the loop: wait for it, as the loop might end
        # before.
        await asyncio.wait([self._closed])

    def abort(self) -> None:
        """Close the connection in the next turn of the loop, and drop unsent bytes."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # With uvloop, the transport is no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next received bytes."""
        return self._reader.room(self._receive_buffer)

    def buffer_updated(self, nbytes: int) -> None:
        """Resolve the futures of the responses that are complete."""
        if len(self._first_bytes) < _FIRST_BYTES:
            arrived = self._reader.room(self._receive_buffer)[:nbytes]
            self._first_bytes = (self._first_bytes + bytes(arrived))[:_FIRST_BYTES]
        try:
            frames = self._reader.take(self._receive_buffer, nbytes)
            while frames:
                for frame in frames:
                    self._take_answer(frame)
                frames = self._reader.take_rest()
        except ProtocolError:
            first = self._first_bytes
            text = f"{self.address} {what_answers(first)}"
            self._fail(NotKafkaError(text, speaks_tls=is_tls_record(first)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Let all pending requests fail."""
        self._fail(self._loss(exc))
        self._can_write.set()
        if not self._closed.done():
            self._closed.set_result(None)

    def _loss(self, exc: Exception | None) -> ClientError:
        """Return the error that says why the connection is lost."""
        tls = None if self._security is None else self._security.tls
        if tls is not None and isinstance(exc, OSError):
            from kgw.client.tls import is_tls_error, tls_failure

            if is_tls_error(exc):
                return tls_failure(self.address, exc)
        reason = f": {describe(exc)}" if isinstance(exc, OSError) else ""
        # A listener with SASL answers ApiVersions, and closes the connection at the next request.
        has_login = self._security is not None and self._security.login is not None
        if self.versions and not self._is_served and not has_login and self._waiting:
            reason += " at the first request; does the listener ask for a login (SASL)?"
        return ConnectionLostError(f"{self.address} closed the connection{reason}")

    def pause_writing(self) -> None:
        """Pause: the peer accepts no more bytes for now."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Continue: the peer accepts bytes again."""
        self._can_write.set()

    def _take_answer(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self._fail(
                NotKafkaError(f"{self.address} answered a request that was not asked"),
            )
            return
        version = waiting.version
        self._is_served = self._is_served or waiting.api_key != ApiKey.API_VERSIONS
        # A server that does not support the version answers in version 0 (KIP-511).
        if waiting.api_key == ApiKey.API_VERSIONS and version and bytes(frame[4:6]) == b"\x00\x23":
            version = 0
        try:
            _, answer = decode_response(frame, waiting.api_key, version)
        except DecodeError as error:
            problem = NotKafkaError(f"{self.address} sent an answer that cannot be read: {error}")
            if not waiting.future.done():
                waiting.future.set_exception(problem)
            self._fail(problem)
            return
        if not waiting.future.done():
            waiting.future.set_result(answer)

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.future.done():
                one.future.set_exception(self._lost)
                # The caller may have stopped waiting: mark the error as retrieved, so that asyncio
                # does not log it.
                one.future.exception()
        if self._transport is not None:
            self._transport.abort()

    async def _ask_versions(self, version: int, timeout_s: float) -> ApiVersionsResponse:
        from kgw import __version__

        message = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        try:
            return await self.ask(
                message, ApiVersionsResponse, version=version, timeout_s=timeout_s
            )
        except RequestTimedOutError:
            raise NotKafkaError(
                f"{self.address} accepts connections and says nothing; is it a Kafka listener?"
            ) from None
        except ConnectionLostError as error:
            # Servers of other protocols often close the connection after the first request.
            is_plain = self._security is None or self._security.tls is None
            hint = "speak TLS (security.protocol)" if is_plain else "ask for a client's certificate"
            raise HungUpError(
                f"{error} at the first request; does it {hint}, or not speak Kafka?",
                is_encrypted=not is_plain,
            ) from None
