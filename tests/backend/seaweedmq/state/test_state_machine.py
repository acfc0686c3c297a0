"""Whatever happens to the state on a filer, it is what a dictionary would be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.state.base import Change, ConflictError, Row, StateTakenOverError
from kgw.testing.filer import FilerStore
from tests.backend.seaweedmq.state.driver import Gateway, killed_at, rows_of

if TYPE_CHECKING:
    from kgw.state.base import StateStore

Sets: TypeAlias = list[list[Change]]
Rows: TypeAlias = dict[tuple[str, str], Row]


class Step(NamedTuple):
    """Sets that are applied at the same time, and what happens to the gateway that does it."""

    sets: Sets
    fate: str = "goes on"
    calls: int = 0
    """Of its filer, before it is killed."""
    is_done: bool = False
    """Whether the filer does what the last call asks for."""


changes = st.builds(
    Change,
    st.sampled_from(["one", "two"]),
    st.sampled_from(["a", "b", "c"]),
    st.none() | st.binary(max_size=40),
    st.none() | st.integers(0, 2),
)
steps = st.builds(
    Step,
    st.lists(st.lists(changes, min_size=1, max_size=3), max_size=5),
    st.sampled_from(["goes on", "stops", "is killed", "is killed", "is replaced"]),
    st.integers(0, 12),
    st.booleans(),
)


def after(rows: Rows, changes: list[Change]) -> Rows | None:
    """Return what a set makes of rows; None for a conflict."""
    rows = dict(rows)
    for change in changes:
        row_key = (change.kind, change.key)
        version = rows[row_key].version if row_key in rows else 0
        if change.expected_version not in {None, version}:
            return None
        rows.pop(row_key, None)
        if change.value is not None:
            rows[row_key] = Row(change.value, version + 1)
    return rows


async def found(store: StateStore) -> Rows:
    """Return a store's rows as the model has them."""
    return {
        (kind, key): row
        for kind, rows in (await rows_of(store)).items()
        for key, row in rows.items()
    }


class Story:
    """A directory of a filer, the gateway that writes it, and what should be there."""

    def __init__(self) -> None:
        self.filers = FilerStore()
        self.gateway = Gateway(self.filers)
        self.rows: Rows = {}

    async def take(self, step: Step) -> None:
        """Let one thing happen, and compare."""
        if step.fate == "is killed":
            await self.kill(step)
        elif step.fate == "is replaced":
            await self.replace(step)
        else:
            await self.apply(step.sets)
            if step.fate == "stops":
                await self.gateway.aclose()
                await self.go_on()
        assert self.rows == await found(self.gateway.store)

    async def go_on(self) -> None:
        """Open it in another process."""
        self.gateway = Gateway(self.filers)
        await self.gateway.open()

    async def apply(self, sets: Sets) -> None:
        """Apply sets at the same time: each goes through or meets the conflict that it should."""
        store = self.gateway.store
        outcomes = await asyncio.gather(*map(store.apply, sets), return_exceptions=True)
        for one, outcome in zip(sets, outcomes, strict=True):
            rows = after(self.rows, one)
            assert type(outcome) is (ConflictError if rows is None else type(None)), outcome
            self.rows = self.rows if rows is None else rows

    async def kill(self, step: Step) -> None:
        """Kill it while it applies: what was acknowledged is there, and nothing out of order."""
        acknowledged: list[int] = []

        async def apply_one(number: int) -> None:
            try:
                await self.gateway.store.apply(step.sets[number])
            except ConflictError:
                return
            acknowledged.append(number)

        async def work() -> None:
            await asyncio.gather(*map(apply_one, range(len(step.sets))))

        await killed_at(self.gateway, work(), step.calls, is_done=step.is_done)
        candidates = [self.rows]
        for number, one in enumerate(step.sets):
            rows = after(candidates[-1], one)
            candidates.append(candidates[-1] if rows is None else rows)
            if number in acknowledged:
                candidates = candidates[-1:]
        await self.go_on()
        self.rows = await found(self.gateway.store)
        assert self.rows in candidates

    async def replace(self, step: Step) -> None:
        """Let another take over: what the first one is asked for then is refused."""
        old = self.gateway
        await self.go_on()
        for one in step.sets:
            if after(self.rows, one) is not None:
                with pytest.raises(StateTakenOverError):
                    await old.store.apply(one)
        await old.aclose()


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=60)
@given(story=st.lists(steps, min_size=3, max_size=15))
def test_it_is_a_dictionary(story: list[Step]) -> None:
    """Sets at the same time, stops, kills at any call, take-overs, files and snapshots between."""

    async def run() -> None:
        told = Story()
        await told.gateway.open()
        for step in story:
            await told.take(step)
        await told.gateway.aclose()

    asyncio.run(run())
