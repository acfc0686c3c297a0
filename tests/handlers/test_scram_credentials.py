"""The credentials of users, as administrators set, delete and list them (KIP-554)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode, StorageError
from kgw.handlers.context import RequestContext
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.security.sasl.scram import ScramMechanism
from kgw.testing.gateway import InProcessGateway
from tests.handlers.logins import LoginClient
from tests.handlers.support import call, call_in_turns, request_of
from tests.security.sasl.logins import PASSWORD, SALT
from tests.security.sasl.scram_client import salted
from tests.server.fakes import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

SHA_256, SHA_512 = ScramMechanism
MANY = 4_000


def upsertion(
    name: str,
    scram: ScramMechanism = SHA_256,
    password: str = PASSWORD,
    iterations: int = 4096,
    **other: Any,
) -> dict[str, Any]:
    """Return a credential as Kafka's tools send it; `other` replaces fields."""
    fields = {
        "name": name,
        "mechanism": scram.code,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted(scram.sasl_name, password, SALT, 4096),
    }
    return fields | other


def deletion(name: str, mechanism: ScramMechanism | int = SHA_256) -> dict[str, Any]:
    """Return a deletion."""
    return {"name": name, "mechanism": getattr(mechanism, "code", mechanism)}


async def alter(
    gateway: InProcessGateway,
    *upsertions: dict[str, Any],
    deletions: Sequence[dict[str, Any]] = (),
) -> dict[str, ErrorCode]:
    """Change credentials; return the codes by user. The words of an error are never empty."""
    response = await call(
        gateway,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=list(deletions),
        upsertions=list(upsertions),
    )
    for one in response.results:
        assert bool(one.error_code) == bool(one.error_message)
    found = {one.user: ErrorCode(one.error_code) for one in response.results}
    assert len(found) == len(response.results)
    return found


async def describe(gateway: InProcessGateway, *names: str) -> dict[str, Any]:
    """Return the credentials of users, or their error, by user in the order of the answer."""
    response = await call(
        gateway,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        users=[{"name": name} for name in names] or None,
    )
    assert response.error_code == ErrorCode.NONE
    return {
        one.user: ErrorCode(one.error_code)
        if one.error_code
        else [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in response.results
    }


async def test_set_list_and_delete(gateway: InProcessGateway) -> None:
    """A user has a credential for each mechanism; users are listed by name."""
    none = ErrorCode.NONE
    done = await alter(
        gateway, upsertion("bob"), upsertion("alice", SHA_512, iterations=8192), upsertion("alice")
    )
    assert {"bob": none, "alice": none} == done
    listed = await describe(gateway)
    assert ["alice", "bob"] == list(listed)
    assert {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]} == {
        name: sorted(infos) for name, infos in listed.items()
    }
    assert {"alice": none} == await alter(gateway, deletions=[deletion("alice", SHA_512)])
    assert {"alice": [(1, 4096)]} == await describe(gateway, "alice")
    assert {"alice": none} == await alter(gateway, deletions=[deletion("alice")])
    assert {"bob": [(1, 4096)]} == await describe(gateway)


async def test_an_empty_list_means_all(gateway: InProcessGateway) -> None:
    """So does no list at all."""
    await alter(gateway, upsertion("bob"))
    empty: list[Any] = []
    for users in (empty, None):
        response = await call(gateway, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
        assert ["bob"] == [one.user for one in response.results]


async def test_named_users(gateway: InProcessGateway) -> None:
    """A user without credentials, and one who is named twice, are errors beside the others."""
    await alter(gateway, upsertion("alice"), upsertion("bob"))
    assert {
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "bob": [(1, 4096)],
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "": ErrorCode.RESOURCE_NOT_FOUND,
    } == await describe(gateway, "alice", "bob", "nobody", "", "alice")


async def test_no_answer_has_a_secret(gateway: InProcessGateway) -> None:
    """Neither the salt nor a key leaves the server."""
    wanted = upsertion("alice")
    await alter(gateway, wanted)
    stored = (await gateway.gateway.load_credentials()).of_user("alice")[SHA_256]
    response = await gateway.request(request_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS), 0)
    assert "alice" in repr(response)
    for secret in (SALT, wanted["salted_password"], stored.stored_key, stored.server_key):
        assert repr(secret) not in repr(response)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("é" * 101), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", iterations=0), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", iterations=-4096), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", salt=bytes(1025)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", salted_password=bytes(1025)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("a", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("a", mechanism=-1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_refused_upsertions(
    gateway: InProcessGateway, wanted: dict[str, Any], code: ErrorCode
) -> None:
    """What no login could use is refused, and the other users of the request are served."""
    done = await alter(gateway, upsertion("other"), wanted)
    assert {"other": ErrorCode.NONE, wanted["name"]: code} == done
    assert {"other": [(1, 4096)]} == await describe(gateway)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion("nobody"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("alice", SHA_512), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("alice", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_refused_deletions(
    gateway: InProcessGateway, wanted: dict[str, Any], code: ErrorCode
) -> None:
    """A credential that does not exist cannot be deleted."""
    await alter(gateway, upsertion("alice"))
    assert {wanted["name"]: code} == await alter(gateway, deletions=[wanted])
    assert {"alice": [(1, 4096)]} == await describe(gateway)


async def test_the_limits_themselves(gateway: InProcessGateway) -> None:
    """4,096 and 16,384 iterations, names of 200 bytes and salts of 1,024 are taken."""
    names = ("least", "most", "é" * 100, "s")
    wanted = (
        upsertion("least"),
        upsertion("most", iterations=16_384),
        upsertion("é" * 100),
        upsertion("s", salt=bytes(1024)),
    )
    assert dict.fromkeys(names, ErrorCode.NONE) == await alter(gateway, *wanted)


@pytest.mark.parametrize(
    ("upsertions", "deletions"),
    [
        ([upsertion("alice"), upsertion("alice", password="b")], []),
        ([], [deletion("alice"), deletion("alice")]),
        ([upsertion("alice")], [deletion("alice")]),
    ],
)
async def test_a_credential_twice(
    gateway: InProcessGateway, upsertions: list[Any], deletions: list[Any]
) -> None:
    """Nobody can say which of two changes was meant: none is made."""
    await alter(gateway, upsertion("alice", iterations=5000))
    done = await alter(gateway, *upsertions, upsertion("bob"), deletions=deletions)
    assert {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": ErrorCode.NONE} == done
    assert {"alice": [(1, 5000)], "bob": [(1, 4096)]} == await describe(gateway)


async def test_one_user_is_changed_as_a_whole(gateway: InProcessGateway) -> None:
    """One credential deleted and another one set in one request, or nothing at all."""
    await alter(gateway, upsertion("alice"))
    for order in (1, -1):
        upsertions = [upsertion("alice", SHA_512), upsertion("alice", iterations=1)][::order]
        done = await alter(gateway, *upsertions)
        assert {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL} == done
        assert {"alice": [(1, 4096)]} == await describe(gateway)
    done = await alter(gateway, upsertion("alice"), deletions=[deletion("alice", SHA_512)])
    assert {"alice": ErrorCode.RESOURCE_NOT_FOUND} == done
    assert {"alice": [(1, 4096)]} == await describe(gateway)
    done = await alter(gateway, upsertion("alice", SHA_512), deletions=[deletion("alice")])
    assert {"alice": ErrorCode.NONE} == done
    assert {"alice": [(2, 4096)]} == await describe(gateway)


async def test_changes_are_in_the_audit_log(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """With who made them, and without a secret; also without access rules."""
    with caplog.at_level(logging.INFO, "kgw.audit"):
        await alter(gateway, upsertion("alice"), upsertion("bob", iterations=1))
        await alter(gateway, deletions=[deletion("alice"), deletion("carol")])
    told = [
        (one.getMessage(), one.__dict__["kgw_fields"])
        for one in caplog.records
        if one.name == "kgw.audit"
    ]
    fields = {
        "principal": "User:ANONYMOUS",
        "host": "192.0.2.1",
        "user": "alice",
        "mechanism": "SCRAM-SHA-256",
    }
    assert [("password set", fields), ("password deleted", fields)] == told


async def test_the_next_login_knows_the_change() -> None:
    """A new password, a new user and a deleted one: no restart, and no wait."""
    async with InProcessGateway(Config.of(connection_failed_authentication_delay_ms=0)) as gateway:

        async def can_log_in(password: str, mechanism: str = "SCRAM-SHA-256") -> bool:
            response = await LoginClient(gateway).log_in(mechanism, "alice", password)
            return bool(response.error_code == ErrorCode.NONE)

        await gateway.gateway.load_credentials()
        assert not await can_log_in("one")
        await alter(gateway, upsertion("alice", password="one"))
        assert await can_log_in("one")
        assert await can_log_in("one", "PLAIN")
        assert not await can_log_in("one", "SCRAM-SHA-512")
        await alter(gateway, upsertion("alice", password="two"))
        assert not await can_log_in("one")
        assert await can_log_in("two")
        open_session = LoginClient(gateway)
        await open_session.log_in("SCRAM-SHA-256", "alice", "two")
        await alter(gateway, deletions=[deletion("alice")])
        assert not await can_log_in("two")
        assert not await can_log_in("two", "PLAIN")
        assert await open_session.is_served()


class TestDurable:
    async def test_after_a_crash(self) -> None:
        """What was answered is there after a crash: set, replaced and deleted credentials."""
        backend = MemoryBackend()
        async with InProcessGateway(backend=backend) as running:
            await alter(running, upsertion("alice"), upsertion("bob"), upsertion("carol"))
            await alter(
                running,
                upsertion("alice", password="two"),
                upsertion("bob", SHA_512),
                deletions=[deletion("bob")],
            )
            await alter(running, deletions=[deletion("carol")])
            await backend.crash()
        async with InProcessGateway(backend=backend) as running:
            assert {"alice": [(1, 4096)], "bob": [(2, 4096)]} == await describe(running)
            client = LoginClient(running)
            response = await client.log_in("SCRAM-SHA-256", "alice", "two")
            assert response.error_code == ErrorCode.NONE

    async def test_not_answered_before_it_is_stored(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the store has not confirmed, there is no answer, and no new login."""
        credentials = await gateway.gateway.load_credentials()
        state = gateway.backend.state
        apply = state.apply
        gates: list[None] = []

        async def held(*arguments: Any, **named: Any) -> Any:
            gates.append(None)
            while gates:
                await settle(1)
            return await apply(*arguments, **named)

        monkeypatch.setattr(state, "apply", held)
        request = request_of(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[upsertion("alice")]
        )
        pending = gateway.start(request, 0)
        await settle(10)
        assert [None] == gates
        assert not pending.done
        assert {} == credentials.of_user("alice")
        gates.clear()
        response: Any = await pending.response()
        assert [0] == [one.error_code for one in response.results]
        assert {SHA_256} == set(credentials.of_user("alice"))

    async def test_a_failed_store(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each user of the request has the error, and nobody can log in with what was not kept."""
        credentials = await gateway.gateway.load_credentials()
        await alter(gateway, upsertion("bob"))

        async def fails(*_: Any, **__: Any) -> None:
            raise StorageError("the disk is full")

        monkeypatch.setattr(gateway.backend.state, "apply", fails)
        done = await alter(gateway, upsertion("alice"), deletions=[deletion("bob")])
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        assert {"alice": failed, "bob": failed} == done
        assert {} == credentials.of_user("alice")
        assert {SHA_256} == set(credentials.of_user("bob"))


class TestLongRequests:
    async def test_set_and_delete(self, gateway: InProcessGateway) -> None:
        """4,000 users in one request let other connections have their turns."""
        upsertions = [upsertion(f"user-{number}") for number in range(MANY)]
        response = await call_in_turns(
            gateway,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            least=20,
            deletions=[],
            upsertions=upsertions,
        )
        assert [0] * MANY == [one.error_code for one in response.results]
        listed = await call_in_turns(
            gateway, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, least=6, users=None
        )
        assert MANY == len(listed.results)
        response = await call_in_turns(
            gateway,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            least=20,
            deletions=[deletion(f"user-{number}") for number in range(MANY)],
            upsertions=[],
        )
        assert [0] * MANY == [one.error_code for one in response.results]
        assert {} == await describe(gateway)

    async def test_nobody_is_there(self, gateway: InProcessGateway) -> None:
        """4,000 errors are given in turns, too."""
        names = [{"name": str(number)} for number in range(MANY)]
        await call_in_turns(
            gateway, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, least=6, users=names
        )
        await call_in_turns(
            gateway,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            least=6,
            deletions=[deletion(str(number)) for number in range(MANY)],
            upsertions=[],
        )


async def test_a_failure_is_in_every_part(gateway: InProcessGateway) -> None:
    """The answer has no code of its own: each user is told."""
    handler = HANDLERS[ApiKey.ALTER_USER_SCRAM_CREDENTIALS]
    request = request_of(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        deletions=[deletion("alice"), deletion("bob")],
        upsertions=[upsertion("alice", SHA_512), upsertion("carol")],
    )
    context = RequestContext(gateway.gateway, gateway.session, handler.api_key, 0, 1)
    response: Any = handler.api.refuse(request, ErrorCode.NOT_CONTROLLER, "elsewhere", context)
    assert [(name, ErrorCode.NOT_CONTROLLER) for name in ("alice", "bob", "carol")] == [
        (one.user, one.error_code) for one in response.results
    ]
