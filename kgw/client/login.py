"""The client's login: SaslHandshake, then the tokens of the mechanism in SaslAuthenticate."""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Protocol, TypeVar

from kgw.client.errors import LoginError, LoginRefusedError
from kgw.client.scram import ScramClient, ScramError, plain_token
from kgw.config.setting import HIDDEN
from kgw.errors import ErrorCode
from kgw.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kgw.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kgw.security.sasl.scram import ScramMechanism, salt_password

if TYPE_CHECKING:
    from kgw.client.security import ClientLogin
    from kgw.protocol.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound="Response")

_TOKENS_IN_REQUESTS = 1
"""The first version of SaslHandshake after which tokens come in SaslAuthenticate (KIP-152)."""
_NONCE_BYTES = 24


class Ask(Protocol):
    """Sends a request, in the given version or a later one, and returns its response."""

    async def __call__(
        self, message: Request, response_type: type[ResponseT], minimum_version: int
    ) -> ResponseT: ...


async def log_in(ask: Ask, address: str, login: ClientLogin) -> int:
    """Log in; return for how many ms the login lasts, 0 if as long as the connection.

    Passwords are hashed in a thread. Raises LoginRefusedError if the server refuses, LoginError if
    it breaks the rules of SCRAM or does not prove itself.
    """
    await _choose(ask, address, login)

    async def exchange(token: bytes) -> SaslAuthenticateResponse:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 0)
        if answer.error_code:
            # A server could send the password back, as with PLAIN it knows it.
            said = (answer.error_message or "").replace(login.password, HIDDEN)
            raise LoginRefusedError(
                answer.error_code, f"{address} refused the login of {login.user}", said
            )
        return answer

    try:
        mechanism = ScramMechanism.named(login.mechanism)
    except ValueError:
        answer = await exchange(plain_token(login.user, login.password))
        return answer.session_lifetime_ms
    scram = ScramClient(mechanism, login.user, token_urlsafe(_NONCE_BYTES), is_token=login.is_token)
    try:
        challenge = scram.challenge((await exchange(scram.first())).auth_bytes)
        salted_password = await asyncio.to_thread(
            salt_password, mechanism, login.password, challenge.salt, challenge.iterations
        )
        answer = await exchange(scram.final(challenge, salted_password))
        scram.check(answer.auth_bytes)
    except ScramError as error:
        raise LoginError(f"the login of {login.user} at {address} failed: {error}") from None
    return answer.session_lifetime_ms


async def _choose(ask: Ask, address: str, login: ClientLogin) -> None:
    """Tell the server the mechanism. Raises LoginRefusedError."""
    answer = await ask(
        SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, _TOKENS_IN_REQUESTS
    )
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(sorted(answer.mechanisms)) or "no mechanism"
        raise LoginRefusedError(
            answer.error_code,
            f"{address} does not take the mechanism {login.mechanism}",
            f"it takes {enabled}",
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginRefusedError(
            answer.error_code,
            f"{address} asks for no login",
            "is security.protocol right for this listener?",
        )
    if answer.error_code:
        raise LoginRefusedError(answer.error_code, f"{address} refused the login of {login.user}")
