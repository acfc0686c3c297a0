"""The stored credentials of users: their rows, and what becomes of damaged ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.security.credentials import LONGEST_USER_BYTES, Credentials, credential_rows
from kgw.security.sasl.scram import ScramCredential, ScramMechanism
from kgw.state.base import Change, DamagedRowsError, Row
from kgw.state.kinds import CLUSTER, SCRAM_CREDENTIAL, UNKNOWN_USERS
from kgw.state.memory import MemoryStateStore
from kgw.testing.gateway import InProcessGateway
from tests.security.sasl.logins import credential_of

if TYPE_CHECKING:
    from collections.abc import Mapping

SHA_256, SHA_512 = ScramMechanism
STORED = (
    b'{"salt":"c2FsdA==",'
    b'"stored_key":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",'
    b'"server_key":"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",'
    b'"iterations":4096}'
)
CREDENTIAL = ScramCredential(b"salt", b"\1" * 32, b"\2" * 32, 4096)


async def opened(state: MemoryStateStore) -> Credentials:
    """Return the credentials in a store, as a start of the server reads them."""
    credentials = Credentials(state)
    await credentials.load()
    return credentials


@pytest.fixture
async def state() -> MemoryStateStore:
    """An empty store."""
    store = MemoryStateStore()
    await store.open()
    return store


async def test_the_stored_form(state: MemoryStateStore) -> None:
    """Rows of this release are read by the next one: key and value are pinned."""
    await (await opened(state)).change({(SHA_256, "alice"): CREDENTIAL})
    rows = await state.load(SCRAM_CREDENTIAL)
    assert {"SCRAM-SHA-256/alice": STORED} == {key: row.value for key, row in rows.items()}
    assert "scram-credential" == SCRAM_CREDENTIAL
    assert CREDENTIAL == (await opened(state)).user_credential(SHA_256, "alice")


async def test_a_deletion_removes_the_row(state: MemoryStateStore) -> None:
    """Nothing of a password is kept, and the user is listed no more."""
    credentials = await opened(state)
    await credentials.change(
        {(SHA_256, "alice"): CREDENTIAL, (SHA_512, "alice"): credential_of(SHA_512)}
    )
    await credentials.change({(SHA_256, "alice"): None})
    assert {"SCRAM-SHA-512/alice"} == set(await state.load(SCRAM_CREDENTIAL))
    assert {SHA_512} == set(credentials.of_user("alice"))
    await credentials.change({(SHA_512, "alice"): None})
    assert {} == await state.load(SCRAM_CREDENTIAL)
    assert [] == list(credentials.users)
    assert [] == list((await opened(state)).users)


@pytest.mark.parametrize("user", ["a/b", "/", "a b", "é\0\n", "x" * LONGEST_USER_BYTES, "SCRAM-"])
async def test_names(state: MemoryStateStore, user: str) -> None:
    """A name may have slashes and control characters, and as many bytes as are allowed."""
    await (await opened(state)).change({(SHA_512, user): credential_of(SHA_512)})
    found = await opened(state)
    assert [user] == list(found.users)
    assert {SHA_512} == set(found.of_user(user))


def test_the_longest_key_fits_a_database() -> None:
    """PostgreSQL and MariaDB take keys of 255 bytes."""
    changes = credential_rows({(SHA_512, "x" * LONGEST_USER_BYTES): None})
    assert [None] == [one.value for one in changes]
    assert max(len(one.key.encode()) for one in changes) <= 255


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SCRAM-SHA-256/broken", b"no JSON"),
        ("SCRAM-SHA-256/broken", STORED.replace(b"4096", b"1")),
        ("SCRAM-SHA-256/broken", STORED.replace(b'"salt":"c2FsdA=="', b'"salt":""')),
        ("SCRAM-SHA-256/broken", b"{}"),
        ("SCRAM-SHA-1/broken", STORED),
        ("SCRAM-SHA-256/", STORED),
        ("SCRAM-SHA-256", STORED),
        ("", STORED),
    ],
)
async def test_damaged_rows(
    state: MemoryStateStore, caplog: pytest.LogCaptureFixture, key: str, value: bytes
) -> None:
    """A row that makes no sense is left out and reported; the others serve."""
    await state.apply(
        [
            Change(SCRAM_CREDENTIAL, "SCRAM-SHA-256/alice", STORED),
            Change(SCRAM_CREDENTIAL, key, value),
        ]
    )
    with caplog.at_level(logging.ERROR):
        credentials = await opened(state)
    assert ["alice"] == list(credentials.users)
    assert 1 == caplog.text.count("a stored credential is damaged")
    assert "AQEB" not in caplog.text


async def test_rows_that_fail_their_checksum(
    state: MemoryStateStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store gives what is intact: these users can log in."""
    await (await opened(state)).change(
        {(SHA_256, "alice"): CREDENTIAL, (SHA_256, "bob"): CREDENTIAL}
    )
    load = state.load

    async def damaged(kind: str) -> Mapping[str, Row]:
        rows = dict(await load(kind))
        if kind != SCRAM_CREDENTIAL:
            return rows
        del rows["SCRAM-SHA-256/bob"]
        raise DamagedRowsError(kind, rows, ["SCRAM-SHA-256/bob"])

    monkeypatch.setattr(state, "load", damaged)
    credentials = await opened(state)
    assert ["alice"] == list(credentials.users)
    assert "SCRAM-SHA-256/bob" in str(caplog.records[-1].__dict__)


class TestUnknownUsers:
    async def test_the_secret_stays(self, state: MemoryStateStore) -> None:
        """An unknown user has the same salt after a restart; else it would be known as unknown."""
        first = (await opened(state)).fakes.credential(SHA_256, "nobody", is_token=False)
        second = (await opened(state)).fakes.credential(SHA_256, "nobody", is_token=False)
        assert first == second
        (row,) = (await state.load(UNKNOWN_USERS)).values()
        assert 32 == len(row.value)

    async def test_two_clusters_differ(self, state: MemoryStateStore) -> None:
        """The secret is random."""
        other = MemoryStateStore()
        await other.open()
        salts = {
            (await opened(store)).fakes.credential(SHA_256, "nobody", is_token=False).salt
            for store in (state, other)
        }
        assert 2 == len(salts)

    async def test_it_is_not_the_cluster_id(self) -> None:
        """Each client knows the id of the cluster, and could compute every fake salt."""
        backend = MemoryBackend()
        async with InProcessGateway(backend=backend) as running:
            await running.gateway.load_credentials()
            (secret,) = (await backend.state.load(UNKNOWN_USERS)).values()
            cluster = [row.value for row in (await backend.state.load(CLUSTER)).values()]
            assert cluster
            assert all(secret.value not in one and one not in secret.value for one in cluster)
            assert running.gateway.placement.cluster_id.encode() not in secret.value

    async def test_iterations_of_real_users(self, state: MemoryStateStore) -> None:
        """Where all users have 8,192 iterations, an unknown one has as many: at once, and later."""
        credentials = await opened(state)
        strong: Any = credential_of(SHA_256, iterations=8192)

        def counts(of: Credentials) -> set[int]:
            return {
                of.fakes.credential(SHA_256, str(number), is_token=False).iterations
                for number in range(40)
            }

        assert {4096} == counts(credentials)
        await credentials.change({(SHA_256, "alice"): strong, (SHA_256, "bob"): CREDENTIAL})
        assert {4096, 8192} == counts(credentials)
        await credentials.change({(SHA_256, "bob"): None})
        assert {8192} == counts(credentials)
        assert {8192} == counts(await opened(state))

    async def test_iterations_of_each_mechanism(self, state: MemoryStateStore) -> None:
        """An unknown user answers both mechanisms as the one real user does."""
        credentials = await opened(state)
        strong: Any = credential_of(SHA_256, iterations=8192)

        def pairs(of: Credentials) -> set[tuple[int, ...]]:
            return {
                tuple(
                    of.fakes.credential(mechanism, str(number), is_token=False).iterations
                    for mechanism in (SHA_256, SHA_512)
                )
                for number in range(40)
            }

        await credentials.change(
            {(SHA_256, "alice"): strong, (SHA_512, "alice"): credential_of(SHA_512)}
        )
        assert {(8192, 4096)} == pairs(credentials)
        assert {(8192, 4096)} == pairs(await opened(state))
        await credentials.change({(SHA_256, "alice"): None})
        assert {(4096, 4096)} == pairs(credentials)

    async def test_common_iterations(self, state: MemoryStateStore) -> None:
        """The count of one user among ten is the count of about one unknown user in ten."""
        credentials = await opened(state)
        strong: Any = credential_of(SHA_256, iterations=8192)
        users: Any = {(SHA_256, f"user-{number}"): CREDENTIAL for number in range(9)}
        await credentials.change(users | {(SHA_256, "alice"): strong})
        found = [
            credentials.fakes.credential(SHA_256, str(number), is_token=False).iterations
            for number in range(1_000)
        ]
        assert 70 <= found.count(8192) <= 130
