"""A client of a listener that asks for a login, in the test's own loop."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from kgw.completion import until_done
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import Later, Session
from kgw.handlers.login import Login
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response
from kgw.security.sasl.scram import ScramMechanism
from tests.handlers.support import request_of
from tests.security.sasl.logins import PASSWORD, credential_of
from tests.security.sasl.scram_client import ScramClient

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway, PendingResponse

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


async def add_user(
    gateway: InProcessGateway, user: str, password: str = PASSWORD, iterations: int = 4096
) -> None:
    """Give a user a credential of both SCRAM mechanisms."""
    credentials = await gateway.gateway.load_credentials()
    await credentials.change(
        {
            (mechanism, user): credential_of(mechanism, password, iterations)
            for mechanism in ScramMechanism
        }
    )


def plain_token(user: str, password: str = PASSWORD) -> bytes:
    """Return the only message of a PLAIN client."""
    return f"\0{user}\0{password}".encode()


def scram_client(
    mechanism: str, user: str, password: str = PASSWORD, *, is_token: bool = False
) -> ScramClient:
    """Return a SCRAM client that has sent nothing yet."""
    extension = ",tokenauth=true" if is_token else ""
    return ScramClient(mechanism, password, bare=f"n={user},r=fyko+d2lbbFgONRv9qkxdawL{extension}")


class LoginClient:
    """One connection. `served` counts the answers that are neither errors nor part of a login."""

    def __init__(
        self,
        gateway: InProcessGateway,
        mechanisms: tuple[str, ...] = MECHANISMS,
        max_reauth_ms: int = 0,
        host: str = "192.0.2.7",
    ) -> None:
        self.gateway = gateway
        self.login = Login(mechanisms, max_reauth_ms, inf)
        self.session = Session(client_host=host, login=self.login)

    @property
    def user(self) -> str:
        """The name of the session's principal."""
        return self.session.principal.name

    def start(self, api: ApiKey, version: int, **fields: Any) -> PendingResponse:
        """Start a request. Raises ProtocolError if it ends the connection."""
        return self.gateway.start(request_of(api, **fields), version, session=self.session)

    async def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request and return the response. Raises ProtocolError."""
        return await self.start(api, version, **fields).response()

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        """Choose a mechanism."""
        return await self.call(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)

    async def authenticate(self, token: bytes, version: int = 2) -> Any:
        """Send a token in a SaslAuthenticate request."""
        return await self.call(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)

    async def bare(self, token: bytes) -> bytes:
        """Send a token without a request header, and return the answer without its length."""
        answer = self.gateway.dispatcher.start(memoryview(bytearray(token)), self.session)
        if isinstance(answer, Later):
            await until_done(answer.due)
            answer = self.gateway.dispatcher.encode(answer)
        assert answer is not None
        frame = b"".join(answer)
        assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
        return frame[4:]

    async def log_in(
        self,
        mechanism: str,
        user: str = "alice",
        password: str = PASSWORD,
        version: int = 2,
        *,
        is_token: bool = False,
    ) -> Any:
        """Log in with SaslHandshake 1; return the last response of SaslAuthenticate."""
        handshake = await self.handshake(mechanism)
        if handshake.error_code:
            return handshake
        if mechanism == "PLAIN":
            return await self.authenticate(plain_token(user, password), version)
        client = scram_client(mechanism, user, password, is_token=is_token)
        first = await self.authenticate(client.first(), version)
        if first.error_code:
            return first
        final = await self.authenticate(client.final(first.auth_bytes), version)
        assert final.error_code or client.accepts(final.auth_bytes)
        return final

    async def is_served(self) -> bool:
        """Return whether a request that needs a login is answered without an error."""
        try:
            response = await self.call(ApiKey.LIST_GROUPS, 0)
        except ProtocolError:
            return False
        return bool(response.error_code == ErrorCode.NONE)


def decoded(frame: bytes, api: ApiKey, version: int) -> Any:
    """Return the response in a frame without its length."""
    return decode_response(frame, api, version)[1]
