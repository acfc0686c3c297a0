"""Judges committed offsets: what OffsetFetch tells is what was committed last."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.campaigns.history.events import (
    NO_OFFSET,
    AnomalyKind,
    Commit,
    FetchedOffset,
    Outcome,
    Poll,
    TransactionEnd,
)
from tests.campaigns.history.fates import Judge

if TYPE_CHECKING:
    from tests.campaigns.history.events import Anomaly
    from tests.campaigns.history.fates import Fates, History

Place: TypeAlias = tuple[str, int]
"""A group's offset in a partition."""


class _Counted(NamedTuple):
    """A commit that counts; of two the one that came later does."""

    number: int
    offset: int


_NOTHING = _Counted(-1, NO_OFFSET)


class CommitChecker(Judge):
    """No commit that counts is lost, and none comes out of nothing or of an aborted transaction.

    A commit counts from its answer on, or from the end of its transaction. It may do so before that
    is recorded; one of which nobody knows whether it counts may do so at any time.
    """

    def __init__(self, anomalies: list[Anomaly], fates: Fates) -> None:
        super().__init__(anomalies)
        self._fates = fates
        self._counted: dict[Place, _Counted] = defaultdict(lambda: _NOTHING)
        self._past: dict[Place, set[int]] = defaultdict(set)
        """What has counted."""
        self._may_count: dict[Place, Counter[int]] = defaultdict(Counter)
        """What has not been seen to count, and may do so already or later."""
        self._aborted: dict[Place, dict[int, str]] = defaultdict(dict)
        self._in_transactions: dict[str, list[tuple[Place, _Counted]]] = defaultdict(list)
        """What counts as soon as a transaction is known to be committed."""

    def check(self, history: History) -> None:
        """Report everything that is wrong with the committed offsets of a history."""
        self._look_ahead(history)
        for number, event in enumerate(history.offsets):
            match event:
                case Commit(outcome=Outcome.OK):
                    self._commit(event, number)
                case FetchedOffset():
                    self._check_fetched(event)
                case TransactionEnd(transaction=name, outcome=Outcome.OK):
                    self._end(name)
                case Poll(read_committed=True):
                    for _, value in event.records:
                        self._end(self._fates.of_value.get((event.partition, value)))

    def _look_ahead(self, history: History) -> None:
        for event in history.offsets:
            if not isinstance(event, Commit) or event.outcome is Outcome.FAIL:
                continue
            place = (event.group, event.partition)
            name = event.transaction
            if name is not None and self._fates.is_undone(name):
                self._aborted[place][event.offset] = name
            else:
                self._may_count[place][event.offset] += 1

    def _commit(self, commit: Commit, number: int) -> None:
        place = (commit.group, commit.partition)
        counted = _Counted(number, commit.offset)
        if commit.transaction is None:
            self._count(place, counted)
        else:
            self._in_transactions[commit.transaction].append((place, counted))

    def _end(self, transaction: str | None) -> None:
        """Take it that a transaction is committed, if it is not known yet."""
        if transaction in self._in_transactions and (
            self._fates.outcome(transaction) is Outcome.OK
        ):
            for place, counted in self._in_transactions.pop(transaction):
                self._count(place, counted)

    def _count(self, place: Place, counted: _Counted) -> None:
        self._may_count[place][counted.offset] -= 1
        self._past[place].add(counted.offset)
        self._counted[place] = max(self._counted[place], counted)

    def _check_fetched(self, fetched: FetchedOffset) -> None:
        place, offset = (fetched.group, fetched.partition), fetched.offset
        last = self._counted[place].offset
        if offset == last or self._may_count[place][offset] > 0:
            return
        told = f"{fetched.group} was told {offset}, and had committed {last}"
        if offset == NO_OFFSET or offset in self._past[place]:
            self._report(AnomalyKind.COMMIT_LOST, fetched.partition, told)
        elif offset in self._aborted[place]:
            self._report(
                AnomalyKind.ABORTED_READ,
                fetched.partition,
                f"{told}: {self._aborted[place][offset]} is aborted",
            )
        else:
            self._report(AnomalyKind.COMMIT_INVENTED, fetched.partition, told)
