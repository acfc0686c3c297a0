"""What a client is answered when too many logins have failed, and who is not refused."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.login import failure_log
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import Step, Work
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.logins import (
    MECHANISMS,
    LoginClient,
    add_user,
    plain_token,
    scram_client,
)
from tests.security.sasl.logins import PASSWORD
from tests.server.fakes import settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
LIMITED = (
    "Authentication failed: too many logins from this address have failed; try again in a minute "
    "(SASL mechanism {})"
)
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
)
PER_MINUTE = 12
OF_A_NAME = 2
OTHER = "192.0.2.8"


def config(**settings: Any) -> Config:
    """Return a configuration with a small limit, and without a delay."""
    given = {
        "failed_logins_per_minute": PER_MINUTE,
        "connection_failed_authentication_delay_ms": 0,
        **settings,
    }
    return Config.of(**given)


@pytest.fixture
async def users() -> AsyncIterator[InProcessGateway]:
    """A gateway with the users alice and bob."""
    async with InProcessGateway(config()) as running:
        await add_user(running, "alice")
        await add_user(running, "bob")
        yield running
        assert {} == running.gateway.internal_errors


async def answer(
    gateway: InProcessGateway,
    user: str,
    password: str = "wrong",  # noqa: S107 - it is wrong
    mechanism: str = "SCRAM-SHA-256",
    host: str = "192.0.2.7",
) -> tuple[int, str | None]:
    """Log in on a new connection; return the code and the words of the last answer."""
    client = LoginClient(gateway, host=host)
    response = await client.log_in(mechanism, user, PASSWORD if password == "right" else password)
    return response.error_code, response.error_message


async def spend(gateway: InProcessGateway, host: str = "192.0.2.7") -> None:
    """Use up the limit of an address with names that nobody has."""
    for number in range(PER_MINUTE):
        code, _ = await answer(gateway, f"guess-{number}", host=host)
        assert code == FAILED


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_name(users: InProcessGateway, mechanism: str) -> None:
    """After some wrong passwords the right one is refused as well, with other words."""
    for _ in range(OF_A_NAME):
        assert (FAILED, INVALID.format(mechanism)) == await answer(
            users, "alice", mechanism=mechanism
        )
    limited = (FAILED, LIMITED.format(mechanism))
    assert limited == await answer(users, "alice", "right", mechanism)
    assert limited == await answer(users, "alice", "wrong", mechanism)
    assert (0, None) == await answer(users, "bob", "right", mechanism)
    assert (0, None) == await answer(users, "alice", "right", mechanism, OTHER)
    assert {"failed": OF_A_NAME, "limited": 2, "done": 2} == +Counter(users.metrics.logins)
    users.manual_clock.advance(60)
    assert (0, None) == await answer(users, "alice", "right", mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_an_address(users: InProcessGateway, mechanism: str) -> None:
    """Many names use up the address: only who has logged in from it before is served."""
    assert (0, None) == await answer(users, "bob", "right", mechanism)
    await spend(users)
    limited = (FAILED, LIMITED.format(mechanism))
    assert limited == await answer(users, "alice", "right", mechanism)
    assert (0, None) == await answer(users, "bob", "right", mechanism)
    assert (0, None) == await answer(users, "alice", "right", mechanism, OTHER)
    users.manual_clock.advance(60 / PER_MINUTE)
    assert (0, None) == await answer(users, "alice", "right", mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_words_do_not_tell_who_is_exempt(users: InProcessGateway, mechanism: str) -> None:
    """A guesser at the same address is answered alike for every name."""
    assert (0, None) == await answer(users, "bob", "right", mechanism)
    await spend(users)
    limited = (FAILED, LIMITED.format(mechanism))
    for name in ("alice", "bob", "nobody"):
        assert limited == await answer(users, name, mechanism=mechanism)


async def test_ipv6(users: InProcessGateway) -> None:
    """All addresses of a /64 are one: a client has 2^64 of them."""
    for number in range(PER_MINUTE):
        await answer(users, f"guess-{number}", host=f"2001:db8:0:1::{number}")
    beside = await answer(users, "alice", "right", host="2001:db8:0:1:ffff::1")
    assert (FAILED, LIMITED.format("SCRAM-SHA-256")) == beside
    assert (0, None) == await answer(users, "alice", "right", host="2001:db8:0:2::1")


async def test_a_limited_client_gets_no_further(users: InProcessGateway) -> None:
    """Its connection serves nothing, and ends soon, as after every failed login."""
    await spend(users)
    client = LoginClient(users)
    assert FAILED == (await client.log_in("PLAIN")).error_code
    assert not await client.is_served()
    assert client.login.deadline_s <= users.manual_clock.monotonic_s() + 5
    bare = LoginClient(users)
    await bare.handshake("PLAIN", version=0)
    with pytest.raises(ProtocolError, match="too many logins from this address"):
        await bare.bare(plain_token("alice"))


async def test_a_client_that_logs_in_again(users: InProcessGateway) -> None:
    """An open connection stays: its user is neither refused nor counted."""
    client = LoginClient(users, max_reauth_ms=10_000)
    assert 0 == (await client.log_in("SCRAM-SHA-256")).error_code
    for _ in range(OF_A_NAME):
        await answer(users, "alice")
    await spend(users)
    for _ in range(5):
        users.manual_clock.advance(2)
        await answer(users, "nobody")
        assert 0 == (await client.log_in("SCRAM-SHA-256")).error_code
    assert await client.is_served()


async def test_another_user_on_an_open_connection(users: InProcessGateway) -> None:
    """Who has a login of their own cannot try passwords of others without a limit."""
    for number in range(PER_MINUTE):
        client = LoginClient(users, max_reauth_ms=10_000)
        assert 0 == (await client.log_in("PLAIN", "bob")).error_code
        users.manual_clock.advance(1)
        code = (await client.log_in("PLAIN", "alice", f"guess-{number}")).error_code
        assert FAILED == code
    assert users.metrics.logins["limited"] > PER_MINUTE / 2


async def test_messages_that_prove_nothing(users: InProcessGateway) -> None:
    """A client that sends nonsense, or goes away half-way, uses up nobody's limit."""
    for _ in range(3 * PER_MINUTE):
        client = LoginClient(users)
        await client.handshake("SCRAM-SHA-256")
        await client.authenticate(scram_client("SCRAM-SHA-256", "alice").first())
        client = LoginClient(users)
        await client.handshake("PLAIN")
        assert FAILED == (await client.authenticate(b"nonsense")).error_code
    assert (0, None) == await answer(users, "alice", "right")


async def test_logins_at_the_same_time(users: InProcessGateway) -> None:
    """Clients that send the first message at once are not all checked."""
    clients = [(LoginClient(users), scram_client("SCRAM-SHA-256", "alice")) for _ in range(20)]
    finals = []
    for client, scram in clients:
        await client.handshake("SCRAM-SHA-256")
        first = await client.authenticate(scram.first())
        finals.append((client, scram.final(first.auth_bytes)[:-4] + b"AAA="))
    for client, final in finals:
        assert FAILED == (await client.authenticate(final)).error_code
    assert {"failed": OF_A_NAME, "limited": 20 - OF_A_NAME} == +Counter(users.metrics.logins)


class SlowExchange:
    """A login whose password is being checked until the test ends that, and is wrong."""

    mechanism = "PLAIN"

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()

    def respond(self, message: bytes, now_ms: int) -> Step:
        return Work(self._check)

    def _check(self) -> Step:
        self.has_begun.set()
        assert self.may_end.wait(patience.seconds(10))
        raise AuthenticationFailed("PLAIN", "the password is wrong", "alice")


async def test_the_delay_begins_before_the_check(users: InProcessGateway) -> None:
    """A client cannot tell by the time whether its password was checked."""
    users.gateway.config = config(connection_failed_authentication_delay_ms=100)
    clock = users.manual_clock
    client, slow = LoginClient(users), SlowExchange()
    await client.handshake("PLAIN")
    client.login.exchange = slow
    pending = asyncio.ensure_future(client.authenticate(plain_token("alice")))
    await until(slow.has_begun.is_set)
    clock.advance(0.07)
    slow.may_end.set()
    await until(lambda: users.metrics.logins.get("failed") == 1)
    clock.advance(0.02)
    await settle(20)
    assert not pending.done()
    clock.advance(0.01)
    await settle(50)
    assert pending.done()
    assert FAILED == pending.result().error_code


async def test_no_limit() -> None:
    """With 0 every password is checked."""
    async with InProcessGateway(config(failed_logins_per_minute=0)) as gateway:
        await add_user(gateway, "alice")
        for _ in range(50):
            await answer(gateway, "alice")
        assert {"failed": 50} == +Counter(gateway.metrics.logins)
        assert (0, None) == await answer(gateway, "alice", "right")


async def test_the_log(users: InProcessGateway, caplog: pytest.LogCaptureFixture) -> None:
    """One line for many refusals, which names the client and the setting."""
    await spend(users)
    caplog.clear()
    shared = failure_log()
    for _ in range(3):
        client = LoginClient(users)
        client.login.failures = shared
        await client.log_in("SCRAM-SHA-256", "alice")
    (record,) = caplog.records
    assert "a login was refused: too many have failed from this address" == record.getMessage()
    assert {
        "mechanism": "SCRAM-SHA-256",
        "user": "alice",
        "why": "too many logins have failed",
        "client": "192.0.2.7",
        "setting": "kgw.failed.logins.per.minute",
    }.items() <= record.kgw_fields.items()  # type: ignore[attr-defined]
