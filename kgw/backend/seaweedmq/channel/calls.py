"""Makes calls with a deadline, retries and metrics."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from grpc.aio import AioRpcError

from kgw.backend.seaweedmq.channel.statuses import PassingError, error_of
from kgw.backend.seaweedmq.filer import (
    ChunkMissingError,
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.metrics import count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kgw.clock import Clock
    from kgw.metrics import Metrics

ResultT = TypeVar("ResultT")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
"""The longest pause between tries. The pause doubles from FIRST_PAUSE_S up to this."""

FINISH_S = 2.0
"""How long closing waits for changes whose callers were cancelled."""

_OUTCOMES = (
    (ConditionFailedError, "refused"),
    (EntryExistsError, "refused"),
    (EntryMissingError, "missing"),
    (ChunkMissingError, "missing"),
    (OutcomeUnknownError, "unknown"),
)


class Deadline:
    """The monotonic time by which a call must be done."""

    __slots__ = ("_clock", "at_s")

    def __init__(self, clock: Clock, at_s: float) -> None:
        self._clock = clock
        self.at_s = at_s

    def left_s(self) -> float:
        """Return how much time is left; 0 or less when the deadline has passed."""
        return self.at_s - self._clock.monotonic_s()

    def one_try_s(self) -> float:
        """Return how long one server may take, so that there is time to ask another server.

        Raises PassingError if no time is left, because aiohttp treats 0 or less as no limit.
        """
        left_s = self.left_s()
        if left_s <= 0:
            raise PassingError("the deadline has passed")
        return max(left_s / 2, min(left_s, 1.0))


class Calls:
    """Makes calls with a deadline, counts them, and repeats them if that is safe."""

    def __init__(self, clock: Clock, metrics: Metrics, timeout_s: float) -> None:
        self._clock = clock
        self._metrics = metrics
        self._timeout_s = timeout_s
        self.is_open = False
        """Whether calls can be made. Set by the channel."""
        self._changes: set[asyncio.Task[None]] = set()

    async def once(
        self,
        call: str,
        attempt: Callable[[Deadline], Awaitable[None]],
        deadline_s: float | None,
    ) -> None:
        """Make a change, which is sent at most once and not after its deadline.

        If the caller is cancelled, the change continues: SeaweedFS's filer may crash if a change is
        cancelled (docs/decisions/0106-faults-of-seaweedfs.md).
        """
        change = asyncio.ensure_future(self._once(call, attempt, deadline_s))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        await asyncio.shield(change)

    async def _once(
        self,
        call: str,
        attempt: Callable[[Deadline], Awaitable[None]],
        deadline_s: float | None,
    ) -> None:
        with self._counted(call):
            self._check_open()
            deadline = self._deadline(deadline_s)
            if deadline.left_s() <= 0:
                raise FilerError(f"{call}: the deadline had passed before it was sent")
            try:
                await attempt(deadline)
            except asyncio.CancelledError as error:
                # If the connection is closed, gRPC cancels the tasks that wait for its calls.
                if self.is_open:
                    raise
                raise OutcomeUnknownError(f"{call}: the connection was closed") from error

    async def finish(self) -> None:
        """Wait until no change is under way, or for FINISH_S."""
        limit_s = self._clock.monotonic_s() + FINISH_S
        limit = asyncio.ensure_future(self._clock.sleep_until(limit_s))
        while self._changes and not limit.done():
            await asyncio.wait({limit, *self._changes}, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()

    async def until_done(
        self,
        call: str,
        attempt: Callable[[Deadline], Awaitable[ResultT]],
        deadline_s: float | None,
    ) -> ResultT:
        """Repeat a call until it raises no PassingError.

        At the deadline, raises FilerError with the error text of the last try.
        """
        with self._counted(call):
            deadline = self._deadline(deadline_s)
            pause_s = FIRST_PAUSE_S
            while True:
                self._check_open()
                try:
                    return await attempt(deadline)
                except PassingError as error:
                    if deadline.left_s() <= pause_s:
                        raise FilerError(f"{error}; given up at the deadline") from error
                count(self._metrics.filer_retries, call)
                await self._clock.sleep_until(self._clock.monotonic_s() + pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _check_open(self) -> None:
        if not self.is_open:
            raise FilerError("the filer is not open")

    def _deadline(self, deadline_s: float | None) -> Deadline:
        if deadline_s is None:
            deadline_s = self._clock.monotonic_s() + self._timeout_s
        return Deadline(self._clock, deadline_s)

    @contextmanager
    def _counted(self, call: str) -> Iterator[None]:
        outcome = "cancelled"
        began_s = self._clock.monotonic_s()
        try:
            yield
            outcome = "done"
        except Exception as error:
            outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "failed")
            raise
        finally:
            calls = self._metrics.filer_calls
            calls[call, outcome] = calls.get((call, outcome), 0) + 1
            seconds = self._metrics.filer_seconds
            seconds[call] = seconds.get(call, 0.0) + self._clock.monotonic_s() - began_s


@contextmanager
def statuses(what: str, *, is_change: bool) -> Iterator[None]:
    """Convert status codes of gRPC to errors of a filer. Raises FilerError."""
    try:
        yield
    except AioRpcError as error:
        raise error_of(what, error.code(), error.details(), is_change=is_change) from error
