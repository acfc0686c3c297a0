"""Producer ids: each is handed out once, ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.state.base import Change, ConflictError

if TYPE_CHECKING:
    from asyncio import Future

    from kgw.state.base import StateStore

BLOCK_SIZE = 1000
"""Ids claimed at a time, Kafka's number: one durable write for a thousand producers."""

KIND = "producer-ids"
KEY = "next"


class ProducerIds:
    """Hands out producer ids from blocks that are claimed durably before their first use.

    What is left of a block at exit is lost, which costs nothing: there are 2**63.
    """

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._next = 0
        self._end = 0
        self._claim: Future[None] | None = None

    async def next_id(self) -> int:
        """Return an id that nobody has had before. Raises StorageError."""
        while self._next == self._end:
            await self._claim_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _claim_block(self) -> None:
        """Claim a block; callers that come meanwhile wait for the same one."""
        from asyncio import ensure_future, shield

        if self._claim is None:
            self._claim = ensure_future(self._claim_durably())
            self._claim.add_done_callback(self._claimed)
        # A caller that goes away must not take the others' block with it.
        await shield(self._claim)

    def _claimed(self, claim: Future[None]) -> None:
        self._claim = None
        if not claim.cancelled():
            claim.exception()  # the callers have it; the loop need not report it as well

    async def _claim_durably(self) -> None:
        while True:
            rows = await self._state.load(KIND)
            row = rows.get(KEY)
            begin = 0 if row is None else int(row.value)
            end = begin + BLOCK_SIZE
            version = 0 if row is None else row.version
            try:
                await self._state.apply([Change(KIND, KEY, str(end).encode(), version)])
            except ConflictError:
                continue
            self._next, self._end = begin, end
            return
