"""Kinds of groups side by side: whatever holds for the shell holds for a machine of any kind."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pytest

from kgw.completion import until_done
from kgw.coordinator.machine import (
    NEVER_S,
    Answer,
    Asked,
    Become,
    Call,
    Compute,
    CreateTopic,
    DecodedRow,
    DescribeTopics,
    Event,
    Kind,
    Persist,
    Returned,
    TopicMetadata,
)
from kgw.errors import ErrorCode
from kgw.groups.coordinator import KINDS, GroupCoordinator
from kgw.groups.group import GroupSettings
from kgw.groups.machine import refuse_other_kind
from kgw.groups.requests import (
    CLASSIC,
    CommitRequest,
    DeleteRequest,
    GroupDescription,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
    SyncResult,
    TxnCommitRequest,
)
from kgw.metrics import Metrics
from kgw.offsets.pending import PendingCommit
from kgw.offsets.rows import OFFSET_KINDS
from kgw.state.kinds import CLASSIC_GROUP, GROUP_KINDS
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.groups.driver import answer
from tests.groups.life import FlakyStore

if TYPE_CHECKING:
    from kgw.coordinator.entry import Reply
    from kgw.groups.machine import Beginning, Effect
    from kgw.state.base import Row

ResultT = TypeVar("ResultT")

SHARING = "sharing-group"
TOTAL, STEP = "total", "step"
"""Kinds of rows: one for each group, and one for each time that something was added."""


class State(Enum):
    """The only one."""

    COUNTING = "Counting"


class Number(NamedTuple):
    """The content of a row."""

    value: int

    def encode(self, _wall_ms: int) -> bytes:
        return str(self.value).encode()


class Add(NamedTuple):
    """Adds a number; answered with the sum."""

    number: int

    def without_group(self, _group_id: str, *, has_room: bool) -> ErrorCode | str:
        return "adding" if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED

    def other_kind(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refused(self, error: ErrorCode) -> str:
        return error.name


class AddingGroup:
    """A machine whose state is several rows."""

    protocol_type = ""
    state = State.COUNTING
    generation = member_count = pending_count = 0
    is_vacant = True
    next_deadline_s = NEVER_S

    def __init__(self, beginning: Beginning) -> None:
        self.group_id = beginning.group_id
        self.empty_since_s = beginning.empty_since_s
        steps = [row for (kind, _), row in beginning.rows.items() if kind == STEP]
        self.steps = [row.value for row in steps if isinstance(row, Number)]

    def handle(self, event: Event, _now_s: float) -> list[Effect]:
        if not isinstance(event, Asked):
            return []
        if not isinstance(event.request, Add):
            return [refuse_other_kind(event)]
        self.steps.append(event.request.number)
        total, key = sum(self.steps), f"{self.group_id}/{len(self.steps)}"
        rows = {
            (TOTAL, self.group_id): Number(total),
            (STEP, key): Number(event.request.number),
        }
        return [Persist(rows), Answer(event.waiter, str(total))]

    def describe(self) -> GroupDescription:
        return GroupDescription(self.state.value, "", "", 0, ())

    def subscribed_topics(self) -> frozenset[str] | None:
        return None


def decode(_kind: str, key: str, value: bytes) -> DecodedRow:
    """Return a row; those of steps have their number behind the group's id."""
    return DecodedRow(key.partition("/")[0], Number(int(value)))


ADDING = {"adding": Kind((TOTAL, STEP), decode, AddingGroup)}
JOIN = JoinRequest(
    *("", None, "client", "/host", 10_000, 10_000, "workers", (MemberProtocol("any", b""),)),
    "member",
)


async def start(store: FlakyStore) -> GroupCoordinator:
    """Begin, with one kind of group beside those that there are."""
    kinds = {**KINDS, **ADDING}
    groups = GroupCoordinator(
        store, ManualClock(), GroupSettings(), Metrics(), lambda _: None, kinds
    )
    await groups.open(lambda _: True)
    return groups


async def test_another_kind_of_group_needs_no_other_shell() -> None:
    """Its rows are stored together, and it is loaded from them, after a failure or a start."""
    store = FlakyStore()
    groups = await start(store)
    joining = groups.ask("classic", JOIN)
    assert "3" == await answer(groups.ask("sum", Add(3)))
    assert "7" == await answer(groups.ask("sum", Add(4)))
    assert 1 == (await answer(joining)).generation
    store.outcome = "refused"
    assert "COORDINATOR_NOT_AVAILABLE" == await answer(groups.ask("sum", Add(5)))
    assert "13" == await answer(groups.ask("sum", Add(6)))

    groups = await start(store)

    assert {("sum", "adding", "Counting"), ("classic", CLASSIC, "CompletingRebalance")} == {
        (one.group_id, one.type, one.state) for one in groups.listed()
    }
    assert "14" == await answer(groups.ask("sum", Add(1)))
    assert ["sum/1", "sum/2", "sum/3", "sum/4"] == sorted(await store.load(STEP))
    assert b"14" == (await store.load(TOTAL))["sum"].value


async def test_no_kind_answers_before_everything_is_loaded() -> None:
    """Whether a group is loaded already or not, and whether there is such a kind."""
    store = FlakyStore()
    groups = await start(store)
    assert "3" == await answer(groups.ask("sum", Add(3)))
    later = GroupCoordinator(
        store, ManualClock(), GroupSettings(), Metrics(), lambda _: None, {**KINDS, **ADDING}
    )
    asked = []
    load = store.load

    async def load_and_ask(kind: str) -> dict[str, Row]:
        asked.append(await answer(later.ask("sum", Add(1))))
        return await load(kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "load", load_and_ask)
        await later.open(lambda _: True)
    assert {"COORDINATOR_LOAD_IN_PROGRESS"} == set(asked)
    assert "4" == await answer(later.ask("sum", Add(1)))


GONE = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (JOIN, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")),
        (SyncRequest("member", None, 1), SyncResult(UNKNOWN)),
        (HeartbeatRequest("member", None, 1), UNKNOWN),
        (LeaveRequest((LeavingMember("a"), LeavingMember("b"))), [UNKNOWN, UNKNOWN]),
        (CommitRequest("member", None, 1, {}), GONE),
        (CommitRequest("", None, -1, {}), GONE),
        (TxnCommitRequest("member", None, 1, PendingCommit(1, 0, {})), GONE),
        (DeleteRequest(), GONE),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_a_request_for_a_group_of_another_kind_is_refused(
    request_: Any, expected: object
) -> None:
    """With the error of Kafka's coordinator, and the group stays as it is."""
    groups = await start(FlakyStore())
    assert "3" == await answer(groups.ask("sum", Add(3)))
    assert expected == await answer(groups.ask("sum", request_))
    assert "7" == await answer(groups.ask("sum", Add(4)))


async def test_a_classic_group_refuses_the_requests_of_another_kind() -> None:
    """Its members go on."""
    groups = await start(FlakyStore())
    joined = await answer(groups.ask("classic", JOIN))
    assert "GROUP_ID_NOT_FOUND" == await answer(groups.ask("classic", Add(3)))
    synced = SyncRequest(joined.member_id, None, joined.generation, ((joined.member_id, b"all"),))
    assert b"all" == (await answer(groups.ask("classic", synced))).assignment


def test_a_start_looks_for_the_rows_of_every_kind() -> None:
    """It does without the code of groups where it finds none of them."""
    rows = {row for kind in KINDS.values() for row in kind.row_kinds}
    assert GROUP_KINDS == rows | OFFSET_KINDS


# --- a kind that uses every effect ---------------------------------------------------------------


class Share(NamedTuple):
    """A member asks for its partitions of a topic, which is created if there is none."""

    topic: str

    def without_group(self, _group_id: str, *, has_room: bool) -> ErrorCode | str:
        return "sharing" if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED

    def other_kind(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refused(self, error: ErrorCode) -> str:
        return error.name


class Members(NamedTuple):
    """The content of a row: the partitions of each member."""

    parts: dict[str, list[int]]

    def encode(self, _running_ms: int) -> bytes:
        return json.dumps(self.parts).encode()


def share_out(members: list[str], count: int) -> dict[str, list[int]]:
    """Return the partitions of each member: long work."""
    return {one: list(range(count))[number :: len(members)] for number, one in enumerate(members)}


class SharingGroup(AddingGroup):
    """Asks for the topic, creates it, assigns it in a thread, and becomes a classic group."""

    asked: Any

    def handle(self, event: Any, now_s: float) -> list[Any]:
        if isinstance(event, Asked) and isinstance(event.request, Share):
            self.asked = event
            return [Call(DescribeTopics((event.request.topic,)))]
        if isinstance(event, Returned):
            return self.returned(event)
        if isinstance(event, Asked):
            # As a member of the older protocol joins.
            rows = {(SHARING, self.group_id): None}
            return [Persist(rows), Become(CLASSIC, event)]
        return []

    def returned(self, event: Returned) -> list[Any]:
        topic = self.asked.request.topic
        if event.error is not ErrorCode.NONE:
            return [Answer(self.asked.waiter, event.error.name)]
        if isinstance(event.request, DescribeTopics) and topic not in event.result:
            return [Call(CreateTopic(topic, 3, {}))]
        if isinstance(event.request, Compute):
            rows = {(SHARING, self.group_id): Members(event.result)}
            return [Persist(rows), Answer(self.asked.waiter, json.dumps(event.result))]
        found = event.result
        found = found if isinstance(found, TopicMetadata) else found[topic]
        return [Call(Compute(share_out, (["a", "b"], found.partition_count)))]


def decode_members(_kind: str, key: str, value: bytes) -> DecodedRow:
    """Return the members of a group."""
    return DecodedRow(key, Members(json.loads(value)))


async def until_answered(reply: Reply[ResultT]) -> ResultT:
    """Wait for an answer for which a thread works."""
    await until_done(reply)
    return reply.result


async def test_a_kind_uses_topics_threads_and_other_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is listed in `KINDS`, and nothing else changes: neither the runtime nor the gateway."""
    monkeypatch.setitem(
        cast("dict[str, Kind]", KINDS), "sharing", Kind((SHARING,), decode_members, SharingGroup)
    )
    async with InProcessGateway() as gateway:
        assert '{"a": [0, 2], "b": [1]}' == await until_answered(
            gateway.groups.ask("group", Share("new"))
        )
        assert 3 == gateway.catalog.topics["new"].partition_count
        assert '{"a": [0, 2], "b": [1]}' == await until_answered(
            gateway.groups.ask("group", Share("new"))
        )
        assert "INVALID_TOPIC_EXCEPTION" == await until_answered(
            gateway.groups.ask("group", Share("?"))
        )
        assert ["sharing"] == [one.type for one in gateway.groups.listed()]
        state = gateway.backend.state
        assert ["group"] == list(await state.load(SHARING))

        joined = await until_answered(gateway.groups.ask("group", JOIN))

        assert (ErrorCode.NONE, 1) == (joined.error, joined.generation)
        assert [CLASSIC] == [one.type for one in gateway.groups.listed()]
        assert ["group"] == list(await state.load(CLASSIC_GROUP))
        assert {} == await state.load(SHARING)
