"""The gateway with a bug in its transactions, planted on purpose: the control of their campaigns.

`python -m tests.campaigns.broken_transactions_serve BUG serve ...`
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

from kgw.cli.main import main
from kgw.coordinator.machine import Answer
from kgw.partitions.admission import Admission
from kgw.partitions.append.producer_state import ProducerState
from kgw.partitions.view import PartitionView
from kgw.records.batch import NO_SEQUENCE
from kgw.transactions.ending import Ender, EndRun
from kgw.transactions.machine import CarryOut, Ending, TransactionMachine
from kgw.transactions.table import TransactionTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.coordinator.entry import Write
    from kgw.coordinator.machine import Asked
    from kgw.partitions.append.producer_entry import LoadedProducer
    from kgw.partitions.append.transactions import AbortedIndex
    from kgw.partitions.view import Bounds
    from kgw.records.batch import RecordBatch
    from kgw.transactions.machine import Effect
    from kgw.transactions.requests import EndRequest
    from kgw.transactions.rows import TransactionRow
    from kgw.transactions.table import Transaction
    from kgw.types import PartitionKey

HASTE_S = 0.3
EVERY = 3
"""What would stop a campaign's clients for good happens to every third transaction only."""


def plant(owner: object, name: str, bug: Callable[..., Any]) -> None:
    """Put a bug in place of a method, for as long as the process lives."""
    setattr(owner, name, bug)


def answers_before_the_decision() -> None:
    """Answer EndTxn before the decision is stored, and store a little later: a kill loses some."""
    deliver, flush = TransactionTable._deliver, TransactionTable._flush

    async def late(self: TransactionTable, batch: list[Write]) -> None:
        if any(isinstance(one, CarryOut) for write in batch for one in write.effects):
            await asyncio.sleep(HASTE_S)
        await flush(self, batch)

    def broken(self: TransactionTable, one: Transaction, effects: list[Effect]) -> None:
        early: list[Answer] = []
        if any(isinstance(effect, CarryOut) for effect in effects):
            early = [effect for effect in effects if isinstance(effect, Answer)]
        deliver(self, one, [effect for effect in effects if effect not in early])
        deliver_now(early)

    plant(TransactionTable, "_flush", late)
    plant(TransactionTable, "_deliver", broken)


def deliver_now(answers: Iterable[Answer]) -> None:
    """Answer without a look at what is stored."""
    for answer in answers:
        answer.waiter.set_result(answer.result)


def markers_are_missing() -> None:
    """Write no marker in one partition of every third commit to several."""
    begin: Callable[..., Any] = EndRun.__init__
    commits = count(1)

    def broken(self: EndRun, ender: Ender, name: str, ending: Ending, *rest: Any) -> None:
        if is_victim(ending, commits):
            ending = ending._replace(places=ending.places - {max(ending.places)})
        begin(self, ender, name, ending, *rest)

    plant(EndRun, "__init__", broken)


def is_victim(ending: Ending, commits: count[int]) -> bool:
    """Whether it is the third commit to several partitions, or the sixth, or the ninth."""
    return ending.is_commit and len(ending.places) > 1 and next(commits) % EVERY == 0


class TornEnding(Ending):
    """A commit that one partition is to take for an abort."""


def commits_are_torn() -> None:
    """Abort one partition of every third commit to several."""
    begin: Callable[..., Any] = EndRun.__init__
    tell: Callable[..., Any] = Ender.tell
    commits = count(1)

    def broken_begin(self: EndRun, ender: Ender, name: str, ending: Ending, *rest: Any) -> None:
        if is_victim(ending, commits):
            ending = TornEnding(*ending)
        begin(self, ender, name, ending, *rest)

    def broken_tell(self: Ender, where: PartitionKey | str, ending: Ending) -> Any:
        if isinstance(ending, TornEnding) and where == max(ending.places):
            ending = ending._replace(is_commit=False)
        return tell(self, where, ending)

    plant(EndRun, "__init__", broken_begin)
    plant(Ender, "tell", broken_tell)


def zombies_may_end() -> None:
    """Let a producer that is fenced end the transaction of the one that has fenced it."""

    def let(decide: Callable[..., Any], *, bumps_epoch: bool) -> Callable[..., Any]:
        def broken(
            self: TransactionMachine,
            asked: Asked,
            request: EndRequest,
            row: TransactionRow,
            now: Any,
        ) -> Any:
            current = row.successor if bumps_epoch else row.producer
            if request.producer.id == current.id and request.producer.epoch < current.epoch:
                request = request._replace(producer=current)
            return decide(self, asked, request, row, now)

        return broken

    plant(TransactionMachine, "_end", let(TransactionMachine._end, bumps_epoch=False))
    with_bump = let(TransactionMachine._end_with_bump, bumps_epoch=True)
    plant(TransactionMachine, "_end_with_bump", with_bump)


def aborted_offsets_count() -> None:
    """Make a group's offsets of a transaction that is aborted as good as committed."""
    tell_groups(lambda _: True)


def committed_offsets_are_dropped() -> None:
    """Drop a group's offsets of every third transaction that is committed."""
    commits = count(1)
    tell_groups(lambda is_commit: is_commit and next(commits) % EVERY != 0)


def tell_groups(decide: Callable[[bool], bool]) -> None:
    """Tell groups something else than was decided."""
    tell: Callable[..., Any] = Ender.tell

    def broken(self: Ender, where: PartitionKey | str, ending: Ending) -> Any:
        if isinstance(where, str):
            ending = ending._replace(is_commit=decide(ending.is_commit))
        return tell(self, where, ending)

    plant(Ender, "tell", broken)


def open_records_are_stable() -> None:
    """Let readers of committed records read up to the high watermark."""
    bounds = PartitionView.bounds

    def broken(self: PartitionView) -> Bounds:
        found = bounds(self)
        return found._replace(
            last_stable_offset=found.high_watermark, end_offset=found.high_watermark
        )

    plant(PartitionView, "bounds", broken)


def restarts_forget_aborts() -> None:
    """Forget in a restart which transactions were aborted."""

    def forget(state: ProducerState, _: int) -> None:
        state.aborted = None

    plant_in_restarts(forget)


def restarts_forget_sequences() -> None:
    """Forget in a restart which batches of a producer are stored: their retries are stored, too."""
    plant_in_restarts(forget_sequences)


def plant_in_restarts(forget: Callable[[ProducerState, int], None]) -> None:
    """Have something forgotten of each producer that a start finds, in a snapshot or the log."""
    load, replay = ProducerState.load, ProducerState.replay

    def broken_load(
        self: ProducerState,
        entries: Iterable[LoadedProducer],
        aborted: AbortedIndex | None = None,
    ) -> None:
        load(self, entries, aborted)
        for producer_id in self.ids():
            forget(self, producer_id)

    def broken_replay(self: ProducerState, batch: RecordBatch, now_ms: int) -> None:
        replay(self, batch, now_ms)
        forget(self, batch.producer_id)

    plant(ProducerState, "load", broken_load)
    plant(ProducerState, "replay", broken_replay)


def forget_sequences(state: ProducerState, producer_id: int) -> None:
    """Let a producer go on anywhere."""
    entry = state.get(producer_id)
    if entry is not None:
        entry.batches.clear()
        entry.first_sequence = NO_SEQUENCE


def restarts_resume_nothing() -> None:
    """Leave after a restart whatever was going on to itself: decisions, and times that are over."""
    plant(TransactionTable, "resume", lambda *_: None)


def batches_are_not_verified() -> None:
    """Let batches in of which no transaction knows: nobody ends what they begin (KIP-890)."""
    plant(Admission, "_verify", lambda *_: None)


BUGS: dict[str, Callable[[], None]] = {
    "answers-before-the-decision": answers_before_the_decision,
    "markers-are-missing": markers_are_missing,
    "commits-are-torn": commits_are_torn,
    "zombies-may-end": zombies_may_end,
    "aborted-offsets-count": aborted_offsets_count,
    "committed-offsets-are-dropped": committed_offsets_are_dropped,
    "open-records-are-stable": open_records_are_stable,
    "restarts-forget-aborts": restarts_forget_aborts,
    "restarts-forget-sequences": restarts_forget_sequences,
    "restarts-resume-nothing": restarts_resume_nothing,
    "batches-are-not-verified": batches_are_not_verified,
}


def command(bug: str) -> tuple[str, ...]:
    """Return what to run instead of `kgw serve`."""
    return (sys.executable, "-m", "tests.campaigns.broken_transactions_serve", bug, "serve")


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main(prog_name="kgw")
