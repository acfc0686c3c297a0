"""Producer ids: no id is given out twice.

If two producers had the same id, records could be lost: the second producer's batch would be taken
for a retry of the first producer's and acknowledged without being stored. A database without a next
id may replace a lost one, so ids begin at a random number then. After a restore from an older copy,
the next ids may have been given out before: the first claim of a process looks for them in the
logs, and if it finds one, ids continue at a random number.
"""

from __future__ import annotations

from asyncio import Lock
from os import urandom
from typing import TYPE_CHECKING

from kgw.state.base import Change, ConflictError
from kgw.turns import StepBudget, take_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kgw.state.base import StateStore
    from kgw.turns import Turns

BLOCK_SIZE = 1000
"""Ids claimed at a time, as in Kafka: one durable write for a thousand producers."""

KIND = "producer-ids"
KEY = "next"

_NEAR = 1 << 31
"""If a log has an id up to this far above the next block's start, the database is too old."""
_RANDOM_BYTES = 5
"""Bytes of a random block number.

All its ids are below 2**53, which every client language can represent.
"""


class ProducerIds:
    """Gives out producer ids from blocks that are claimed durably before their first use.

    A process that exits loses the unused ids of its block, which is harmless with 2**63 ids.
    """

    def __init__(
        self,
        state: StateStore,
        in_logs: Callable[[], Iterable[Sequence[int]]],
        logs_opened: Callable[[], Awaitable[None]],
        *,
        looks_per_turn: int = 5_000,
    ) -> None:
        """Claim from `state`; `in_logs` yields the ids in the logs, after `logs_opened` returns.

        The check yields to the event loop after `looks_per_turn` of these ids and logs.
        """
        self._looks_per_turn = looks_per_turn
        self._state = state
        self._in_logs = in_logs
        self._logs_opened = logs_opened
        self._is_first_claim = True
        self._next = 0
        self._end = 0
        self._lock = Lock()

    async def next_id(self) -> int:
        """Return an id that no producer has had before. Raises StorageError."""
        # Callers that arrive while a block is being claimed get ids from that block.
        async with self._lock:
            while self._next == self._end:
                await self._claim()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _claim(self) -> None:
        """Claim a block. If the caller is cancelled, the claimed ids are lost."""
        if self._is_first_claim:
            await self._logs_opened()
        rows = await self._state.load(KIND)
        row = rows.get(KEY)
        begin = self._random_place() if row is None else int(row.value)
        if self._is_first_claim and await take_turns(self._is_behind_logs(begin)):
            begin = self._random_place()
        end = begin + BLOCK_SIZE
        version = 0 if row is None else row.version
        try:
            await self._state.apply([Change(KIND, KEY, str(end).encode(), version)])
        except ConflictError:
            return
        self._next, self._end = begin, end
        self._is_first_claim = False

    def _is_behind_logs(self, begin: int) -> Turns[bool]:
        """Return whether the logs have ids that the database would soon give out again."""
        budget = StepBudget(self._looks_per_turn)
        for ids in self._in_logs():
            for known in ids:
                if begin <= known < begin + _NEAR:
                    return True
                if budget.spend():
                    yield
            if budget.spend():
                yield
        return False

    def _random_place(self) -> int:
        return int.from_bytes(urandom(_RANDOM_BYTES), "big") * BLOCK_SIZE
