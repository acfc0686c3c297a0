"""Producer ids: each is handed out once, ever.

An id that two producers have loses records: the first batch of the second one would be taken for a
retry of the first one's, and be answered as stored. So a database that is not the one which handed
out the ids that the logs know - it was lost, or restored from an older copy - does not go on where
it stands but at a random place.
"""

from __future__ import annotations

from asyncio import Lock
from os import urandom
from typing import TYPE_CHECKING

from kgw.state.base import Change, ConflictError
from kgw.turns import Share, take_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kgw.state.base import StateStore
    from kgw.turns import Turns

BLOCK_SIZE = 1000
"""Ids claimed at a time, Kafka's number: one durable write for a thousand producers."""

KIND = "producer-ids"
KEY = "next"

_NEAR = 1 << 31
"""How far beyond the next block an id in the logs shows that the database is too old."""
_RANDOM_BYTES = 5
"""Of a random block's number: such ids are below 2**53, where no client's language loses digits."""


class ProducerIds:
    """Hands out producer ids from blocks that are claimed durably before their first use.

    What is left of a block at exit is lost, which costs nothing: there are 2**63.
    """

    def __init__(
        self,
        state: StateStore,
        in_logs: Callable[[], Iterable[Sequence[int]]],
        logs_opened: Callable[[], Awaitable[None]],
        *,
        looks_per_turn: int = 5_000,
    ) -> None:
        """Claim from `state`; `in_logs` names the ids that logs hold, once `logs_opened` returns.

        `looks_per_turn` is how many of these, and of the logs, are looked at in a turn of the loop.
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
        """Return an id that nobody has had before. Raises StorageError."""
        # Those who come while a block is claimed get theirs of it.
        async with self._lock:
            while self._next == self._end:
                await self._claim()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _claim(self) -> None:
        """Claim a block. When the caller is cancelled, what was claimed is lost."""
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
        """Whether logs hold ids that the database would hand out again before long."""
        share = Share(self._looks_per_turn)
        for ids in self._in_logs():
            for known in ids:
                if begin <= known < begin + _NEAR:
                    return True
                if share.spend():
                    yield
            if share.spend():
                yield
        return False

    def _random_place(self) -> int:
        return int.from_bytes(urandom(_RANDOM_BYTES), "big") * BLOCK_SIZE
