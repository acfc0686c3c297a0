"""Users at the admin listeners: passwords of HTTP Basic, beside the token and certificates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.admin.endpoints import ALL_ENDPOINTS
from kgw.admin.token import TokenFile
from kgw.config import Config
from kgw.security.principal import Principal
from kgw.security.proved_passwords import LASTS_S
from kgw.security.sasl.scram import ScramMechanism
from kgw.testing.gateway import InProcessGateway
from tests.admin.asking import Admin, basic
from tests.handlers.logins import add_user
from tests.server.fakes import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PASSWORD = "canary-5172"
ALICE = (basic("alice", PASSWORD),)
TOKEN = "correct-horse-battery"
BEARER = (f"Bearer {TOKEN}",)


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway with the user alice, which answers failed logins at once."""
    config = Config.of(admin_login=True, connection_failed_authentication_delay_ms=0)
    async with InProcessGateway(config) as running:
        await add_user(running, "alice", PASSWORD)
        yield running
        assert {} == running.internal_errors


@pytest.fixture
def admin(gateway: InProcessGateway) -> Admin:
    """The application over that gateway."""
    return Admin(gateway.gateway)


@pytest.fixture
def token(tmp_path: Path) -> TokenFile:
    """A token beside the users."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return TokenFile(str(file))


@pytest.mark.parametrize("path", [one.path for one in ALL_ENDPOINTS])
async def test_every_path(admin: Admin, path: str) -> None:
    """Without a login every path is refused but for probes, which get one field."""
    answer = await admin.get(path)
    if path.startswith("/health/"):
        assert (200, 1) == (answer.status, len(answer.value))
    else:
        assert 401 == answer.status
        assert 'Basic realm="kgw", charset="UTF-8"' == answer.headers["www-authenticate"]
        assert "close" == answer.headers["connection"]
    told = await admin.get(path, authorizations=ALICE)
    assert told.status in {200, 400}
    if path == "/health/ready":
        assert "problems" in told.value


@pytest.mark.parametrize(
    "authorizations",
    [
        (basic("alice", PASSWORD + "x"),),
        (basic("alice", PASSWORD[:-1]),),
        (basic("alice", ""),),
        (basic("Alice", PASSWORD),),
        (basic("bob", PASSWORD),),
        (basic("*", PASSWORD),),
        (basic("", PASSWORD),),
        ("Basic",),
        ("Basic canary",),
        (ALICE[0][:-3],),
        (f"Bearer {PASSWORD}",),
        (f"Negotiate {PASSWORD}",),
        (ALICE[0].removeprefix("Basic "),),
        (*ALICE, *ALICE),
        (*BEARER, *ALICE),
        ("",),
    ],
)
async def test_other_credentials(
    admin: Admin, authorizations: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """What is almost the user and the password is refused, also by probes' paths, and not told."""
    for path in ("/metrics", "/health/live", "/none"):
        answer = await admin.get(path, authorizations=authorizations)
        assert 401 == answer.status
        assert b"canary" not in answer.body
    assert "canary" not in "".join(str(vars(one)) for one in caplog.records)


async def test_unknown_users_get_the_same_answer(admin: Admin) -> None:
    """An answer does not tell whether a user exists."""
    answers = [
        await admin.get("/metrics", authorizations=(basic(user, "wrong"),))
        for user in ("alice", "nobody")
    ]
    assert answers[0] == answers[1]


async def test_the_password_is_hashed_once(admin: Admin, gateway: InProcessGateway) -> None:
    """A scrape each second costs a hash in five minutes, not sixty a minute."""
    clock, logins = gateway.manual_clock, gateway.metrics.logins
    for _ in range(int(LASTS_S) - 1):
        assert 200 == (await admin.get("/api/v1", authorizations=ALICE)).status
        clock.advance(1)
    assert {"done": 1} == logins
    clock.advance(2)
    assert 200 == (await admin.get("/api/v1", authorizations=ALICE)).status
    assert {"done": 2} == logins


async def test_another_password(admin: Admin, gateway: InProcessGateway) -> None:
    """The next request knows that the password has changed, and that the user is deleted."""
    assert 200 == (await admin.get("/metrics", authorizations=ALICE)).status
    await add_user(gateway, "alice", "another")
    assert 401 == (await admin.get("/metrics", authorizations=ALICE)).status
    other = (basic("alice", "another"),)
    assert 200 == (await admin.get("/metrics", authorizations=other)).status
    credentials = await gateway.gateway.load_credentials()
    await credentials.change({(mechanism, "alice"): None for mechanism in ScramMechanism})
    assert 401 == (await admin.get("/metrics", authorizations=other)).status


async def test_a_failure_is_answered_late() -> None:
    """The delay is that of Kafka's listeners; meanwhile others are answered."""
    async with InProcessGateway(Config.of(admin_login=True)) as gateway:
        await add_user(gateway, "alice", PASSWORD)
        admin, clock = Admin(gateway.gateway), gateway.manual_clock
        failing = asyncio.ensure_future(
            admin.get("/metrics", authorizations=(basic("alice", "wrong"),))
        )
        await until(lambda: gateway.metrics.logins.get("failed") == 1)
        assert 200 == (await admin.get("/metrics", authorizations=ALICE)).status
        clock.advance(0.099)
        await asyncio.sleep(0)
        assert not failing.done()
        clock.advance(0.001)
        assert 401 == (await failing).status


async def test_many_failures(
    admin: Admin, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """After ten a name has to wait at its address; others are served meanwhile."""
    assert 200 == (await admin.get("/metrics", authorizations=ALICE)).status
    wrong = (basic("alice", "wrong"),)
    statuses = [(await admin.get("/metrics", authorizations=wrong)).status for _ in range(12)]
    assert [401] * 10 + [429] * 2 == statuses
    refused = await admin.get("/metrics", authorizations=ALICE)
    assert (429, "60") == (refused.status, refused.headers["retry-after"])
    assert 200 == (await admin.get("/metrics", authorizations=ALICE, client="10.0.0.9")).status
    assert 200 == (await admin.get("/health/live")).status
    assert 13 == gateway.metrics.admin_unauthorized
    assert {"done": 1, "failed": 10, "limited": 3} == gateway.metrics.logins
    logins = [one for one in caplog.records if one.getMessage() == "a login failed"]
    fields = [one.kgw_fields for one in logins]  # type: ignore[attr-defined]
    assert [("alice", "the password is wrong", "127.0.0.1", "admin")] == [
        (one["user"], one["why"], one["client"], one["listener"]) for one in fields
    ]
    gateway.manual_clock.advance(60)
    assert 200 == (await admin.get("/metrics", authorizations=ALICE)).status


async def test_the_token_beside_users(gateway: InProcessGateway, token: TokenFile) -> None:
    """Either of them is enough, and a refusal names both."""
    admin = Admin(gateway.gateway, token)
    for authorizations in (ALICE, BEARER):
        assert 200 == (await admin.get("/metrics", authorizations=authorizations)).status
    refused = await admin.get("/metrics")
    expected = 'Bearer realm="kgw", Basic realm="kgw", charset="UTF-8"'
    assert (401, expected) == (refused.status, refused.headers["www-authenticate"])
    wrong = f"Bearer {TOKEN}x"
    assert 401 == (await admin.get("/metrics", authorizations=(wrong,))).status
    assert 401 == (await admin.get("/metrics", authorizations=(*ALICE, *BEARER))).status


async def test_users_without_the_setting(token: TokenFile) -> None:
    """A server that has users takes them at its admin side only if it is told to."""
    async with InProcessGateway() as gateway:
        await add_user(gateway, "alice", PASSWORD)
        admin = Admin(gateway.gateway, token)
        assert 401 == (await admin.get("/metrics", authorizations=ALICE)).status
        assert {} == gateway.metrics.logins


async def test_a_server_that_stands_by(token: TokenFile) -> None:
    """It has no users, and says so; the token and probes need none."""
    gateway = InProcessGateway(Config.of(admin_login=True)).gateway
    admin = Admin(gateway, token)
    answer = await admin.get("/metrics", authorizations=ALICE)
    assert (503, {"error": "a server that starts or stands by cannot check a login"}) == (
        answer.status,
        answer.value,
    )
    assert 200 == (await admin.get("/metrics", authorizations=BEARER)).status
    assert 200 == (await admin.get("/health/live")).status
    assert "standby" != (await admin.get("/health/ready")).value.get("leadership")


class TestCertificates:
    async def test_no_host_is_needed(self) -> None:
        """A client whose certificate names it is no web page that is called otherwise."""
        async with InProcessGateway() as gateway:
            admin = Admin(gateway.gateway)
            alice = Principal("User", "alice")
            hosts = ("kgw.example:9644",)
            assert 421 == (await admin.get("/metrics", hosts=hosts)).status
            assert 200 == (await admin.get("/metrics", hosts=hosts, certified=alice)).status

    async def test_no_place_of_a_login(self, admin: Admin) -> None:
        """Where a login is needed a certificate is not enough."""
        alice = Principal("User", "alice")
        assert 401 == (await admin.get("/metrics", certified=alice)).status
