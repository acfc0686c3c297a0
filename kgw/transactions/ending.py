"""Ends decided transactions in their partitions and groups, and retries until it succeeds.

If a marker cannot be written, it is retried after growing waits: the decision is final, and
read_committed consumers wait for the marker. A marker may be written twice.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kgw.completion import Completion, until_done
from kgw.errors import NO_ERROR, ErrorCode, KafkaError, StorageError
from kgw.logs import EventLogger
from kgw.turns import StepBudget, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock, Timer
    from kgw.metrics import Metrics
    from kgw.transactions.machine import Ending
    from kgw.turns import Turns
    from kgw.types import PartitionKey

_log = EventLogger(__name__)

EndInPartition: TypeAlias = "Callable[[PartitionKey, Ending], Completion[Any] | None]"
"""Writes a marker to a partition; returns None if the partition was deleted. Raises KafkaError."""
EndInGroup: TypeAlias = "Callable[[str, int, int, bool], Completion[ErrorCode]]"
"""Ends a transaction in a group. Arguments: group id, producer id, producer epoch, is_commit."""

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
"""The longest wait between attempts, so that consumers continue soon after the storage works
again."""
TOLD_PER_TURN = 150
"""How many markers are submitted in one turn of the loop. Each is an append."""

# After these errors the transaction is not open there any more: the partition has a higher producer
# epoch, or the group does not exist.
_IS_PAST = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


def growing_wait_s(failures: int) -> float:
    """Return the seconds to wait after a number of consecutive failures."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures - 1, 10))


class Ender:
    """Carries out the decisions of all transactional ids."""

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        end_in_partition: EndInPartition,
        end_in_group: EndInGroup,
    ) -> None:
        self.clock = clock
        self.metrics = metrics
        self.report_bug = report_bug
        self._end_in_partition = end_in_partition
        self._end_in_group = end_in_group
        self.runs: set[EndRun] = set()
        """The runs that have not ended."""

    def tell(self, where: PartitionKey | str, ending: Ending) -> Completion[Any] | None:
        """End the transaction in a partition, or in a group if `where` is a group id.

        Returns None if the partition was deleted. Raises KafkaError, StorageError.
        """
        if isinstance(where, str):
            return self._end_in_group(where, *ending.producer, ending.is_commit)
        return self._end_in_partition(where, ending)

    async def aclose(self) -> None:
        """Stop all runs after their current attempt, and wait for these attempts."""
        for run in list(self.runs):
            run.stop_trying()
            await until_done(run.attempt)


class EndRun:
    """Carries out one decision, with repeated attempts in its partitions and groups.

    Calls `done` once when all partitions and groups have confirmed, and `late` after each attempt
    in which some have not.
    """

    __slots__ = (
        "_done",
        "_due",
        "_ender",
        "_ending",
        "_failures",
        "_is_last",
        "_late",
        "_left",
        "_task",
        "_timer",
        "attempt",
        "transactional_id",
    )

    def __init__(
        self,
        ender: Ender,
        transactional_id: str,
        ending: Ending,
        done: Callable[[EndRun], object],
        late: Callable[[EndRun], object],
    ) -> None:
        self.transactional_id = transactional_id
        self.attempt: Completion[None] = Completion()
        """Done when all partitions and groups of the last attempt have answered."""
        self.attempt.is_done = True
        self._ender = ender
        self._ending = ending
        self._done = done
        self._late = late
        self._left: list[PartitionKey | str] = [*sorted(ending.places), *sorted(ending.groups)]
        self._due = 0
        self._failures = 0
        self._is_last = False
        self._timer: Timer | None = None
        self._task: asyncio.Future[None] | None = None
        ender.runs.add(self)

    def attempt_after(self, wait_s: float) -> None:
        """After a wait, end the transaction where it is not confirmed yet.

        Without a wait, it must not be called in the callback of an append, as markers are appends.
        """
        if wait_s <= 0:
            self._try()
            return
        clock = self._ender.clock
        self._timer = clock.call_at(clock.monotonic_s() + wait_s, self._try)

    def stop_trying(self) -> None:
        """Make the current attempt the last one."""
        self._is_last = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        left, self._left = self._left, []
        self.attempt = Completion()
        self._due = 1  # counts `_tell_all` itself, as answers may come before it has ended
        rest = in_turns(self._tell_all(left))
        if rest is not None:
            self._task = asyncio.ensure_future(rest)

    def _tell_all(self, left: list[PartitionKey | str]) -> Turns[None]:
        budget = StepBudget(TOLD_PER_TURN)
        for where in left:
            self._due += 1
            self._tell(where)
            if budget.spend():
                yield
        self._answered()

    def _tell(self, where: PartitionKey | str) -> None:
        try:
            told = self._ender.tell(where, self._ending)
        except Exception as error:  # noqa: BLE001 - the others must still get the decision
            self._judge(where, error)
            return
        if told is None:
            self._answered()
        else:
            told.then(partial(self._heard, where))

    def _heard(self, where: PartitionKey | str, told: Completion[Any]) -> None:
        error = told.error
        if error is None and isinstance(where, str) and told.result is not NO_ERROR:
            error = KafkaError(told.result)
        self._judge(where, error)

    def _judge(self, where: PartitionKey | str, error: Exception | None) -> None:
        if isinstance(error, KafkaError) and error.code in _IS_PAST:
            error = None
        if error is not None:
            self._left.append(where)
            if not self._failures:
                _log.warning(
                    "the end of a transaction could not be written; it is tried again",
                    transactional_id=self.transactional_id,
                    where=where,
                    why=error,
                )
            if not isinstance(error, KafkaError | StorageError):
                self._ender.report_bug(error)
        self._answered()

    def _answered(self) -> None:
        self._due -= 1
        if self._due:
            return
        if not self._left:
            self._ender.runs.discard(self)
            self._done(self)
        else:
            self._failures += 1
            self._ender.metrics.transaction_end_failures += len(self._left)
            self._late(self)
            if not self._is_last:
                self.attempt_after(growing_wait_s(self._failures))
        self.attempt.set_result(None)
