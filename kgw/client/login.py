"""The client's login: SaslHandshake, then the tokens of the mechanism in SaslAuthenticate."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Protocol, TypeVar

from kgw.client.errors import LoginError, LoginRefusedError
from kgw.client.scram import ScramClient, ScramError, plain_token
from kgw.client.security import ClientLogin
from kgw.errors import ErrorCode
from kgw.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kgw.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kgw.security.sasl.oauthbearer import OAUTHBEARER
from kgw.security.sasl.plain import PLAIN
from kgw.security.sasl.scram import ScramMechanism, salt_password

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.client.token_login import TokenLogin
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


async def log_in(ask: Ask, address: str, login: ClientLogin | TokenLogin, now_s: float) -> int:
    """Log in; return for how many ms the login lasts, 0 if as long as the connection.

    `now_s` is monotonic time. Passwords are hashed in a thread. Raises LoginRefusedError if the
    server refuses, LoginError if it breaks the rules of SCRAM or does not prove itself, or if there
    is no token.
    """
    # Asked for first, because a server does not wait long for the end of a login.
    token = "" if isinstance(login, ClientLogin) else await login.source.token(now_s)
    await _choose(ask, address, login)

    async def exchange(token: bytes) -> SaslAuthenticateResponse:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 0)
        if answer.error_code:
            # A server that knows the password or the token could send it back in any form.
            shows_secret = login.mechanism in {PLAIN, OAUTHBEARER}
            said = "" if shows_secret else answer.error_message or ""
            raise LoginRefusedError(answer.error_code, f"{address} refused {login}", said)
        return answer

    if not isinstance(login, ClientLogin):
        return await _show_token(exchange, address, login, token)
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
        raise LoginError(f"{login} at {address} failed: {error}") from None
    return answer.session_lifetime_ms


async def _show_token(
    exchange: Callable[[bytes], Awaitable[SaslAuthenticateResponse]],
    address: str,
    login: TokenLogin,
    token: str,
) -> int:
    """Send the token; return for how many ms the login lasts."""
    from kgw.client.token_login import ACKNOWLEDGED, denial

    answer = await exchange(login.message(token))
    if not answer.auth_bytes:
        return answer.session_lifetime_ms
    # The server denies the token, and sends the error as the answer to one byte (RFC 7628).
    reason = denial(answer.auth_bytes)
    with suppress(LoginRefusedError):
        await exchange(ACKNOWLEDGED)
    raise LoginRefusedError(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"{address} refused {login}",
        f"it does not accept the token ({reason})",
    )


async def _choose(ask: Ask, address: str, login: ClientLogin | TokenLogin) -> None:
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
        raise LoginRefusedError(answer.error_code, f"{address} refused {login}")
