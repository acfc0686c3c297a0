"""The steps of a transaction at which D11 kills a gateway, and how it gets there exactly."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from kgw.backend.append import Append
from kgw.completion import Completion
from kgw.state.kinds import PENDING_OFFSETS, TRANSACTION
from kgw.transactions.rows import decode_row
from kgw.transactions.states import DECIDED, TransactionState
from tests.campaigns.support import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from kgw.errors import ErrorCode
    from kgw.gateway import Gateway
    from kgw.state.base import Change
    from kgw.transactions.machine import Ending
    from kgw.types import PartitionKey
    from tests.campaigns.retries import KeptState
    from tests.simulated_fs import SimulatedFs

WRITES = ("write", "fdatasync")


class Step(Enum):
    """What the gateway has just done, or is about to do, when it dies."""

    ID = "the id is being stored"
    PARTITION = "a partition is being stored"
    BETWEEN_BATCHES = "between two batches"
    BATCH = "a batch is written, not answered"
    OFFSETS = "offsets are being stored"
    ASKED = "the end is asked for, not decided"
    DECIDED = "it is decided, not answered"
    ANSWERED = "it is answered, no marker is written"
    BETWEEN_MARKERS = "between two markers"
    MARKED = "markers are written, the group is not told"
    GROUP_TOLD = "the group is told, it is not complete"
    COMPLETE = "it is complete, the next has not begun"

    @property
    def is_decided(self) -> bool:
        """Whether what the producer wanted must come about, whoever comes back."""
        return _ORDER[self] >= _ORDER[Step.DECIDED]

    @property
    def needs_offsets(self) -> bool:
        """Whether the transaction must have a group."""
        return self in {Step.OFFSETS, Step.MARKED, Step.GROUP_TOLD}


_ORDER = {step: number for number, step in enumerate(Step)}


class Kill:
    """Takes a picture of disk and state when the crash comes; the gateway runs on for nothing."""

    def __init__(self, random: Random, fs: SimulatedFs, state: KeptState, *, is_kill: bool) -> None:
        """`is_kill` says whether the kernel goes on; otherwise the power is lost."""
        self._random = random
        self._fs = fs
        self._state = state
        self._is_kill = is_kill
        self._step: Step | None = None
        self._transactional_id = ""
        self._is_before = False
        self._holds_all = False
        self._held: list[Callable[[], None]] = []
        self._markers_due = 0
        self._is_group_held = False
        self._operations = 0
        self._calls: frozenset[str] = frozenset()
        self.has_come = False
        """What is answered from now on, nobody hears."""
        self.left: tuple[SimulatedFs, KeptState] | None = None
        """What the crash leaves."""
        self.has_hit = False
        """Whether it has come at the step that was asked for."""
        state.watcher = self._watch

    def arm(self, step: Step, transactional_id: str) -> None:
        """Have it come when the transaction gets to a step."""
        self._step, self._transactional_id = step, transactional_id
        # A row is durable when the crash comes or it is not: nothing tells which.
        self._is_before = self._random.random() < 0.5
        if step is Step.BATCH and self._random.random() < 0.7:
            self.arm_operation(self._random.choice((1, 1, 2)), WRITES)

    def arm_operation(self, nth: int, calls: Sequence[str] = ()) -> None:
        """Have it come after so many operations on files; of some calls alone, if they are named.

        With a step it waits until the step is expected.
        """
        self._operations = nth
        self._calls = frozenset(calls)
        if self._step is None:
            self._fs.on_operation = self._operated

    def expect(self, step: Step) -> None:
        """What the step is about begins now."""
        if step is self._step and self._operations:
            self._fs.on_operation = self._operated

    def reach(self, step: Step) -> None:
        """The client sees that the step has come."""
        if step is self._step:
            self.come(has_hit=True)

    def come(self, *, has_hit: bool = False) -> None:
        """Crash now, unless that has happened. In any thread."""
        # The file system waits: what is copied belongs together.
        with self._fs.lock:
            if self.left is not None:
                return
            self.has_come = True
            self.has_hit = has_hit
            self._fs.on_operation = None
            state = self._state.copied()
            fs = self._fs.clone() if self._is_kill else self._fs.power_loss(self._random)
            self.left = fs, state

    def _operated(self, call: str, _: str) -> None:
        if not self._calls or call in self._calls:
            self._operations -= 1
            if not self._operations:
                self.come(has_hit=True)

    def _watch(self, changes: Sequence[Change], is_stored: bool) -> None:
        if self._step is None or self.has_come:
            return
        for change in changes:
            at, is_either = self._step_of(change, is_stored=is_stored)
            if at is self._step and (not is_either or is_stored != self._is_before):
                self.come(has_hit=True)

    def _step_of(self, change: Change, *, is_stored: bool) -> tuple[Step | None, bool]:
        """Return the step at which a change is, and whether both its sides are."""
        if change.value is None:
            return None, False
        if change.kind == PENDING_OFFSETS:
            return Step.OFFSETS, True
        if change.kind != TRANSACTION or change.key != self._transactional_id:
            return None, False
        row = decode_row(change.value)
        if row.state is TransactionState.EMPTY:
            return Step.ID, True
        if row.state is TransactionState.ONGOING:
            return Step.PARTITION, True
        if row.state in DECIDED:
            return (Step.DECIDED if is_stored else Step.ASKED), False
        return (Step.COMPLETE if is_stored else Step.GROUP_TOLD), False

    # --- markers ---------------------------------------------------------------------------------

    def hold(self) -> None:
        """Let no marker be written until `release`."""
        self._holds_all = True

    def release(self) -> None:
        """Let everything go on."""
        self._holds_all = False
        held, self._held = self._held, []
        for go_on in held:
            go_on()

    @contextmanager
    def watching(self, gateway: Gateway) -> Iterator[None]:
        """Stand between the coordinator and what it ends."""
        with ExitStack() as stack:
            for name, watch in (
                ("end_in_partition", self._end_in_partition),
                ("end_in_group", self._end_in_group),
            ):
                (ownership,) = gateway.placement.ownerships
                watched = partial(watch, getattr(ownership, name))
                stack.enter_context(replaced(ownership, name, watched))
            yield

    def _end_in_partition(
        self, end: Callable[..., Append | None], place: PartitionKey, ending: Ending
    ) -> Append | None:
        if self._holds_all or self._step is Step.ANSWERED:
            return self._hold(end, place, ending)
        if self._step is Step.BETWEEN_MARKERS:
            if not self._held:
                # When all are there: then one of them is written.
                asyncio.get_running_loop().call_soon(self._write_one)
            return self._hold(end, place, ending)
        written = end(place, ending)
        if self._step is Step.MARKED and written is not None:
            self._markers_due += 1
            written.then(self._marked)
        return written

    def _hold(
        self, end: Callable[..., Append | None], place: PartitionKey, ending: Ending
    ) -> Append | None:
        if self.has_come:
            return end(place, ending)
        later = Append()

        def write() -> None:
            written = end(place, ending)
            assert written is not None, "a topic of the campaign is gone"
            written.then(later.finish_as)

        later.when_done(self._marked)
        self._markers_due += 1
        self._held.append(write)
        return later

    def _write_one(self) -> None:
        assert len(self._held) > 1, "a transaction of one partition is not between two markers"
        self._held.pop(self._random.randrange(len(self._held)))()

    def _marked(self, _: Append) -> None:
        self._markers_due -= 1
        if self._step is Step.BETWEEN_MARKERS:
            self.come(has_hit=True)
        self._come_when_marked()

    def _end_in_group(
        self, end: Callable[..., Completion[ErrorCode]], *who: Any
    ) -> Completion[ErrorCode]:
        if self._step is not Step.MARKED or self.has_come:
            return end(*who)
        later: Completion[ErrorCode] = Completion()
        self._held.append(lambda: end(*who).then(later.finish_as))
        self._is_group_held = True
        asyncio.get_running_loop().call_soon(self._come_when_marked)
        return later

    def _come_when_marked(self) -> None:
        if self._is_group_held and not self._markers_due:
            self.come(has_hit=True)
