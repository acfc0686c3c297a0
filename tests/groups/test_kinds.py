"""Kinds of groups side by side: whatever holds for the shell holds for a machine of any kind."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kgw.coordinator.machine import NEVER_S, Answer, Asked, DecodedRow, Event, Kind, Persist
from kgw.errors import ErrorCode
from kgw.groups.coordinator import KINDS, GroupCoordinator
from kgw.groups.group import GroupSettings
from kgw.groups.requests import CLASSIC, GroupDescription, JoinRequest, MemberProtocol
from kgw.metrics import Metrics
from kgw.testing.clock import ManualClock
from tests.groups.driver import answer
from tests.groups.life import FlakyStore

if TYPE_CHECKING:
    from kgw.groups.machine import Beginning, Effect

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
        if not (isinstance(event, Asked) and isinstance(event.request, Add)):
            return []
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


async def start(store: FlakyStore) -> GroupCoordinator:
    """Begin, with one kind of group beside those that there are."""
    kinds = {**KINDS, "adding": Kind((TOTAL, STEP), decode, AddingGroup)}
    groups = GroupCoordinator(
        store, ManualClock(), GroupSettings(), Metrics(), lambda _: None, kinds
    )
    await groups.open(lambda _: True)
    return groups


async def test_another_kind_of_group_needs_no_other_shell() -> None:
    """Its rows are stored together, and it is loaded from them, after a failure or a start."""
    store = FlakyStore()
    groups = await start(store)
    join = JoinRequest(
        *("", None, "client", "/host", 10_000, 10_000, "workers", (MemberProtocol("any", b""),)),
        "member",
    )
    joining = groups.ask("classic", join)
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
