"""Logins at the dispatcher: whole ones, requests before the end of one, and the end of a session.

The campaigns A4 (re-authentication) and A5 (before the login) are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.table import HANDLERS
from kgw.logs import JsonFormatter
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class
from kgw.protocol.framing import request_frame
from kgw.security.principal import ANONYMOUS, Principal
from kgw.testing.gateway import InProcessGateway
from tests.handlers.logins import (
    MECHANISMS,
    LoginClient,
    add_user,
    decoded,
    plain_token,
    scram_client,
)
from tests.handlers.support import request_of
from tests.security.sasl.logins import PASSWORD
from tests.server.fakes import settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.protocol.schema import Struct

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ALICE = Principal("User", "alice")
REFUSED = ErrorCode.ILLEGAL_SASL_STATE
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
OF_A_LOGIN = {"API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"}


@pytest.fixture
async def users() -> AsyncIterator[InProcessGateway]:
    """A gateway with the users alice and bob, which answers failed logins at once."""
    config = Config.of(connection_failed_authentication_delay_ms=0)
    async with InProcessGateway(config) as running:
        await add_user(running, "alice")
        await add_user(running, "bob")
        yield running
        assert {} == running.gateway.internal_errors


class TestWholeLogins:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_with_sasl_authenticate(
        self, users: InProcessGateway, mechanism: str, version: int
    ) -> None:
        """Each mechanism logs a client in through each version of SaslAuthenticate."""
        client = LoginClient(users)
        response = await client.log_in(mechanism, version=version)
        assert (ErrorCode.NONE, None) == (response.error_code, response.error_message)
        assert ALICE == client.session.principal
        assert await client.is_served()
        assert {"done": 1} == +Counter(users.metrics.logins)

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    async def test_the_exchange_is_forgotten_at_the_end(
        self, users: InProcessGateway, mechanism: str
    ) -> None:
        """It knows the keys of the user, and no further token may reach it."""
        client = LoginClient(users)
        await client.log_in(mechanism)
        login = client.session.login
        assert login is not None
        assert login.exchange is None

    async def test_plain_with_bare_tokens(self, users: InProcessGateway) -> None:
        """After SaslHandshake 0 the token has no header, and neither has the answer."""
        client = LoginClient(users)
        await client.handshake("PLAIN", version=0)
        assert b"" == await client.bare(plain_token("alice"))
        assert ALICE == client.session.principal
        assert await client.is_served()

    @pytest.mark.parametrize("mechanism", SCRAM)
    async def test_scram_with_bare_tokens(self, users: InProcessGateway, mechanism: str) -> None:
        """Both sides prove that they know the password, without request headers."""
        client, scram = LoginClient(users), scram_client(mechanism, "alice")
        await client.handshake(mechanism, version=0)
        server_first = await client.bare(scram.first())
        assert ANONYMOUS == client.session.principal
        assert scram.accepts(await client.bare(scram.final(server_first)))
        assert ALICE == client.session.principal
        assert await client.is_served()

    async def test_the_versions_are_asked_before(self, users: InProcessGateway) -> None:
        """Clients ask for the versions first, and may do so several times."""
        client = LoginClient(users)
        who = {"client_software_name": "test", "client_software_version": "1"}
        for version, fields in ((3, who), (0, {})):
            response = await client.call(ApiKey.API_VERSIONS, version, **fields)
            assert response.error_code == ErrorCode.NONE
        unknown = b"".join(request_frame(request_of(ApiKey.API_VERSIONS, **who), 4, 7, "new"))[4:]
        newer = unknown[:2] + (99).to_bytes(2, "big") + unknown[4:]
        answer = decoded(await client.bare(newer), ApiKey.API_VERSIONS, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.log_in("PLAIN")).error_code == ErrorCode.NONE

    async def test_another_mechanism_may_be_chosen(self, users: InProcessGateway) -> None:
        """A mechanism that is not offered is answered with the offered ones, in both versions."""
        client = LoginClient(users, SCRAM)
        for version in (0, 1):
            for name in ("PLAIN", "GSSAPI", "", "scram-sha-256"):
                response = await client.handshake(name, version)
                assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                assert list(SCRAM) == response.mechanisms
        assert not client.login.has_bare_tokens
        assert (await client.log_in("SCRAM-SHA-512")).error_code == ErrorCode.NONE

    async def test_a_login_without_an_end(self, users: InProcessGateway) -> None:
        """Nothing can be chosen again then, and nothing breaks by the attempt."""
        client = LoginClient(users)
        assert 0 == (await client.log_in("PLAIN")).session_lifetime_ms
        users.manual_clock.advance(1e9)
        assert (await client.handshake("PLAIN")).error_code == REFUSED
        assert (await client.authenticate(plain_token("bob"))).error_code == REFUSED
        assert await client.is_served()
        assert ALICE == client.session.principal

    async def test_a_listener_without_a_login(self, users: InProcessGateway) -> None:
        """Both requests are refused, and the connection serves on."""
        response: Any = await users.request(request_of(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN"), 1)
        assert response.error_code == REFUSED
        response = await users.request(
            request_of(ApiKey.SASL_AUTHENTICATE, auth_bytes=plain_token("alice")), 2
        )
        assert response.error_code == REFUSED
        assert ANONYMOUS == users.session.principal

    async def test_a_server_that_stands_by(self) -> None:
        """It knows no users, and ends the connection, so that the client asks another node."""
        async with InProcessGateway() as running:
            assert running.gateway.credentials is None
            with pytest.raises(ProtocolError, match="stands by"):
                await LoginClient(running).handshake("SCRAM-SHA-256")

    async def test_a_token_without_a_handshake(self, users: InProcessGateway) -> None:
        """There is no mechanism yet."""
        client = LoginClient(users)
        with pytest.raises(ProtocolError):
            await client.authenticate(plain_token("alice"))
        assert ANONYMOUS == client.session.principal


class TestFailedLogins:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("user", ["alice", "nobody"])
    async def test_wrong_password(self, users: InProcessGateway, mechanism: str, user: str) -> None:
        """Known and unknown users get the same words, and then nothing more is answered."""
        client = LoginClient(users)
        response = await client.log_in(mechanism, user, "wrong")
        assert FAILED == response.error_code
        assert (
            "Authentication failed during authentication due to invalid credentials with "
            f"SASL mechanism {mechanism}" == response.error_message
        )
        assert b"" == response.auth_bytes
        assert ANONYMOUS == client.session.principal
        assert {"failed": 1} == +Counter(users.metrics.logins)
        for api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            with pytest.raises(ProtocolError):
                await client.call(api, 0)
        assert not await client.is_served()

    async def test_bare_tokens(self, users: InProcessGateway) -> None:
        """There is no answer for an error: the connection ends."""
        client = LoginClient(users)
        await client.handshake("PLAIN", version=0)
        with pytest.raises(ProtocolError, match="Authentication failed"):
            await client.bare(plain_token("alice", "wrong"))
        assert not client.login.has_bare_tokens
        assert not await client.is_served()

    @pytest.mark.parametrize("token", [b"", b"x", b"xy"])
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    async def test_a_short_bare_token_is_a_failed_login(
        self, users: InProcessGateway, mechanism: str, token: bytes
    ) -> None:
        """It is counted and logged as one, as in Kafka, and is taken for no request."""
        client = LoginClient(users)
        await client.handshake(mechanism, version=0)
        frame = memoryview(bytearray(token))
        assert not users.dispatcher.may_overlap(frame)
        assert not users.dispatcher.is_fetch(frame)
        with pytest.raises(ProtocolError, match="Authentication failed"):
            await client.bare(token)
        assert {"failed": 1} == +Counter(users.metrics.logins)

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("is_bare", [False, True])
    async def test_the_answer_waits(self, mechanism: str, is_bare: bool) -> None:
        """Passwords cannot be tried faster than `connection.failed.authentication.delay.ms`."""
        config = Config.of(connection_failed_authentication_delay_ms=700)
        async with InProcessGateway(config) as running:
            await add_user(running, "alice")
            client = LoginClient(running)
            login = asyncio.ensure_future(self._fail(client, mechanism, is_bare=is_bare))
            clock = running.manual_clock
            await until(lambda: login.done() or bool(running.metrics.logins.get("failed")))
            await settle()
            clock.advance(0.699)
            await settle()
            assert not login.done()
            clock.advance(0.002)
            await settle(20)
            assert login.done()
            await login

    @staticmethod
    async def _fail(client: LoginClient, mechanism: str, *, is_bare: bool) -> None:
        if not is_bare:
            assert FAILED == (await client.log_in(mechanism, password="wrong")).error_code
            return
        await client.handshake(mechanism, version=0)
        with pytest.raises(ProtocolError):
            await client.bare(plain_token("alice", "wrong") if mechanism == "PLAIN" else b"n,,x")

    async def test_a_login_that_succeeds_does_not_wait(self) -> None:
        """The delay is for failed logins only: this clock stands still."""
        config = Config.of(connection_failed_authentication_delay_ms=60_000)
        async with InProcessGateway(config) as running:
            await add_user(running, "alice")
            for mechanism in MECHANISMS:
                assert (await LoginClient(running).log_in(mechanism)).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    async def test_the_log(
        self, users: InProcessGateway, caplog: pytest.LogCaptureFixture, mechanism: str
    ) -> None:
        """An operator learns who failed and why; no password, and no line of the client's own."""
        caplog.set_level(logging.DEBUG)
        secret = "canary-6011"
        client = LoginClient(users)
        await client.log_in(mechanism, "alice\nforged", secret)
        (record,) = [one for one in caplog.records if one.name == "kgw.handlers.login"]
        line = JsonFormatter().format(record)
        assert "\n" not in line
        assert '"user":"alice\\nforged"' in line.replace('": ', '":')
        assert "unknown" in line
        assert mechanism in line
        assert "192.0.2.7" in line
        assert secret not in caplog.text + line

    async def test_many_failures_are_one_line(
        self, users: InProcessGateway, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Connections to one listener share the log, and say how many lines were left out."""
        client = LoginClient(users)
        for _ in range(5):
            other = LoginClient(users)
            other.login = other.session.login = type(other.login)(
                MECHANISMS, 0, 1e9, client.login.failures
            )
            await other.log_in("PLAIN", password="wrong")
        lines = [one for one in caplog.records if one.name == "kgw.handlers.login"]
        assert 1 == len(lines)
        assert 5 == users.metrics.logins["failed"]


def deep(struct: type[Struct]) -> dict[str, Any]:
    """Return the fields of a request that would create the topic `stolen`, or read a topic."""
    if struct is request_class(ApiKey.CREATE_TOPICS):
        topic = {"name": "stolen", "num_partitions": 1, "replication_factor": 1}
        return {"topics": [topic], "timeout_ms": 1000}
    if struct is request_class(ApiKey.METADATA):
        return {"topics": [{"name": "stolen"}], "allow_auto_topic_creation": True}
    return {}


def every_request() -> list[tuple[ApiKey, int]]:
    """Return each API and version of the table."""
    return [
        (handler.api_key, version)
        for handler in HANDLERS.values()
        for version in range(handler.min_version, handler.max_version + 1)
    ]


def request_bytes(api: ApiKey, version: int) -> bytes:
    """Return a request without its length; with an effect, if its fields can be written."""
    request_type = request_class(api)
    present = {
        name: value
        for name, value in deep(request_type).items()
        if request_type.field_table[name].present(version)
    }
    return b"".join(request_frame(request_of(api, **present), version, 5, "early"))[4:]


def codes(value: Any, version: int) -> set[int]:
    """Return every error code in an answer of this version."""
    if isinstance(value, list):
        return set().union(*(codes(one, version) for one in value))
    if not hasattr(value, "field_table"):
        return set()
    names = [name for name, one in type(value).field_table.items() if one.present(version)]
    found = {value.error_code} if "error_code" in names else set()
    return found.union(*(codes(getattr(value, name), version) for name in names))


class TestBeforeTheLogin:
    """Campaign A5."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("state", "admitted"),
        [
            ("before", {"API_VERSIONS", "SASL_HANDSHAKE"}),
            ("refused mechanism", {"API_VERSIONS", "SASL_HANDSHAKE"}),
            ("after the handshake", {"SASL_AUTHENTICATE"}),
            ("half-way", {"SASL_AUTHENTICATE"}),
            ("failed", set()),
            ("refused", set()),
            ("failed again", set()),
        ],
    )
    async def test_every_request(
        self, users: InProcessGateway, state: str, admitted: set[str]
    ) -> None:
        """Each API in each version is closed or refused, and none is handled."""
        handled = set()
        tried = 0
        mixed: list[tuple[str, int]] = []
        for api, version in every_request():
            client = await self._client_in(state, users)
            principal = client.session.principal
            before = dict(users.metrics.requests)
            answer = None
            with contextlib.suppress(ProtocolError):
                answer = await client.bare(request_bytes(api, version))
            tried += 1
            if before != users.metrics.requests:
                handled.add(api.name)
            elif answer is not None:
                if not codes(decoded(answer, api, version), version) <= {REFUSED}:
                    mixed.append((api.name, version))
                assert state in {"after the handshake", "half-way"}
                assert not await client.is_served()
            assert principal == client.session.principal
        assert tried > 250
        assert [] == mixed
        assert admitted == handled
        assert OF_A_LOGIN | ({"LIST_GROUPS"} if state == "failed again" else set()) >= set(
            users.metrics.requests
        )
        assert [] == [topic.name for topic in users.catalog.topics.values()]

    @staticmethod
    async def _client_in(state: str, users: InProcessGateway) -> LoginClient:
        client = LoginClient(users, max_reauth_ms=60_000)
        if state == "refused mechanism":
            await client.handshake("GSSAPI")
        elif state == "after the handshake":
            await client.handshake("SCRAM-SHA-256")
        elif state == "half-way":
            await client.handshake("SCRAM-SHA-256")
            await client.authenticate(scram_client("SCRAM-SHA-256", "alice").first())
        elif state == "failed":
            await client.handshake("SCRAM-SHA-256")
            await client.authenticate(b"n,,x")
        elif state == "refused":
            await client.handshake("SCRAM-SHA-256")
            assert (await client.call(ApiKey.LIST_GROUPS, 0)).error_code == REFUSED
        elif state == "failed again":
            await client.log_in("SCRAM-SHA-256")
            assert await client.is_served()
            await client.handshake("SCRAM-SHA-256")
            await client.authenticate(b"n,,x")
        return client

    async def test_a_refusal_does_not_name_the_directory(self, users: InProcessGateway) -> None:
        """The answer of DescribeLogDirs has its error code beside a directory up to version 2."""
        for version in range(6):
            client = LoginClient(users)
            await client.handshake("PLAIN")
            response = await client.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
            assert {REFUSED} == codes(response, version) - {ErrorCode.NONE}
            assert users.backend.location not in repr(response)

    async def test_keys_that_do_not_exist(self, users: InProcessGateway) -> None:
        """They close the connection in each state, and are no bugs."""
        for state in ("before", "after the handshake", "half-way", "failed"):
            for key in (-1, 10_000, 32_767, 4, 5, 7):
                client = await self._client_in(state, users)
                frame = key.to_bytes(2, "big", signed=True) + bytes(8)
                with pytest.raises(ProtocolError):
                    await client.bare(frame)

    async def test_short_frames(self, users: InProcessGateway) -> None:
        """A frame without a whole header is no bug, though tokens may be that short."""
        for state in ("before", "after the handshake", "half-way", "failed"):
            for size in range(8):
                client = await self._client_in(state, users)
                with pytest.raises(ProtocolError):
                    await client.bare(bytes(size))

    async def test_every_request_in_place_of_a_bare_token(self, users: InProcessGateway) -> None:
        """After SaslHandshake 0 each frame is a token: a request fails the login."""
        for api, version in every_request():
            client = LoginClient(users)
            await client.handshake("PLAIN", version=0)
            with pytest.raises(ProtocolError):
                await client.bare(request_bytes(api, version))
            assert ANONYMOUS == client.session.principal
            assert not await client.is_served()
        assert {"SASL_HANDSHAKE"} == set(users.metrics.requests)

    async def test_requests_while_a_password_is_hashed(self, users: InProcessGateway) -> None:
        """A request that arrives meanwhile is refused, and the login does not outlive that."""
        client = LoginClient(users)
        await client.handshake("PLAIN")
        login = client.start(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain_token("alice"))
        await settle(1)
        refused = await client.call(ApiKey.LIST_GROUPS, 0)
        assert refused.error_code == REFUSED
        response: Any = await login.response()
        assert response.error_code == FAILED
        assert ANONYMOUS == client.session.principal
        assert not await client.is_served()

    async def test_the_principal_is_set_at_the_end(self, users: InProcessGateway) -> None:
        """A claimed name is nobody's identity before the proof."""
        client, scram = LoginClient(users), scram_client("SCRAM-SHA-512", "alice")
        seen = [client.session.principal]
        await client.handshake("SCRAM-SHA-512")
        seen.append(client.session.principal)
        first = await client.authenticate(scram.first())
        seen.append(client.session.principal)
        assert [ANONYMOUS] * 3 == seen
        await client.authenticate(scram.final(first.auth_bytes))
        assert ALICE == client.session.principal

    async def test_an_exchange_cannot_be_used_twice(self, users: InProcessGateway) -> None:
        """What one connection has sent logs no other one in."""
        client, scram = LoginClient(users), scram_client("SCRAM-SHA-256", "alice")
        await client.handshake("SCRAM-SHA-256")
        final = scram.final((await client.authenticate(scram.first())).auth_bytes)
        assert (await client.authenticate(final)).error_code == ErrorCode.NONE
        thief = LoginClient(users)
        await thief.handshake("SCRAM-SHA-256")
        await thief.authenticate(scram.first())
        assert FAILED == (await thief.authenticate(final)).error_code


class TestReauthentication:
    """Campaign A4."""

    KINDS = (
        "expired",
        "expired, then again",
        "in time",
        "changed principal",
        "changed mechanism",
        "requests in between",
        "wrong password",
        "again within a second",
        "left half-way",
    )

    @pytest.mark.parametrize("kind", KINDS)
    async def test_sessions(self, users: InProcessGateway, kind: str) -> None:
        """Nothing is served after the end of a session, and nobody becomes somebody else."""
        random = Random(kind)
        for _ in range(14):
            mechanism = random.choice(MECHANISMS)
            lifetime_ms = random.choice([1_500, 10_000, 3_600_000])
            client = LoginClient(users, max_reauth_ms=lifetime_ms)
            response = await client.log_in(mechanism, version=random.choice([1, 2]))
            assert lifetime_ms == response.session_lifetime_ms
            assert await client.is_served()
            await self._go_on(kind, client, mechanism, lifetime_ms, random)
            # Whatever has happened, alice is still alice.
            assert ALICE == client.session.principal

    def test_there_are_enough_cases(self) -> None:
        """The campaign has at least a hundred."""
        assert 100 <= 14 * len(self.KINDS)

    async def _go_on(
        self, kind: str, client: LoginClient, mechanism: str, lifetime_ms: int, random: Random
    ) -> None:
        clock = client.gateway.manual_clock
        served = client.is_served
        if kind == "expired":
            clock.advance(lifetime_ms / 1000 - 0.001)
            assert await served()
            clock.advance(random.choice([0.001, 0.002, 1.0, 1e6]))
            assert not await served()
            with pytest.raises(ProtocolError):
                await client.call(ApiKey.API_VERSIONS, 3)
        elif kind == "expired, then again":
            # Kafka takes a login that comes late, too: its client may have been idle.
            clock.advance(lifetime_ms / 1000 + random.random() * 100)
            assert (await client.log_in(mechanism)).session_lifetime_ms == lifetime_ms
            assert await served()
            clock.advance(lifetime_ms / 1000)
            assert not await served()
        elif kind == "in time":
            for _ in range(4):
                clock.advance(max(1.0, lifetime_ms / 1000 * random.uniform(0.5, 0.99)))
                assert (await client.log_in(mechanism)).session_lifetime_ms == lifetime_ms
                assert await served()
            clock.advance(lifetime_ms / 1000)
            assert not await served()
        elif kind == "changed principal":
            clock.advance(1.0)
            assert FAILED == (await client.log_in(mechanism, "bob")).error_code
            assert not await served()
        elif kind == "changed mechanism":
            clock.advance(1.0)
            other = random.choice([one for one in MECHANISMS if one != mechanism])
            response = await client.handshake(other, random.choice([0, 1]))
            assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert not await served()
            with pytest.raises(ProtocolError):
                await client.handshake(mechanism)
        elif kind == "requests in between":
            clock.advance(1.0)
            await client.handshake(mechanism)
            api = random.choice([ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE])
            assert codes(await client.call(api, 0), 0) == {REFUSED}
            assert not await served()
            with pytest.raises(ProtocolError):
                await client.authenticate(plain_token("alice"))
        elif kind == "wrong password":
            clock.advance(1.0)
            assert FAILED == (await client.log_in(mechanism, password="wrong")).error_code
            assert not await served()
        elif kind == "again within a second":
            clock.advance(0.2)
            assert (await client.log_in(mechanism)).error_code == ErrorCode.NONE
            clock.advance(0.999)
            assert (await client.handshake(mechanism)).error_code == REFUSED
            assert await served()
            clock.advance(0.001)
            assert (await client.log_in(mechanism)).error_code == ErrorCode.NONE
        else:
            clock.advance(1.0)
            await client.handshake(mechanism)
            if mechanism != "PLAIN":
                await client.authenticate(scram_client(mechanism, "alice").first())
            clock.advance(lifetime_ms / 1000)
            assert codes(await client.call(ApiKey.LIST_GROUPS, 0), 0) == {REFUSED}
            assert not await served()

    async def test_a_login_with_bare_tokens_ends_too(self, users: InProcessGateway) -> None:
        """Such a client is not told when, and has to log in again on a new connection."""
        client = LoginClient(users, max_reauth_ms=5_000)
        await client.handshake("PLAIN", version=0)
        await client.bare(plain_token("alice"))
        users.manual_clock.advance(4.999)
        assert await client.is_served()
        users.manual_clock.advance(0.001)
        assert not await client.is_served()

    async def test_a_changed_wall_clock_ends_nothing(self, users: InProcessGateway) -> None:
        """A failed login of another connection ends nothing either."""
        client, other = LoginClient(users, max_reauth_ms=5_000), LoginClient(users)
        await client.log_in("PLAIN")
        await other.log_in("PLAIN", password="wrong")
        assert await client.is_served()

    async def test_the_log_names_who_wanted_to_be_somebody_else(
        self, users: InProcessGateway, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The reason and the new name are logged."""
        client = LoginClient(users, max_reauth_ms=5_000)
        await client.log_in("SCRAM-SHA-256")
        users.manual_clock.advance(1.0)
        await client.log_in("SCRAM-SHA-256", "bob")
        (line,) = [one for one in caplog.records if one.name == "kgw.handlers.login"]
        text = JsonFormatter().format(line)
        assert "the principal has changed" in text
        assert '"bob"' in text
        assert PASSWORD not in text
