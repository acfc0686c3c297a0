"""Logins with tokens (OAUTHBEARER) at the dispatcher: denials, the end of a token, and its log."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError
from kgw.logs import JsonFormatter
from kgw.protocol.api_keys import ApiKey
from kgw.security.principal import ANONYMOUS, Principal
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.handlers.logins import LoginClient, add_user, plain_token
from tests.security.oauth.issuing import (
    HOUR_S,
    NOW_MS,
    NOW_S,
    FixedTrust,
    claims,
    jwk,
    key_set,
    message,
    token,
    token_for,
)
from tests.server.fakes import settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NONE, FAILED = ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED
REFUSED = ErrorCode.ILLEGAL_SASL_STATE
ALICE = Principal("User", "alice")
HOUR_MS = HOUR_S * 1000
DENIAL = b'{"status":"invalid_token"}'
BAD = token(which=2)


def started(delay_ms: int = 0) -> InProcessGateway:
    """Return a gateway at the time at which the tokens are good."""
    config = Config.of(connection_failed_authentication_delay_ms=delay_ms)
    return InProcessGateway(config, clock=ManualClock(wall_ms=NOW_MS))


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway with the user alice, who has a password, too."""
    async with started() as running:
        await add_user(running, "alice")
        yield running
        assert {} == running.gateway.internal_errors


class TokenClient(LoginClient):
    """A connection to a listener with OAUTHBEARER and PLAIN."""

    def __init__(
        self,
        gateway: InProcessGateway,
        max_reauth_ms: int = 0,
        trust: FixedTrust | None = None,
    ) -> None:
        super().__init__(gateway, ("OAUTHBEARER", "PLAIN"), max_reauth_ms)
        self.login.trust = trust or FixedTrust()

    async def show(self, text: str, version: int = 2) -> Any:
        """Choose the mechanism and send a token; return the response."""
        handshake = await self.handshake("OAUTHBEARER")
        assert NONE == handshake.error_code
        return await self.authenticate(message(text), version)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_client_logs_in(gateway: InProcessGateway, version: int) -> None:
    """The session ends with the token, if no limit comes before."""
    client = TokenClient(gateway)
    response = await client.show(token(), version)
    assert (NONE, b"") == (response.error_code, response.auth_bytes)
    assert (HOUR_MS if version else 0) == response.session_lifetime_ms
    assert ALICE == client.session.principal
    assert await client.is_served()
    assert {"done": 1} == +Counter(gateway.metrics.logins)


async def test_a_client_without_headers(gateway: InProcessGateway) -> None:
    """After SaslHandshake 0 the messages have no header, and a denial has none either."""
    client = TokenClient(gateway)
    await client.handshake("OAUTHBEARER", version=0)
    assert b"" == await client.bare(message(token()))
    assert await client.is_served()

    client = TokenClient(gateway)
    await client.handshake("OAUTHBEARER", version=0)
    assert DENIAL == await client.bare(message(BAD))
    with pytest.raises(ProtocolError):
        await client.bare(b"\x01")
    assert ANONYMOUS == client.session.principal


@pytest.mark.parametrize(
    ("max_reauth_ms", "lifetime_ms"), [(0, HOUR_MS), (60_000, 60_000), (2 * HOUR_MS, HOUR_MS)]
)
async def test_the_session_ends(
    gateway: InProcessGateway, max_reauth_ms: int, lifetime_ms: int
) -> None:
    """With the token, or with `connections.max.reauth.ms` if that is less; no request later."""
    client = TokenClient(gateway, max_reauth_ms)
    assert lifetime_ms == (await client.show(token())).session_lifetime_ms
    gateway.manual_clock.advance(lifetime_ms / 1000 - 0.001)
    assert await client.is_served()
    gateway.manual_clock.advance(0.001)
    assert not await client.is_served()


async def test_a_new_token_extends_the_session(gateway: InProcessGateway) -> None:
    """For the same user (KIP-368). The token of before is of no use after its end."""
    client = TokenClient(gateway)
    await client.show(token())
    gateway.manual_clock.advance(HOUR_S - 1)
    later = token_for("alice", exp=NOW_S + 2 * HOUR_S)
    assert HOUR_MS + 1000 == (await client.show(later)).session_lifetime_ms
    gateway.manual_clock.advance(HOUR_S)
    assert await client.is_served()
    assert DENIAL == (await client.show(token())).auth_bytes
    assert not await client.is_served()


async def test_another_user_takes_no_session_over(gateway: InProcessGateway) -> None:
    """Neither with a good token nor with a password."""
    for login in ("token", "password"):
        client = TokenClient(gateway)
        await client.show(token())
        gateway.manual_clock.advance(1.0)
        if login == "token":
            response = await client.show(token_for("bob"))
            assert FAILED == response.error_code
        else:
            response = await client.handshake("PLAIN")
            assert ErrorCode.UNSUPPORTED_SASL_MECHANISM == response.error_code
        assert ALICE == client.session.principal
        assert not await client.is_served()


async def test_a_denial(gateway: InProcessGateway) -> None:
    """The client gets the answer of RFC 7628, answers it, and gets the error; it counts once."""
    client = TokenClient(gateway)
    response = await client.show(BAD)
    assert (NONE, DENIAL, 0) == (
        response.error_code,
        response.auth_bytes,
        response.session_lifetime_ms,
    )
    assert ANONYMOUS == client.session.principal
    response = await client.authenticate(b"\x01")
    assert (FAILED, b"") == (response.error_code, response.auth_bytes)
    assert BAD not in str(response.error_message)
    assert {"failed": 1} == +Counter(gateway.metrics.logins)
    for api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        with pytest.raises(ProtocolError):
            await client.call(api, 0)


@pytest.mark.parametrize("next_api", [ApiKey.LIST_GROUPS, ApiKey.METADATA, ApiKey.SASL_HANDSHAKE])
async def test_a_client_that_takes_a_denial_for_success(
    gateway: InProcessGateway, next_api: ApiKey
) -> None:
    """As aiokafka does: nothing is served, and the connection ends."""
    client = TokenClient(gateway)
    await client.show(BAD)
    response = await client.call(next_api, 1)
    if next_api is ApiKey.METADATA:
        assert ([], []) == (response.brokers, response.topics)
    else:
        assert REFUSED == response.error_code
    assert not await client.is_served()
    assert ANONYMOUS == client.session.principal


async def test_a_good_token_after_a_bad_one(gateway: InProcessGateway) -> None:
    """It needs a new connection."""
    client = TokenClient(gateway)
    await client.show(BAD)
    response = await client.authenticate(message(token()))
    assert FAILED == response.error_code
    assert not await client.is_served()
    assert NONE == (await TokenClient(gateway).show(token())).error_code


async def test_a_message_of_another_mechanism(gateway: InProcessGateway) -> None:
    """It is refused at once."""
    client = TokenClient(gateway)
    await client.handshake("OAUTHBEARER")
    assert FAILED == (await client.authenticate(plain_token("alice"))).error_code
    assert not await client.is_served()


async def test_two_tokens_at_once(gateway: InProcessGateway) -> None:
    """The second one ends the login, whichever is good."""
    client = TokenClient(gateway)
    await client.handshake("OAUTHBEARER")
    first = client.start(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message(token()))
    second = client.start(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message(token_for("bob")))
    answers: list[Any] = [await one.response() for one in (first, second)]
    assert [FAILED, FAILED] == [one.error_code for one in answers]
    assert ANONYMOUS == client.session.principal
    assert not await client.is_served()


async def test_a_denial_waits() -> None:
    """As long as the answer to a wrong password; the error after it does not wait again."""
    async with started(delay_ms=700) as running:
        await running.gateway.load_credentials()
        client, clock = TokenClient(running), running.manual_clock
        login = asyncio.ensure_future(client.show(BAD))
        await until(lambda: login.done() or bool(running.metrics.logins.get("failed")))
        await settle()
        clock.advance(0.699)
        await settle()
        assert not login.done()
        clock.advance(0.002)
        await settle(20)
        assert DENIAL == login.result().auth_bytes
        assert FAILED == (await client.authenticate(b"\x01")).error_code


async def test_a_client_that_does_not_answer_a_denial(gateway: InProcessGateway) -> None:
    """Its connection has a few seconds, also if it was logged in before."""
    client = TokenClient(gateway)
    await client.show(token())
    gateway.manual_clock.advance(1.0)
    assert float("inf") == client.login.deadline_s
    assert DENIAL == (await client.show(BAD)).auth_bytes
    assert client.login.deadline_s <= gateway.manual_clock.monotonic_s() + 5.0


async def test_an_unknown_key(gateway: InProcessGateway) -> None:
    """The login waits until the key set was fetched again."""

    class Rotated(FixedTrust):
        async def find_again(self, header: Any) -> Any:
            await asyncio.sleep(0)
            self.keys = FixedTrust().keys
            return await super().find_again(header)

    for text, served in ((token(), True), (token(header={"kid": "unknown"}), False)):
        trust = Rotated(key_set(jwk("ES256", "old", which=2)))
        client = TokenClient(gateway, trust=trust)
        await client.show(text)
        assert served == await client.is_served()
        assert 1 == len(trust.asked)


@pytest.mark.parametrize(
    ("text", "user", "why"),
    [
        (token(which=2), None, "the signature is wrong"),
        (token_for("carol", exp=NOW_S - 60), "carol", "the token has expired"),
        (token_for("carol", aud="other"), "carol", "the audience has none of"),
        (token(payload=claims(sub="carol\nforged")), None, "cannot be seen"),
    ],
    # Signatures differ from process to process.
    ids=["signature", "expired", "audience", "subject"],
)
async def test_the_log(
    gateway: InProcessGateway,
    caplog: pytest.LogCaptureFixture,
    text: str,
    user: str | None,
    why: str,
) -> None:
    """An operator learns why, and of whom if the signature is right; the token is never logged."""
    caplog.set_level(logging.DEBUG)
    client = TokenClient(gateway)
    await client.show(text)
    await client.authenticate(b"\x01")
    (record,) = [one for one in caplog.records if one.name == "kgw.handlers.login"]
    line = JsonFormatter().format(record)
    assert why in line
    assert "OAUTHBEARER" in line
    assert "192.0.2.7" in line
    assert (user is not None) == ("carol" in line)
    for part in text.split("."):
        assert part not in line + caplog.text
