"""A small broker for clients that use TLS or log in, written from the RFCs and not from kgw."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from base64 import b64decode, b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, request_class
from kgw.protocol.framing import decode_request_header, peek_request_header, response_frame
from kgw.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kgw.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kgw.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from kgw.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kgw.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests import patience

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from kgw.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from kgw.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
    )
    from kgw.protocol.schema import Request, Response

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT = b"0123456789abcdef"


class LoginRefused(Exception):  # noqa: N818 - it is the broker's answer
    """A login that is refused with this message."""


class FakeBroker:
    """Answers ApiVersions, the login and Metadata, and writes down what it was sent."""

    def __init__(
        self,
        *,
        mechanisms: tuple[str, ...] = (),
        iterations: int = 4096,
        lifetime_ms: int = 0,
    ) -> None:
        self.mechanisms = mechanisms
        self.user = "alice"
        self.password = "pencil"
        self.bearer_tokens: set[str] = set()
        """The tokens of OAUTHBEARER that are accepted."""
        self.iterations = iterations
        self.lifetime_ms = lifetime_ms
        self.seen: list[str] = []
        """The APIs of all requests, in their order."""
        self.has_request = asyncio.Event()
        self.tokens: list[bytes] = []
        """What clients have sent in SaslAuthenticate."""
        self.tamper: Callable[[Response], Response | None] = lambda answer: answer
        """Changes an answer before it is sent; None for hanging up."""
        self.answer: dict[ApiKey, Callable[[Any], Response]] = {}
        """Answers of further APIs."""
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        """Their first and last version, unless only version 0 is served."""
        self.host, self.port = "127.0.0.1", 0
        self.hold: asyncio.Event | None = None
        """What the answers of the login wait for."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        session = _Session(self)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                api_key, version, correlation_id = peek_request_header(frame)
                _, position = decode_request_header(frame)
                request = codec(request_class(api_key), version).decode(frame, position)
                self.seen.append(ApiKey(api_key).name)
                self.has_request.set()
                answer = session.answer(request)
                if answer is not None:
                    answer = self.tamper(answer)
                if answer is None:
                    break
                if self.hold is not None and api_key == ApiKey.SASL_HANDSHAKE:
                    await self.hold.wait()
                writer.writelines(response_frame(answer, version, correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class _Session:
    """The state of one connection."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._mechanism = ""
        self._parts: list[str] = []
        self._is_open = not broker.mechanisms

    def answer(self, request: Request) -> Response | None:
        """Return the answer; None for hanging up."""
        broker = self._broker
        match request.api_key:
            case ApiKey.API_VERSIONS:
                return self._versions()
            case ApiKey.SASL_HANDSHAKE:
                return self._handshake(request.mechanism)  # type: ignore[attr-defined]
            case ApiKey.SASL_AUTHENTICATE:
                return self._authenticate(request.auth_bytes)  # type: ignore[attr-defined]
            case _ if not self._is_open:
                return None
            case ApiKey.METADATA:
                return MetadataResponse(
                    cluster_id="fake",
                    controller_id=0,
                    brokers=[
                        MetadataResponseBroker(
                            node_id=0, host=broker.host, port=broker.port, rack=None
                        )
                    ],
                    topics=[],
                )
            case other:
                return broker.answer[ApiKey(other)](request)

    def _versions(self) -> ApiVersionsResponse:
        ranges = {
            ApiKey.API_VERSIONS: (0, 4),
            ApiKey.METADATA: (0, 12),
            ApiKey.SASL_HANDSHAKE: (0, 1),
            ApiKey.SASL_AUTHENTICATE: (0, 2),
            **dict.fromkeys(self._broker.answer, (0, 0)),
            **self._broker.versions,
        }
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in ranges.items()
            ],
        )

    def _handshake(self, mechanism: str) -> SaslHandshakeResponse:
        mechanisms = self._broker.mechanisms
        code = ErrorCode.NONE
        if not mechanisms:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif mechanism not in mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._is_open = False
        self._mechanism, self._parts = mechanism, []
        return SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))

    def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        broker = self._broker
        broker.tokens.append(token)
        check = {"PLAIN": self._plain, "OAUTHBEARER": self._bearer}.get(
            self._mechanism, self._scram
        )
        try:
            answer = check(token)
        except LoginRefused as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(error),
                auth_bytes=b"",
            )
        return SaslAuthenticateResponse(
            error_message=None,
            auth_bytes=answer,
            session_lifetime_ms=broker.lifetime_ms if self._is_open else 0,
        )

    def _plain(self, token: bytes) -> bytes:
        _, user, password = token.decode().split("\0")
        if (user, password) != (self._broker.user, self._broker.password):
            raise LoginRefused(f"Authentication failed: {user} is not known by {password}")
        self._is_open = True
        return b""

    def _bearer(self, token: bytes) -> bytes:
        if token == b"\x01":
            raise LoginRefused(f"Authentication failed: {self._broker.tokens[-2]!r}")
        start, auth, *_, end, after = token.decode().split("\x01")
        assert ("n,,", "", "") == (start, end, after)
        if auth.removeprefix("auth=Bearer ") not in self._broker.bearer_tokens:
            return b'{"status":"invalid_token"}'
        self._is_open = True
        return b""

    def _scram(self, token: bytes) -> bytes:
        broker, text, name = self._broker, token.decode(), HASHES[self._mechanism]
        if not self._parts:
            assert text.startswith("n,,n=")
            bare = text[3:]
            user, nonce = bare.split(",")[:2]
            if user != f"n={broker.user}":
                raise LoginRefused(
                    "Authentication failed during authentication due to invalid user"
                )
            first = f"{nonce}server,s={b64encode(SALT).decode()},i={broker.iterations}"
            self._parts = [bare, first]
            return first.encode()
        without_proof, _, proof = text.rpartition(",p=")
        signed = ",".join((*self._parts, without_proof)).encode()
        salted = hashlib.pbkdf2_hmac(name, broker.password.encode(), SALT, broker.iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        expected = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        if b64decode(proof) != expected:
            raise LoginRefused("Authentication failed due to invalid credentials")
        self._is_open = True
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        return b"v=" + b64encode(verifier)


@asynccontextmanager
async def served(broker: FakeBroker, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Let a broker listen, and give its port."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=tls)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker.port
    finally:
        server.close()


class BrokerThread:
    """A broker in a thread with a loop of its own, for commands that run theirs."""

    def __init__(self, broker: FakeBroker, tls: ssl.SSLContext | None = None) -> None:
        self.broker = broker
        self._tls = tls
        self._started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(patience.seconds(10))
        return self

    def __exit__(self, *args: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patience.seconds(10))

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"{self.broker.host}:{self.broker.port}"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with served(self.broker, self._tls):
            self._started.set()
            await self._stop.wait()


class UserStore:
    """The users of a broker: answers of the APIs that change and list them."""

    def __init__(self) -> None:
        self.credentials: dict[tuple[str, int], ScramCredentialUpsertion] = {}

    @property
    def answers(self) -> dict[ApiKey, Callable[[Any], Response]]:
        """The answers for `FakeBroker.answer`."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self._describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._alter,
        }

    def _describe(self, request: DescribeUserScramCredentialsRequest) -> Response:
        asked = [one.name for one in request.users or []]
        users = asked or list(dict.fromkeys(user for user, _ in self.credentials))
        results = []
        for name in users:
            infos = [
                CredentialInfo(mechanism=mechanism, iterations=one.iterations)
                for (user, mechanism), one in self.credentials.items()
                if user == name
            ]
            results.append(
                DescribeUserScramCredentialsResult(
                    user=name,
                    error_code=0 if infos else ErrorCode.RESOURCE_NOT_FOUND,
                    error_message=None if infos else "no such user",
                    credential_infos=infos,
                )
            )
        return DescribeUserScramCredentialsResponse(error_message=None, results=results)

    def _alter(self, request: AlterUserScramCredentialsRequest) -> Response:
        codes: dict[str, ErrorCode] = {}
        for deletion in request.deletions:
            gone = self.credentials.pop((deletion.name, deletion.mechanism), None)
            codes[deletion.name] = ErrorCode.RESOURCE_NOT_FOUND if gone is None else ErrorCode.NONE
        for upsertion in request.upsertions:
            self.credentials[upsertion.name, upsertion.mechanism] = upsertion
            codes[upsertion.name] = ErrorCode.NONE
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=name, error_code=code, error_message=None)
                for name, code in codes.items()
            ]
        )
