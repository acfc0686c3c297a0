"""The access rules of a cluster: kept in the state store, in force in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest

from kgw.errors import StorageError
from kgw.handlers.context import Session
from kgw.logs import JsonFormatter, TextFormatter
from kgw.metrics import Metrics
from kgw.protocol.api_keys import ApiKey
from kgw.security.access import Access
from kgw.security.audit import MOST_LINES, Audit
from kgw.security.principal import Principal
from kgw.state.base import Change
from kgw.state.kinds import ACCESS_RULE
from kgw.state.memory import MemoryStateStore
from tests.handlers.support import LoopTurns
from tests.security.acls.writing import question, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

ALLOW = rule("ALLOW User:alice READ TOPIC orders")
DENY = rule("DENY User:alice READ TOPIC ord~")
ASKED = "User:alice READ TOPIC orders"


class SlowState(MemoryStateStore):
    """A store whose changes wait until they are let go, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.fails = False
        self.sizes: list[int] = []

    async def apply(self, changes: Sequence[Change]) -> None:
        self.sizes.append(len(changes))
        self.asked.set()
        await self.gate.wait()
        if self.fails:
            raise StorageError("the disk is gone")
        await super().apply(changes)


class Guard:
    """Rules over a store, and what they decide."""

    def __init__(
        self, state: MemoryStateStore, *super_users: str, most_rules: int = 10_000
    ) -> None:
        self.state = state
        self.metrics = Metrics()
        self.now_s = 100.0
        audit = Audit(self.metrics, lambda: self.now_s)
        self.access = Access(super_users, audit, most_rules)

    async def open(self) -> Guard:
        await self.access.open(self.state)
        return self

    def allows(self, asked: str, *, quiet: bool = False) -> bool:
        return self.access.permits(*question(asked), request=ApiKey.FETCH, quiet=quiet)


async def opened(state: MemoryStateStore | None = None, *super_users: str) -> Guard:
    """Return rules that are loaded."""
    return await Guard(MemoryStateStore() if state is None else state, *super_users).open()


async def test_until_they_are_loaded_nothing_is_allowed() -> None:
    """But to super users, who are settings."""
    guard = Guard(MemoryStateStore(), "User:admin")
    assert not guard.allows(ASKED)
    assert guard.allows("User:admin READ TOPIC orders")


async def test_rules_outlive_the_process() -> None:
    """Rules that were added are loaded at the next start, and removed ones are not."""
    state = MemoryStateStore()
    guard = await opened(state)
    await guard.access.add([ALLOW, DENY])
    assert not (await opened(state)).allows(ASKED)
    await guard.access.remove([DENY])
    again = await opened(state)
    assert again.allows(ASKED)
    assert [ALLOW] == again.access.bindings()
    await guard.access.remove([ALLOW])
    assert [] == (await opened(state)).access.bindings()


async def test_a_rule_is_stored_once() -> None:
    """Adding it again changes nothing, and removing it then removes it."""
    state = MemoryStateStore()
    guard = await opened(state)
    for _ in range(2):
        await guard.access.add([ALLOW, ALLOW])
    assert ([ALLOW], 1) == (guard.access.bindings(), len(await state.load(ACCESS_RULE)))
    await guard.access.remove([ALLOW])
    assert {} == await state.load(ACCESS_RULE)


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"\xff", json.dumps({"type": "TOPIC", "name": "orders"}).encode()]
)
async def test_a_damaged_rule_ends_the_start(value: bytes) -> None:
    """It may be one that denies, so no server runs without it."""
    state = MemoryStateStore()
    await (await opened(state)).access.add([ALLOW])
    await state.apply([Change(ACCESS_RULE, "damaged", value)])
    with pytest.raises(StorageError, match="a stored access rule is damaged"):
        await opened(state)


async def test_a_change_is_durable_before_it_is_in_force() -> None:
    """Otherwise a crash could open again what a client has seen closed, or the other way round."""
    state = SlowState()
    guard = await opened(state)
    adding = asyncio.ensure_future(guard.access.add([ALLOW]))
    await state.asked.wait()
    assert not guard.allows(ASKED)
    state.gate.set()
    await adding
    assert guard.allows(ASKED)
    state.gate.clear()
    state.asked.clear()
    removing = asyncio.ensure_future(guard.access.remove([ALLOW]))
    await state.asked.wait()
    assert guard.allows(ASKED)
    state.gate.set()
    await removing
    assert not guard.allows(ASKED)


async def test_a_change_that_is_not_stored_is_not_in_force() -> None:
    """The storage has failed: the rules stay as they are."""
    state = SlowState()
    state.gate.set()
    guard = await opened(state)
    state.fails = True
    with pytest.raises(StorageError, match="the disk is gone"):
        await guard.access.add([ALLOW])
    assert not guard.allows(ASKED)
    assert (0, []) == (guard.access.version, guard.access.bindings())


async def test_changes_take_effect_in_their_order() -> None:
    """A rule that is added and removed at the same time is gone in memory and in the store."""
    state = SlowState()
    guard = await opened(state)
    changes = [
        asyncio.ensure_future(one)
        for one in (
            guard.access.add([ALLOW]),
            guard.access.remove([ALLOW]),
            guard.access.add([DENY]),
        )
    ]
    state.gate.set()
    await asyncio.gather(*changes)
    assert [DENY] == guard.access.bindings()
    assert 1 == len(await state.load(ACCESS_RULE))


async def test_a_wrong_rule_adds_none() -> None:
    """The rules of one call are added together."""
    guard = await opened()
    with pytest.raises(ValueError, match="The resource name is empty"):
        await guard.access.add([ALLOW, ALLOW._replace(resource_name="")])
    assert [] == guard.access.bindings()


async def test_a_change_is_told() -> None:
    """When the rule is in force; the call ends when the listeners have done their work."""
    guard = await opened()
    seen: list[tuple[bool, int]] = []

    async def listen() -> None:
        await asyncio.sleep(0)
        seen.append((guard.allows(ASKED), guard.access.version))

    guard.access.when_changed.append(listen)
    await guard.access.add([ALLOW])
    await guard.access.remove([ALLOW])
    assert [True, False] == [allowed for allowed, _ in seen]
    assert [1, 2] == [version for _, version in seen]
    await guard.access.add([])
    assert 2 == len(seen)


async def test_many_rules_take_turns() -> None:
    """10,000 rules are encoded and taken in steps, and stored at once."""
    state = SlowState()
    state.gate.set()
    guard = await opened(state)
    many = [ALLOW._replace(resource_name=f"orders-{number}") for number in range(2_000)]
    async with LoopTurns() as turns:
        await guard.access.add(many)
    assert turns.count >= 20
    assert [2_000] == state.sizes
    assert guard.allows("User:alice READ TOPIC orders-1999")
    await guard.access.remove(many)
    assert not guard.allows("User:alice READ TOPIC orders-0")


@pytest.mark.parametrize("is_added", [True, False])
async def test_a_change_opens_nothing_on_its_way(is_added: bool) -> None:
    """A long change takes effect in steps; what is denied before and after it is denied between."""
    state = SlowState()
    state.gate.set()
    guard = await opened(state)
    others = [ALLOW._replace(resource_name=f"other-{number}") for number in range(500)]
    # The wrong order: a step that has only the first rule would open the topic.
    changed = [ALLOW, *others, DENY] if is_added else [DENY, *others, ALLOW]
    if not is_added:
        await guard.access.add(changed)
    change = guard.access.add if is_added else guard.access.remove
    task = asyncio.ensure_future(change(changed))
    steps = 0
    while not task.done():
        assert not guard.allows(ASKED)
        steps += 1
        await asyncio.sleep(0)
    await task
    assert steps >= 5
    assert not guard.allows(ASKED)


async def test_there_is_room_for_so_many_rules() -> None:
    """Rules that are there already need none; a rule that is removed makes room."""
    state = MemoryStateStore()
    guard = await Guard(state, most_rules=3).open()
    new = [ALLOW._replace(resource_name=f"orders-{number}") for number in range(4)]
    assert frozenset() == await guard.access.add([ALLOW, DENY])
    assert frozenset(new[1:]) == await guard.access.add([ALLOW, new[0], new[0], DENY, *new[1:]])
    assert {ALLOW, DENY, new[0]} == set(guard.access.bindings())
    assert 3 == len(await state.load(ACCESS_RULE))
    assert frozenset(new[3:]) == await guard.access.add(new[3:])
    await guard.access.remove([DENY])
    assert frozenset() == await guard.access.add(new[3:])
    # The rules of an earlier start all hold, also if the limit is lower now.
    again = await Guard(state, most_rules=1).open()
    assert 3 == len(again.access.bindings())
    assert frozenset([DENY]) == await again.access.add([DENY])


# --- what is told of decisions -------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, object]]]:
    """Return the lines of the audit log: level, event and fields."""
    return [
        (one.levelname, one.getMessage(), one.__dict__["kgw_fields"])
        for one in caplog.records
        if one.name == "kgw.audit"
    ]


async def test_denials_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With who was denied what, and by which rule; a quiet question is not."""
    guard = await opened()
    await guard.access.add([DENY])
    with caplog.at_level(logging.INFO, "kgw.audit"):
        assert not guard.allows(ASKED)
        assert not guard.allows("User:bob WRITE GROUP g")
        assert not guard.allows("User:bob DESCRIBE GROUP g", quiet=True)
    fields = {"host": "10.0.0.9", "request": "FETCH"}
    denied = {
        **fields,
        "principal": "User:alice",
        "operation": "Read",
        "resource_type": "Topic",
        "resource": "orders",
        "rule": str(DENY),
    }
    other = {
        **fields,
        "principal": "User:bob",
        "operation": "Write",
        "resource_type": "Group",
        "resource": "g",
        "rule": "DefaultDeny",
    }
    assert [("INFO", "denied", denied), ("INFO", "denied", other)] == lines(caplog)
    counts = {("Read", "Topic"): 1, ("Write", "Group"): 1}
    assert counts == guard.metrics.access_denials


async def test_each_denied_resource_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The denial of one resource does not hide that of another; the same is logged once in 10 s."""
    guard = await opened()
    with caplog.at_level(logging.INFO, "kgw.audit"):
        for _ in range(3):
            for asked in ("READ TOPIC a", "READ TOPIC b", "READ GROUP a", "WRITE TOPIC a"):
                assert not guard.allows(f"User:alice {asked}")
            assert not guard.allows("User:alice READ TOPIC a @10.0.0.1")
        guard.now_s += 11
        assert not guard.allows("User:alice READ TOPIC a")
    told = [
        (one["host"], one["operation"], one["resource_type"], one["resource"])
        for _, _, one in lines(caplog)
    ]
    host = "10.0.0.9"
    first = (host, "Read", "Topic", "a")
    assert [
        first,
        (host, "Read", "Topic", "b"),
        (host, "Read", "Group", "a"),
        (host, "Write", "Topic", "a"),
        ("10.0.0.1", "Read", "Topic", "a"),
        first,
    ] == told
    assert [None] * 5 + [10] == [one.get("and_before_it") for _, _, one in lines(caplog)]


async def test_one_client_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of one principal twenty lines in ten seconds; a line says how many were left out."""
    guard = await opened()
    with caplog.at_level(logging.INFO, "kgw.audit"):
        for number in range(100):
            assert not guard.allows(f"User:alice READ TOPIC t{number}")
        assert not guard.allows("User:bob READ TOPIC t1")
        guard.now_s += 11
        assert not guard.allows("User:alice READ TOPIC last")
    told = [
        (one["principal"], one["resource"], one.get("and_before_it")) for _, _, one in lines(caplog)
    ]
    alice = "User:alice"
    first = [(alice, f"t{number}", None) for number in range(MOST_LINES)]
    assert [*first, ("User:bob", "t1", None), (alice, "last", 80)] == told
    assert {("Read", "Topic"): 102} == guard.metrics.access_denials


async def test_many_principals_need_little_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Each is logged, and what was logged of earlier ones is forgotten at some time."""
    guard = await opened()
    with caplog.at_level(logging.INFO, "kgw.audit"):
        for number in range(1_001):
            assert not guard.allows(f"User:u{number} READ TOPIC t")
        assert 1_001 == len(lines(caplog))
        assert not guard.allows("User:u0 READ TOPIC t")
        assert not guard.allows("User:u1000 READ TOPIC t")
    assert 1_002 == len(lines(caplog))


async def test_allowed_operations_are_logged_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of them, with the rule; at other levels none."""
    guard = await opened(None, "User:admin")
    await guard.access.add([ALLOW])
    with caplog.at_level(logging.INFO, "kgw.audit"):
        assert guard.allows(ASKED)
    assert [] == lines(caplog)
    with caplog.at_level(logging.DEBUG, "kgw.audit"):
        assert guard.allows(ASKED)
        assert guard.allows("User:admin WRITE TOPIC orders")
    assert [("DEBUG", "allowed", str(ALLOW)), ("DEBUG", "allowed", "SuperUser")] == [
        (level, event, fields["rule"]) for level, event, fields in lines(caplog)
    ]
    assert {} == guard.metrics.access_denials


async def test_a_right_on_any_resource_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The line has `*` as the name."""
    guard = await opened()
    principal, host, operation, resource_type, _ = question("User:alice WRITE TOPIC any")
    with caplog.at_level(logging.INFO, "kgw.audit"):
        permits = guard.access.permits_any
        assert not permits(
            principal, host, operation, resource_type, request=ApiKey.INIT_PRODUCER_ID
        )
    assert [("*", "INIT_PRODUCER_ID")] == [
        (fields["resource"], fields["request"]) for _, _, fields in lines(caplog)
    ]


async def test_changes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Each rule that a client has added or removed, with the client; not those that stay."""
    guard = await opened()
    author = Session(client_host="192.0.2.1", principal=Principal("User", "admin"))
    with caplog.at_level(logging.INFO, "kgw.audit"):
        await guard.access.add([ALLOW], author)
        await guard.access.add([ALLOW, DENY], author)
        await guard.access.remove([ALLOW], author)
        await guard.access.remove([ALLOW], author)
    who = {"principal": "User:admin", "host": "192.0.2.1"}
    assert [
        ("INFO", "rule added", {**who, "rule": ALLOW}),
        ("INFO", "rule added", {**who, "rule": DENY}),
        ("INFO", "rule removed", {**who, "rule": ALLOW}),
    ] == lines(caplog)


async def test_a_change_that_fails_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """The storage has failed."""
    state = SlowState()
    state.gate.set()
    guard = await opened(state)
    state.fails = True
    author = Session(client_host="192.0.2.1", principal=Principal("User", "admin"))
    with caplog.at_level(logging.INFO, "kgw.audit"), pytest.raises(StorageError):
        await guard.access.add([ALLOW], author)
    assert [] == lines(caplog)


async def test_a_name_forges_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in text nor in JSON: clients choose the names of groups, and rules have any text."""
    guard = await opened()
    forged = 'g\n{"event": "allowed"}\r\u2028 principal=User:admin "'
    await guard.access.add([DENY._replace(resource_name=forged)])
    principal, host, operation, resource_type, _ = question(ASKED)
    with caplog.at_level(logging.INFO, "kgw.audit"):
        permits = guard.access.permits
        assert not permits(principal, host, operation, resource_type, forged, request=ApiKey.FETCH)
    (record,) = [one for one in caplog.records if one.name == "kgw.audit"]
    for formatter in (JsonFormatter(), TextFormatter()):
        line = formatter.format(record)
        assert [line] == line.splitlines()
        assert "User:alice" in line
    assert forged == json.loads(JsonFormatter().format(record))["resource"]
    assert 'resource="g' in TextFormatter().format(record)
