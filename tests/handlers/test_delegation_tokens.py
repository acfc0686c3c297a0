"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError, StorageError
from kgw.handlers.context import Session
from kgw.handlers.table import HANDLERS
from kgw.logs import JsonFormatter
from kgw.protocol.api_keys import ApiKey
from kgw.security.principal import ANONYMOUS, Principal
from kgw.state.kinds import DELEGATION_TOKEN
from kgw.testing.gateway import InProcessGateway
from tests.handlers.logins import MECHANISMS, LoginClient, add_user, scram_client
from tests.handlers.support import START_MS, request_of
from tests.security.sasl.logins import DAY_MS
from tests.server.fakes import settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.config import Value

SECRET = "c4nary-of-the-secret-key-0123456789"
SCRAM = MECHANISMS[1:]
ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
CREATE, RENEW = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = [
    (api, version)
    for api in (CREATE, RENEW, EXPIRE, DESCRIBE)
    for version in range(HANDLERS[api].max_version + 1)
]
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class Token(NamedTuple):
    """What the answer to CreateDelegationToken has."""

    token_id: str
    hmac: bytes

    @property
    def password(self) -> str:
        """The password of a login with the token."""
        return b64encode(self.hmac).decode()


class Served(InProcessGateway):
    """A gateway with tokens, which answers failed logins at once."""

    def __init__(self, backend: MemoryBackend | None = None, **settings: Value) -> None:
        config = {
            "delegation_token_secret_key": SECRET,
            "connection_failed_authentication_delay_ms": 0,
            **settings,
        }
        super().__init__(Config.of(**config), backend)

    async def call(self, who: Principal, api: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request of a client that has logged in; return the response."""
        session = Session(client_host="192.0.2.1", principal=who)
        return await self.request(request_of(api, **fields), version, session=session)

    async def create(self, who: Principal = ALICE, **fields: Any) -> Token:
        """Create a token."""
        response = await self.call(who, CREATE, 3, **({"max_lifetime_ms": -1} | fields))
        assert ErrorCode.NONE == response.error_code
        return Token(response.token_id, bytes(response.hmac))

    async def refusal(self, who: Principal = ALICE, **fields: Any) -> ErrorCode:
        """Return the error code for a token that is not created."""
        response = await self.call(who, CREATE, 3, **({"max_lifetime_ms": -1} | fields))
        assert (b"", "") == (response.hmac, response.token_id)
        return ErrorCode(response.error_code)

    async def expire(
        self, token: Token, who: Principal = ALICE, period_ms: int = -1
    ) -> tuple[ErrorCode, int]:
        """Expire a token; return the error code and the new expiry timestamp."""
        response = await self.call(who, EXPIRE, 2, hmac=token.hmac, expiry_time_period_ms=period_ms)
        return ErrorCode(response.error_code), response.expiry_timestamp_ms

    async def renew(
        self, token: Token, who: Principal = ALICE, period_ms: int = -1
    ) -> tuple[ErrorCode, int]:
        """Renew a token; return the error code and the new expiry timestamp."""
        response = await self.call(who, RENEW, 2, hmac=token.hmac, renew_period_ms=period_ms)
        return ErrorCode(response.error_code), response.expiry_timestamp_ms

    async def listed(self, who: Principal = ALICE, *owners: Principal) -> list[str]:
        """Return the ids of the tokens that a client sees."""
        named = [of_principal(one) for one in owners] or None
        response = await self.call(who, DESCRIBE, 3, owners=named)
        assert ErrorCode.NONE == response.error_code
        return [one.token_id for one in response.tokens]

    async def stored(self) -> set[str]:
        """Return the ids of the tokens in the state store."""
        return set(await self.backend.state.load(DELEGATION_TOKEN))

    async def can_log_in(self, token: Token, mechanism: str = "SCRAM-SHA-256") -> bool:
        """Return whether a new connection logs in with a token."""
        client = LoginClient(self)
        response = await client.log_in(mechanism, token.token_id, token.password, is_token=True)
        return bool(response.error_code == ErrorCode.NONE)


def of_principal(principal: Principal) -> dict[str, str]:
    """Return a principal as a request names it."""
    return {"principal_type": principal.principal_type, "principal_name": principal.name}


def owned_by(owner: Principal) -> dict[str, str]:
    """Return the fields of CreateDelegationToken for another owner."""
    return {"owner_principal_type": owner.principal_type, "owner_principal_name": owner.name}


def request_fields(api: ApiKey) -> dict[str, Any]:
    """Return the fields of a request whose tokens do not exist."""
    by_api: dict[ApiKey, dict[str, Any]] = {
        CREATE: {"max_lifetime_ms": -1},
        RENEW: {"hmac": b"unknown", "renew_period_ms": -1},
        EXPIRE: {"hmac": b"unknown", "expiry_time_period_ms": -1},
        DESCRIBE: {"owners": None},
    }
    return by_api[api]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A gateway with tokens. A bug met on the way fails the test."""
    async with Served() as running:
        yield running
        assert {} == running.gateway.internal_errors


class TestCreate:
    @pytest.mark.parametrize("version", range(4))
    async def test_the_answer(self, served: Served, version: int) -> None:
        """It has the token with its HMAC; from version 3 on it has who has requested it."""
        response = await served.call(
            ALICE, CREATE, version, renewers=[of_principal(BOB)], max_lifetime_ms=2 * DAY_MS
        )
        credentials = await served.gateway.load_credentials()
        assert ErrorCode.NONE == response.error_code
        assert ("User", "alice") == (response.principal_type, response.principal_name)
        requester = ("User", "alice") if version >= 3 else ("", "")
        assert requester == (
            response.token_requester_principal_type,
            response.token_requester_principal_name,
        )
        assert (START_MS, START_MS + DAY_MS, START_MS + 2 * DAY_MS) == (
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )
        assert credentials.tokens.rules.hmac(response.token_id) == response.hmac
        token = credentials.token(response.token_id)
        assert token is not None
        assert (ALICE, ALICE, (BOB,)) == (token.owner, token.requester, token.renewers)

    async def test_each_token_has_an_id_of_its_own(self, served: Served) -> None:
        """Random ones, so that nobody guesses them."""
        tokens = [await served.create() for _ in range(20)]
        assert 20 == len({one.token_id for one in tokens}) == len({one.hmac for one in tokens})

    async def test_for_another_owner(self, served: Served) -> None:
        """Without access rules everybody may; an empty name means the client itself."""
        fields = owned_by(BOB)
        response = await served.call(ALICE, CREATE, 3, max_lifetime_ms=-1, **fields)
        assert ("bob", "alice") == (
            response.principal_name,
            response.token_requester_principal_name,
        )
        response = await served.call(
            ALICE, CREATE, 3, owner_principal_type="User", owner_principal_name=""
        )
        assert "alice" == response.principal_name

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            (owned_by(Principal("Group", "bob")), ErrorCode.INVALID_PRINCIPAL_TYPE),
            (owned_by(Principal("", "bob")), ErrorCode.INVALID_PRINCIPAL_TYPE),
            (
                {"renewers": [of_principal(BOB), of_principal(Principal("Group", "g"))]},
                ErrorCode.INVALID_PRINCIPAL_TYPE,
            ),
            (owned_by(Principal("User", "*")), ErrorCode.INVALID_REQUEST),
            (owned_by(ANONYMOUS), ErrorCode.INVALID_REQUEST),
            ({"renewers": [of_principal(Principal("User", ""))]}, ErrorCode.INVALID_REQUEST),
            (
                {"renewers": [of_principal(Principal("User", "x" * 5000))]},
                ErrorCode.INVALID_REQUEST,
            ),
        ],
    )
    async def test_refused_principals(
        self, served: Served, fields: dict[str, Any], code: ErrorCode
    ) -> None:
        """Nothing is stored then."""
        assert code == await served.refusal(**fields)
        assert set() == await served.stored()

    @pytest.mark.parametrize("version", range(4))
    async def test_a_refusal_names_the_principals(self, version: int) -> None:
        """As in Kafka; its timestamps are -1."""
        async with Served(delegation_token_secret_key="") as served:
            fields = owned_by(BOB) if version >= 3 else {}
            response = await served.call(ALICE, CREATE, version, **fields)
            assert ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED == response.error_code
            names = ("bob", "alice") if version >= 3 else ("alice", "")
            assert names == (response.principal_name, response.token_requester_principal_name)
            assert (-1, -1, -1) == (
                response.issue_timestamp_ms,
                response.expiry_timestamp_ms,
                response.max_timestamp_ms,
            )

    async def test_the_settings_of_lifetimes(self) -> None:
        """They bound what clients ask for."""
        lasting = Served(
            delegation_token_max_lifetime_ms=5_000, delegation_token_expiry_time_ms=2_000
        )
        async with lasting as served:
            response = await served.call(ALICE, CREATE, 3, max_lifetime_ms=DAY_MS)
            token = Token(response.token_id, bytes(response.hmac))
            assert (2_000, 5_000) == (
                response.expiry_timestamp_ms - START_MS,
                response.max_timestamp_ms - START_MS,
            )
            served.manual_clock.advance(1.5)
            assert (ErrorCode.NONE, START_MS + 3_500) == await served.renew(token, period_ms=DAY_MS)


class TestCaps:
    async def test_of_all_tokens(self) -> None:
        """A token more is refused; one that has expired makes room, also before its removal."""
        async with Served(delegation_tokens_max=3) as served:
            first = await served.create(BOB, max_lifetime_ms=1_000)
            others = [await served.create() for _ in range(2)]
            for who in (ALICE, BOB):
                assert ErrorCode.POLICY_VIOLATION == await served.refusal(who)
            served.manual_clock.advance(1.001)
            last = await served.create()
            assert {one.token_id for one in (*others, last)} == await served.stored()
            assert first.token_id not in await served.stored()
            await served.expire(last)
            await served.create(BOB)

    async def test_of_one_principal(self) -> None:
        """Tokens that it owns and tokens that it has requested count; others have their own."""
        async with Served(delegation_tokens_per_principal_max=2) as served:
            token = await served.create(ALICE)
            await served.create(ALICE, **owned_by(BOB))
            for fields in ({}, owned_by(CAROL)):
                assert ErrorCode.POLICY_VIOLATION == await served.refusal(ALICE, **fields)
            await served.create(BOB)
            assert ErrorCode.POLICY_VIOLATION == await served.refusal(CAROL, **owned_by(BOB))
            await served.create(CAROL)
            await served.expire(token)
            await served.create(ALICE)


class TestRenewAndExpire:
    @pytest.mark.parametrize("version", range(3))
    @pytest.mark.parametrize("who", [ALICE, CAROL])
    async def test_renew(self, served: Served, version: int, who: Principal) -> None:
        """By the owner and by renewers, durably."""
        token = await served.create(renewers=[of_principal(CAROL)])
        served.manual_clock.advance(60)
        response = await served.call(who, RENEW, version, hmac=token.hmac, renew_period_ms=-1)
        assert (ErrorCode.NONE, START_MS + 60_000 + DAY_MS) == (
            response.error_code,
            response.expiry_timestamp_ms,
        )
        (row,) = (await served.backend.state.load(DELEGATION_TOKEN)).values()
        assert str(START_MS + 60_000 + DAY_MS).encode() in row.value

    @pytest.mark.parametrize("version", range(3))
    @pytest.mark.parametrize("who", [ALICE, CAROL])
    async def test_expire(self, served: Served, version: int, who: Principal) -> None:
        """At another time; then at once, with the present time as the answer."""
        token = await served.create(renewers=[of_principal(CAROL)])
        for period_ms, expiry_ms in ((5_000, START_MS + 5_000), (-1, START_MS)):
            response = await served.call(
                who, EXPIRE, version, hmac=token.hmac, expiry_time_period_ms=period_ms
            )
            assert (ErrorCode.NONE, expiry_ms) == (
                response.error_code,
                response.expiry_timestamp_ms,
            )
        assert set() == await served.stored()
        assert (NOT_FOUND, -1) == await served.expire(token)
        assert (NOT_FOUND, -1) == await served.renew(token)

    async def test_by_others(self, served: Served) -> None:
        """Neither the requester of another's token nor a stranger may."""
        token = await served.create(BOB, **owned_by(ALICE))
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for who in (BOB, DAVE, Principal("Group", "alice")):
            assert (mismatch, -1) == await served.renew(token, who)
            assert (mismatch, -1) == await served.expire(token, who)
        assert [token.token_id] == await served.listed()

    async def test_an_expired_token(self, served: Served) -> None:
        """It is not renewed, and can be removed before it is removed by itself."""
        token = await served.create(max_lifetime_ms=1_000)
        served.manual_clock.advance(1.001)
        expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert (expired, -1) == await served.renew(token)
        assert (expired, -1) == await served.expire(token, period_ms=1_000)
        assert [token.token_id] == await served.listed()
        assert (ErrorCode.NONE, START_MS + 1_001) == await served.expire(token)
        assert [] == await served.listed()

    @pytest.mark.parametrize("cut", [0, 1, 32, 63])
    async def test_a_wrong_hmac(self, served: Served, cut: int) -> None:
        """A part of an HMAC, or one with a wrong byte, finds no token."""
        token = await served.create()
        flipped = bytearray(token.hmac)
        flipped[cut] ^= 1
        for hmac in (token.hmac[:cut], bytes(flipped), token.hmac + b"\0"):
            assert (NOT_FOUND, -1) == await served.renew(token._replace(hmac=hmac))
            assert (NOT_FOUND, -1) == await served.expire(token._replace(hmac=hmac))


class TestDescribe:
    @pytest.mark.parametrize("version", range(4))
    async def test_the_answer(self, served: Served, version: int) -> None:
        """It has everything about a token, with its HMAC; from version 3 on the requester, too."""
        token = await served.create(BOB, renewers=[of_principal(CAROL)], **owned_by(ALICE))
        response = await served.call(ALICE, DESCRIBE, version, owners=None)
        (found,) = response.tokens
        assert (token.token_id, token.hmac) == (found.token_id, bytes(found.hmac))
        assert ("User", "alice") == (found.principal_type, found.principal_name)
        requester = ("User", "bob") if version >= 3 else ("", "")
        assert requester == (
            found.token_requester_principal_type,
            found.token_requester_principal_name,
        )
        assert (START_MS, START_MS + DAY_MS, START_MS + 7 * DAY_MS) == (
            found.issue_timestamp,
            found.expiry_timestamp,
            found.max_timestamp,
        )
        assert [("User", "carol")] == [
            (one.principal_type, one.principal_name) for one in found.renewers
        ]

    async def test_owners(self, served: Served) -> None:
        """Null means all, an empty list none; a name finds what it owns, renews or requested."""
        own = (await served.create()).token_id
        renewed = (await served.create(BOB, renewers=[of_principal(ALICE)])).token_id
        requested = (await served.create(ALICE, **owned_by(CAROL))).token_id
        other = (await served.create(DAVE)).token_id
        assert [own, renewed, requested, other] == await served.listed()
        assert [own, renewed, requested] == await served.listed(ALICE, ALICE)
        assert [renewed, requested] == await served.listed(DAVE, BOB, CAROL)
        assert [] == await served.listed(ALICE, Principal("Group", "alice"))
        response = await served.call(ALICE, DESCRIBE, 3, owners=[])
        assert (ErrorCode.NONE, []) == (response.error_code, response.tokens)

    async def test_many_tokens(self, served: Served) -> None:
        """More than one turn of the loop makes."""
        made = [(await served.create()).token_id for _ in range(450)]
        assert made == await served.listed()


class TestWhoMay:
    @pytest.mark.parametrize(("api", "version"), VERSIONS)
    async def test_a_client_without_a_login(
        self, served: Served, api: ApiKey, version: int
    ) -> None:
        """It has no identity to delegate."""
        response = await served.call(ANONYMOUS, api, version, **request_fields(api))
        assert NOT_ALLOWED == response.error_code
        assert set() == await served.stored()

    @pytest.mark.parametrize(("api", "version"), VERSIONS)
    async def test_a_client_that_has_used_a_token(
        self, served: Served, api: ApiKey, version: int
    ) -> None:
        """It could extend its own access for ever."""
        token = await served.create()
        client = LoginClient(served)
        await client.log_in("SCRAM-SHA-256", token.token_id, token.password, is_token=True)
        fields = request_fields(api) | ({"hmac": token.hmac} if api in {RENEW, EXPIRE} else {})
        response = await client.call(api, version, **fields)
        assert NOT_ALLOWED == response.error_code
        assert await client.is_served()
        assert {token.token_id} == await served.stored()

    @pytest.mark.parametrize(("api", "version"), VERSIONS)
    async def test_without_a_secret(self, api: ApiKey, version: int) -> None:
        """The server has no tokens; who may not ask for tokens is told that first."""
        async with Served(delegation_token_secret_key="") as served:
            disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            for who, code in ((ALICE, disabled), (ANONYMOUS, NOT_ALLOWED)):
                response = await served.call(who, api, version, **request_fields(api))
                assert code == response.error_code
            assert {} == served.internal_errors

    async def test_a_user_who_logs_in_with_a_password_again(self, served: Served) -> None:
        """The last login counts (KIP-368), whatever the one before was."""
        await add_user(served, "alice")
        token = await served.create()
        client = LoginClient(served, max_reauth_ms=60_000)
        for is_token, code in ((True, NOT_ALLOWED), (False, ErrorCode.NONE), (True, NOT_ALLOWED)):
            if is_token:
                who = (token.token_id, token.password)
                done = await client.log_in("SCRAM-SHA-256", *who, is_token=True)
            else:
                done = await client.log_in("SCRAM-SHA-256")
            assert ErrorCode.NONE == done.error_code
            response = await client.call(CREATE, 3, max_lifetime_ms=-1)
            assert code == response.error_code
            served.manual_clock.advance(2)


class TestLogin:
    @pytest.mark.parametrize("mechanism", SCRAM)
    async def test_the_client_is_the_owner(self, served: Served, mechanism: str) -> None:
        """For each mechanism, the first time and later; the requester is nobody here."""
        token = await served.create(BOB, **owned_by(ALICE))
        for _ in range(2):
            client = LoginClient(served)
            done = await client.log_in(mechanism, token.token_id, token.password, is_token=True)
            assert ErrorCode.NONE == done.error_code
            assert ALICE == client.session.principal
            assert token.token_id == client.login.token_id
            assert await client.is_served()
        assert {"done": 2} == served.metrics.logins

    @pytest.mark.parametrize("mechanism", SCRAM)
    async def test_with_bare_tokens(self, served: Served, mechanism: str) -> None:
        """Clients that send SaslHandshake 0 use delegation tokens, too."""
        token = await served.create()
        client = LoginClient(served)
        await client.handshake(mechanism, version=0)
        scram = scram_client(mechanism, token.token_id, token.password, is_token=True)
        first = await client.bare(scram.first())
        assert scram.accepts(await client.bare(scram.final(first)))
        assert ALICE == client.session.principal

    async def test_the_wrong_hmac(self, served: Served) -> None:
        """That of another token, and a user's password."""
        token, other = await served.create(), await served.create()
        await add_user(served, "alice")
        for token_id, password in (
            (token.token_id, other.password),
            (token.token_id, "alice-hunter2"),
            ("alice", token.password),
            ("unknown", token.password),
        ):
            client = LoginClient(served)
            done = await client.log_in("SCRAM-SHA-512", token_id, password, is_token=True)
            assert ErrorCode.SASL_AUTHENTICATION_FAILED == done.error_code
            assert ANONYMOUS == client.session.principal
            assert client.login.token_id is None
            assert not await client.is_served()

    async def test_a_token_is_no_password(self, served: Served) -> None:
        """Without tokenauth the id is the name of a user, who does not exist; so with PLAIN."""
        token = await served.create()
        for mechanism in MECHANISMS:
            client = LoginClient(served)
            done = await client.log_in(mechanism, token.token_id, token.password)
            assert ErrorCode.SASL_AUTHENTICATION_FAILED == done.error_code

    async def test_a_token_that_was_removed(self, served: Served) -> None:
        """It logs in nobody from the answer on; an open session stays."""
        token = await served.create()
        client = LoginClient(served)
        await client.log_in("SCRAM-SHA-256", token.token_id, token.password, is_token=True)
        await served.expire(token)
        assert not await served.can_log_in(token)
        assert await client.is_served()

    async def test_a_token_that_has_expired(self, served: Served) -> None:
        """It is refused at once by time, before it is removed."""
        token = await served.create(max_lifetime_ms=5_000)
        served.manual_clock.advance(4.999)
        assert await served.can_log_in(token)
        served.manual_clock.advance(0.002)
        assert not await served.can_log_in(token)
        assert {token.token_id} == await served.stored()

    @pytest.mark.parametrize(
        ("max_reauth_ms", "lasts_ms"), [(0, 5_000), (60_000, 5_000), (2_000, 2_000)]
    )
    async def test_the_session_ends_with_the_token(
        self, served: Served, max_reauth_ms: int, lasts_ms: int
    ) -> None:
        """Or before it, if `connections.max.reauth.ms` says so (KIP-368)."""
        token = await served.create(max_lifetime_ms=5_000)
        client = LoginClient(served, max_reauth_ms=max_reauth_ms)
        done = await client.log_in("SCRAM-SHA-256", token.token_id, token.password, is_token=True)
        assert lasts_ms == done.session_lifetime_ms
        served.manual_clock.advance((lasts_ms - 1) / 1000)
        assert await client.is_served()
        served.manual_clock.advance(0.002)
        assert not await client.is_served()

    async def test_a_renewed_token_goes_on(self, served: Served) -> None:
        """The client logs in again before the end of its session."""
        token = await served.create()
        client = LoginClient(served)
        who = (token.token_id, token.password)
        first = await client.log_in("SCRAM-SHA-256", *who, is_token=True)
        assert DAY_MS == first.session_lifetime_ms
        served.manual_clock.advance(DAY_MS / 1000 - 60)
        await served.renew(token)
        again = await client.log_in("SCRAM-SHA-256", *who, is_token=True)
        assert DAY_MS == again.session_lifetime_ms
        served.manual_clock.advance(3_600)
        assert await client.is_served()

    async def test_a_request_while_the_password_is_hashed(self, served: Served) -> None:
        """It is refused, and the login does not outlive that."""
        token = await served.create()
        client = LoginClient(served)
        scram = scram_client("SCRAM-SHA-512", token.token_id, token.password, is_token=True)
        await client.handshake("SCRAM-SHA-512")
        first = await client.authenticate(scram.first())
        final = scram.final(first.auth_bytes)
        pending = client.start(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=final)
        await settle(1)
        again = client.start(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=final)
        for one in (again, pending):
            response: Any = await one.response()
            assert ErrorCode.SASL_AUTHENTICATION_FAILED == response.error_code
        assert ANONYMOUS == client.session.principal
        with pytest.raises(ProtocolError):
            await client.call(ApiKey.API_VERSIONS, 0)


class TestStored:
    async def test_after_a_crash(self) -> None:
        """What was answered is there: created, renewed, expired and removed tokens."""
        backend = MemoryBackend()
        async with Served(backend) as served:
            tokens = [await served.create() for _ in range(4)]
            served.manual_clock.advance(60)
            await served.renew(tokens[1])
            await served.expire(tokens[2], period_ms=5_000)
            await served.expire(tokens[3])
            await backend.crash()
        async with Served(backend) as served:
            response = await served.call(ALICE, DESCRIBE, 3, owners=None)
            assert {
                tokens[0].token_id: (tokens[0].hmac, START_MS + DAY_MS),
                tokens[1].token_id: (tokens[1].hmac, START_MS + 60_000 + DAY_MS),
                tokens[2].token_id: (tokens[2].hmac, START_MS + 65_000),
            } == {one.token_id: (bytes(one.hmac), one.expiry_timestamp) for one in response.tokens}
            assert await served.can_log_in(tokens[0])
            assert not await served.can_log_in(tokens[3])
            assert NOT_FOUND == (await served.renew(tokens[3]))[0]

    async def test_nothing_secret_is_stored_or_logged(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Neither the secret nor an HMAC, in any form; the ids are."""
        caplog.set_level("DEBUG")
        token = await served.create()
        await served.can_log_in(token)
        await served.can_log_in(token._replace(hmac=b"\1" * 64))
        await served.renew(token)
        await served.expire(token, BOB)
        await served.expire(token, period_ms=1)
        rows = await served.backend.state.load(DELEGATION_TOKEN)
        formatter = JsonFormatter()
        texts = [formatter.format(one) for one in caplog.records]
        texts += [row.value.decode() for row in rows.values()]
        texts.append(repr((await served.gateway.load_credentials()).tokens))
        assert 3 <= sum(token.token_id in text for text in texts)
        for text in texts:
            for secret in (SECRET, token.password, token.hmac.hex(), repr(token.hmac)[2:-1]):
                assert secret not in text

    async def test_the_audit_log(self, served: Served, caplog: pytest.LogCaptureFixture) -> None:
        """It has each change of a token, by whom and from where."""
        caplog.set_level("INFO", "kgw.audit")
        token = await served.create(BOB, **owned_by(ALICE))
        await served.renew(token)
        await served.expire(token, BOB)
        await served.expire(token, period_ms=5_000)
        await served.expire(token)
        lines = [
            json.loads(JsonFormatter().format(one))
            for one in caplog.records
            if one.name == "kgw.audit"
        ]
        assert [
            ("token created", "User:bob", START_MS + DAY_MS),
            ("token renewed", "User:alice", START_MS + DAY_MS),
            ("token expiry set", "User:alice", START_MS + 5_000),
            ("token removed", "User:alice", START_MS),
        ] == [(one["event"], one["principal"], one["expiry_timestamp_ms"]) for one in lines]
        expected = {(token.token_id, "User:alice", "192.0.2.1")}
        assert expected == {(one["token"], one["owner"], one["host"]) for one in lines}

    @pytest.mark.parametrize("api", [CREATE, RENEW, EXPIRE])
    async def test_a_failed_store(
        self, served: Served, monkeypatch: pytest.MonkeyPatch, api: ApiKey
    ) -> None:
        """The client is told, and the tokens are as before."""
        token = await served.create()
        before = await served.call(ALICE, DESCRIBE, 3, owners=None)

        async def fails(*_: Any, **__: Any) -> None:
            raise StorageError("the disk is full")

        monkeypatch.setattr(served.backend.state, "apply", fails)
        fields = request_fields(api) | ({} if api is CREATE else {"hmac": token.hmac})
        response = await served.call(ALICE, api, 2, **fields)
        assert ErrorCode.KAFKA_STORAGE_ERROR == response.error_code
        after = await served.call(ALICE, DESCRIBE, 3, owners=None)
        assert repr(before).partition("hmac")[0] == repr(after).partition("hmac")[0]
        assert await served.can_log_in(token)

    async def test_not_answered_before_it_is_stored(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the store has not confirmed, the token is unknown."""
        credentials = await served.gateway.load_credentials()
        state = served.backend.state
        apply = state.apply
        gates: list[None] = []

        async def held(*arguments: Any, **named: Any) -> Any:
            gates.append(None)
            while gates:
                await settle(1)
            return await apply(*arguments, **named)

        monkeypatch.setattr(state, "apply", held)
        session = Session(principal=ALICE)
        request = request_of(CREATE, max_lifetime_ms=-1)
        pending = served.start(request, 3, session=session)
        await settle(10)
        assert [None] == gates
        assert not pending.done
        assert 0 == len(credentials.tokens)
        gates.clear()
        response: Any = await pending.response()
        assert credentials.token(response.token_id) is not None

    async def test_another_secret(self, caplog: pytest.LogCaptureFixture) -> None:
        """Tokens of the old one are invalid, with a warning; with it they are valid again."""
        backend = MemoryBackend()
        async with Served(backend) as served:
            old = await served.create()
        assert "delegation.token.secret.key" not in caplog.text
        async with Served(backend, delegation_token_secret_key=SECRET + "2") as served:
            assert [] == await served.listed()
            assert not await served.can_log_in(old)
            assert (NOT_FOUND, -1) == await served.expire(old)
            assert 1 == caplog.text.count("delegation.token.secret.key has changed")
            new = await served.create()
            assert await served.can_log_in(new)
            assert {old.token_id, new.token_id} == await served.stored()
        caplog.clear()
        async with Served(backend, delegation_token_secret_key="") as served:
            await served.gateway.load_credentials()
            assert "delegation.token.secret.key is not set" in caplog.text
            assert not await served.can_log_in(old)
        async with Served(backend) as served:
            assert [old.token_id] == await served.listed()
            assert await served.can_log_in(old)

    @pytest.mark.parametrize(("length", "warns"), [(31, True), (32, False)])
    async def test_a_short_secret(
        self, caplog: pytest.LogCaptureFixture, length: int, warns: bool
    ) -> None:
        """It can be found by trying, from one token: a warning says so, without the secret."""
        async with Served(delegation_token_secret_key="q" * length) as served:
            await served.gateway.load_credentials()
        assert warns == ("delegation.token.secret.key is short" in caplog.text)
        assert "qqq" not in caplog.text

    async def test_expired_tokens_are_removed(self) -> None:
        """At the start and after each interval, durably; of another secret, too."""
        backend = MemoryBackend()
        async with Served(backend) as served:
            await served.create(max_lifetime_ms=1_000)
        settings = {"delegation_token_expiry_check_interval_ms": 10_000}
        async with Served(backend, delegation_token_secret_key="other", **settings) as served:
            served.manual_clock.advance(2)
            tokens = (await served.gateway.load_credentials()).tokens
            await until(lambda: not len(tokens))
            await served.create(max_lifetime_ms=1_000)
            lasting = await served.create()
            served.manual_clock.advance(9.9)
            await settle(10)
            assert 2 == len(tokens)
            served.manual_clock.advance(0.2)
            await until(lambda: len(tokens) == 1)
            assert {lasting.token_id} == await served.stored()
            assert [lasting.token_id] == await served.listed()

    async def test_a_failed_removal_is_tried_again(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """At the next interval, with a warning meanwhile."""
        async with Served(delegation_token_expiry_check_interval_ms=10_000) as served:
            await served.create(max_lifetime_ms=1_000)
            tokens = (await served.gateway.load_credentials()).tokens
            apply = served.backend.state.apply

            async def fails(*_: Any, **__: Any) -> None:
                raise StorageError("the disk is full")

            monkeypatch.setattr(served.backend.state, "apply", fails)
            await settle()
            served.manual_clock.advance(10.1)
            await until(lambda: "could not be removed" in caplog.text)
            assert 1 == len(tokens)
            monkeypatch.setattr(served.backend.state, "apply", apply)
            await settle()
            served.manual_clock.advance(10.1)
            await until(lambda: not len(tokens))


class TestDeletedUsers:
    async def alter(self, served: Served, user: str, *mechanisms: int) -> None:
        """Delete the credentials of a user."""
        deletions = [{"name": user, "mechanism": one} for one in mechanisms]
        response = await served.call(
            ALICE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions
        )
        assert [0] == [one.error_code for one in response.results]

    async def test_the_tokens_go_with_the_user(self, served: Served) -> None:
        """Those that it owns or has requested, with its last credential; others stay."""
        for name in ("alice", "bob"):
            await add_user(served, name)
        own = await served.create(BOB)
        requested = await served.create(BOB, **owned_by(ALICE))
        owned = await served.create(ALICE, **owned_by(BOB))
        kept = [
            await served.create(ALICE, renewers=[of_principal(BOB)]),
            await served.create(Principal("User", "CN=bob")),
        ]
        gone = (own, requested, owned)
        await self.alter(served, "bob", 1)
        assert all([await served.can_log_in(one) for one in (*gone, *kept)])
        await self.alter(served, "bob", 2)
        for one in gone:
            assert not await served.can_log_in(one)
            assert NOT_FOUND == (await served.expire(one))[0]
        assert all([await served.can_log_in(one) for one in kept])
        assert {one.token_id for one in kept} == await served.stored()
        await add_user(served, "bob")
        assert not await served.can_log_in(own)

    async def test_a_new_password_keeps_the_tokens(self, served: Served) -> None:
        """Also if the request deletes the credential of the other mechanism."""
        await add_user(served, "alice")
        token = await served.create()
        await add_user(served, "alice", "another")
        assert await served.can_log_in(token)

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("api", [CREATE, RENEW])
    async def test_an_open_session_makes_no_tokens(
        self, served: Served, mechanism: str, api: ApiKey
    ) -> None:
        """The session of a deleted user ends, and no token outlives it."""
        await add_user(served, "alice")
        client = LoginClient(served)
        await client.log_in(mechanism)
        assert ErrorCode.NONE == (await client.call(CREATE, 3, max_lifetime_ms=-1)).error_code
        await self.alter(served, "alice", 1, 2)
        response = await client.call(api, 2, **request_fields(api))
        assert NOT_ALLOWED == response.error_code
        assert set() == await served.stored()

    async def test_tokens_that_cannot_be_used_go_too(self) -> None:
        """They would be valid again when the server gets its secret back."""
        backend = MemoryBackend()
        async with Served(backend) as served:
            await add_user(served, "alice")
            token = await served.create()
        async with Served(backend, delegation_token_secret_key="") as served:
            await self.alter(served, "alice", 1, 2)
        async with Served(backend) as served:
            assert set() == await served.stored()
            await served.gateway.load_credentials()
            assert not await served.can_log_in(token)
