"""The stored delegation tokens: their rows, and what becomes of damaged ones."""

from __future__ import annotations

import asyncio
from os import urandom
from typing import TYPE_CHECKING

import pytest

from kgw.security.credentials import Credentials
from kgw.security.delegation_tokens import DelegationTokens, TokenCaps
from kgw.security.sasl.scram import ScramMechanism
from kgw.security.sasl.tokens import TokenLimits, TokenRules
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import DELEGATION_TOKEN, WATCHED_KINDS
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from tests.security.sasl.logins import ALICE, BOB, DAY_MS, NOW_MS, RULES, SALT, credential_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.state.base import Row

SHA_256, SHA_512 = ScramMechanism
CAPS = TokenCaps(100, 100)
STORED = (
    b'{"token_id":"AAECAwQFBgcICQoLDA0ODw","owner":"User:alice","requester":"User:bob",'
    b'"renewers":["User:carol"],"issue_timestamp_ms":1800000000000,'
    b'"max_timestamp_ms":1800604800000,"expiry_timestamp_ms":1800086400000,'
    b'"key_id":"6362a94ed2cff2eb"}'
)
TOKEN_ID = "AAECAwQFBgcICQoLDA0ODw"


async def opened(
    state: MemoryStateStore, rules: TokenRules = RULES, caps: TokenCaps = CAPS
) -> DelegationTokens:
    """Return the tokens in a store, as a start of the server reads them."""
    tokens = DelegationTokens(state, rules, caps, urandom)
    await tokens.load()
    return tokens


@pytest.fixture
async def state() -> MemoryStateStore:
    """A store with one token."""
    store = MemoryStateStore()
    await store.open()
    await store.apply([Change(DELEGATION_TOKEN, TOKEN_ID, STORED)])
    return store


async def test_the_stored_form(state: MemoryStateStore) -> None:
    """Rows of this release are read by the next one: key and value are pinned."""
    tokens = await opened(state)
    token = tokens.token(TOKEN_ID)
    assert token is not None
    assert STORED == token.encode()
    assert "delegation-token" == DELEGATION_TOKEN
    assert token == tokens.with_hmac(RULES.hmac(TOKEN_ID))


async def test_followers_watch_tokens(state: MemoryStateStore) -> None:
    """They hold no secret."""
    assert DELEGATION_TOKEN in WATCHED_KINDS
    before = await state.newest_change()
    tokens = await opened(state)
    new, hmac = await tokens.create(ALICE, ALICE, [], 0, NOW_MS)
    await tokens.expire(hmac, ALICE, -1, NOW_MS)
    changes = await state.changes_since(before)
    assert [(new.token_id, new.encode()), (new.token_id, None)] == [
        (one.key, one.value) for one in changes
    ]


async def test_valid_tokens_are_counted(state: MemoryStateStore) -> None:
    """Neither expired ones nor those of another secret."""
    tokens = await opened(state)
    await tokens.create(ALICE, ALICE, [], 0, NOW_MS)
    assert 2 == tokens.valid_count(NOW_MS)
    assert 0 == tokens.valid_count(NOW_MS + 8 * DAY_MS)
    other = await opened(state, TokenRules("another", TokenLimits(7 * DAY_MS, DAY_MS)))
    assert 0 == other.valid_count(NOW_MS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("broken", b"no JSON"),
        ("broken", b"{}"),
        ("broken", STORED),
        ("broken", STORED.replace(b"User:alice", b"alice")),
    ],
)
async def test_damaged_rows(
    state: MemoryStateStore, caplog: pytest.LogCaptureFixture, key: str, value: bytes
) -> None:
    """A row that makes no sense is left out and reported; the others serve."""
    await state.apply([Change(DELEGATION_TOKEN, key, value)])
    tokens = await opened(state)
    assert [TOKEN_ID] == [one.token_id for one in tokens.usable()]
    assert 1 == caplog.text.count("a stored delegation token is damaged")


async def test_rows_that_fail_their_checksum(
    state: MemoryStateStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store gives what is intact: these tokens can be used."""
    load = state.load

    async def damaged(kind: str) -> Mapping[str, Row]:
        raise DamagedRowsError(kind, await load(kind), ["gone"])

    monkeypatch.setattr(state, "load", damaged)
    tokens = await opened(state)
    assert tokens.token(TOKEN_ID) is not None
    assert "stored delegation tokens are damaged" in caplog.text


async def test_credentials_are_kept_with_their_token(state: MemoryStateStore) -> None:
    """They are made once, for each mechanism, and go with the token."""
    tokens = await opened(state)
    assert tokens.credential(SHA_256, TOKEN_ID) is None
    made = tokens.credential_maker(SHA_256, TOKEN_ID, SALT)()
    assert RULES.credential(TOKEN_ID, SHA_256, SALT) == made
    tokens.keep_credential(SHA_256, TOKEN_ID, made)
    assert made == tokens.credential(SHA_256, TOKEN_ID)
    assert tokens.credential(SHA_512, TOKEN_ID) is None
    await tokens.renew(RULES.hmac(TOKEN_ID), ALICE, 0, NOW_MS)
    assert made == tokens.credential(SHA_256, TOKEN_ID)
    await tokens.expire(RULES.hmac(TOKEN_ID), ALICE, -1, NOW_MS)
    assert tokens.credential(SHA_256, TOKEN_ID) is None
    tokens.keep_credential(SHA_256, TOKEN_ID, made)
    assert tokens.credential(SHA_256, TOKEN_ID) is None


async def test_a_stopped_server_forgets_the_tokens_of_a_deleted_user(
    state: MemoryStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """`kgw users delete --data-dir` knows no secret, and does not complain about that."""
    credentials = Credentials(state)
    await credentials.load()
    await credentials.change({(SHA_256, "bob"): credential_of(SHA_256)})
    assert {TOKEN_ID} == set(await state.load(DELEGATION_TOKEN))
    await credentials.change({(SHA_256, "bob"): None})
    assert {} == await state.load(DELEGATION_TOKEN)
    assert 0 == len(credentials.tokens)
    assert "secret.key" not in caplog.text


async def test_a_changed_mechanism_is_no_deletion(state: MemoryStateStore) -> None:
    """One request may set a credential and delete the other."""
    credentials = Credentials(state, await opened(state))
    await credentials.load()
    await credentials.change({(SHA_256, "bob"): credential_of(SHA_256)})
    await credentials.change({(SHA_256, "bob"): None, (SHA_512, "bob"): credential_of(SHA_512)})
    assert credentials.token(TOKEN_ID) is not None
    await credentials.change({(SHA_512, "bob"): None})
    assert credentials.token(TOKEN_ID) is None


async def test_many_tokens_are_loaded_in_turns(state: MemoryStateStore) -> None:
    """And counted for the caps, those of another secret, too."""
    other = TokenRules("another", TokenLimits(7 * DAY_MS, DAY_MS))
    theirs = [other.create(f"other-{n}", BOB, BOB, [], 0, NOW_MS) for n in range(300)]
    ours = [RULES.create(f"ours-{n}", ALICE, ALICE, [], 0, NOW_MS) for n in range(300)]
    rows = [Change(DELEGATION_TOKEN, one.token_id, one.encode()) for one in (*theirs, *ours)]
    await state.apply(rows)
    tokens = await opened(state)
    assert 601 == len(tokens)
    assert 301 == len(list(tokens.usable()))
    assert tokens.token("other-1") is None
    assert tokens.with_hmac(other.hmac("other-1")) is None
    assert tokens.with_hmac(RULES.hmac("other-1")) is None


class SlowState(MemoryStateStore):
    """A store whose changes end only when it is let go, also if nobody waits for them any more."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.ended = 0

    async def apply(self, changes: Sequence[Change]) -> None:
        self.begun.set()
        try:
            await self.gate.wait()
        finally:
            await asyncio.sleep(0)
            await super().apply(changes)
            self.ended += 1


async def test_the_end_waits_for_a_removal_that_has_begun() -> None:
    """Nothing is written to the store after it."""
    state = SlowState()
    await state.open()
    state.gate.set()
    await state.apply([Change(DELEGATION_TOKEN, TOKEN_ID, STORED)])
    state.gate.clear()
    state.begun.clear()
    tokens = await opened(state)
    tokens.start(ManualClock(wall_ms=NOW_MS + 30 * DAY_MS), 1_000)
    await state.begun.wait()
    await tokens.aclose()
    assert 2 == state.ended
    assert {} == await state.load(DELEGATION_TOKEN)
    await tokens.aclose()
