"""Opens partitions while others are already served; requested partitions come first."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kgw.clock import Clock
    from kgw.types import PartitionKey

_log = logging.getLogger(__name__)

_RETRIED_EVERY_S: Final = 10.0
"""An attempt may cost calls to other machines for each partition that cannot be opened."""


class Opening:
    """Opens partitions in the background after a start, and retries until all are open."""

    def __init__(
        self,
        keys: Iterable[PartitionKey],
        open_one: Callable[[PartitionKey], Awaitable[None]],
        open_again: Callable[[PartitionKey], Awaitable[None]],
        clock: Clock,
        *,
        at_a_time: int,
    ) -> None:
        """Begin to open partitions, `at_a_time` of them at once.

        After `open_one` has raised, `open_again` is called every 10 seconds until it returns. The
        topic may have been deleted by then.
        """
        self._waiting = OrderedDict.fromkeys(keys)
        self._asked_for: OrderedDict[PartitionKey, None] = OrderedDict()
        """Requested partitions, which are opened before those in `_waiting`."""
        self._open_one = open_one
        self._open_again = open_again
        self._clock = clock
        self._failed: dict[PartitionKey, Exception] = {}
        self._is_through = asyncio.Event()
        """Set after one attempt to open each partition."""
        self._trying: dict[PartitionKey, asyncio.Future[None]] = {}
        self._unopened = set(self._waiting)
        self._total = len(self._waiting)
        self._task = asyncio.ensure_future(self._open_all(at_a_time))

    @property
    def problems(self) -> tuple[str, ...]:
        """The number of partitions that are not open yet, and later those that cannot be opened."""
        if not self._is_through.is_set():
            return (f"{len(self._unopened)} of {self._total} partitions are not open yet",)
        return tuple(
            f"partition {key} cannot be opened: {error}" for key, error in self._failed.items()
        )

    @property
    def is_done(self) -> bool:
        """Whether every partition is open."""
        return self._task.done()

    def has(self, key: PartitionKey) -> bool:
        """Return whether a partition is still to be opened, or is being opened right now."""
        return key in self._unopened or key in self._trying

    def request_open(self, key: PartitionKey) -> bool:
        """Open this partition next. Return whether it was still closed."""
        if key in self._waiting:
            self._asked_for[key] = self._waiting.pop(key)
        return key in self._unopened

    async def wait(self, limit_s: float | None = None) -> None:
        """Return after one attempt for each partition, or after `limit_s`."""
        waiting = asyncio.ensure_future(self._is_through.wait())
        timer = None
        if limit_s is not None:
            timer = self._clock.call_at(self._clock.monotonic_s() + limit_s, waiting.cancel)
        try:
            await asyncio.wait([waiting])
        finally:
            waiting.cancel()
            if timer is not None:
                timer.cancel()

    def drop(self, covers: Callable[[PartitionKey], bool]) -> None:
        """Open none of the partitions that `covers` accepts, except those being opened right now.

        A partition that is being opened right now is not tried again if it cannot be opened.
        """
        for key in [key for key in self._unopened if covers(key)]:
            self._unopened.remove(key)
            for keys in (self._waiting, self._asked_for, self._failed):
                keys.pop(key, None)

    async def wait_for(self, covers: Callable[[PartitionKey], bool]) -> None:
        """Wait until none of the partitions that `covers` accepts is being opened."""
        trying = [done for key, done in self._trying.items() if covers(key)]
        if trying:
            await asyncio.wait(trying)

    def stop(self) -> None:
        """Open no further partitions, and let `wait` return."""
        self._task.cancel()
        self._is_through.set()

    async def aclose(self) -> None:
        """Stop, and wait until no partition is being opened."""
        self.stop()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _open_all(self, at_a_time: int) -> None:
        began_s = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as runners:
            for _ in range(min(at_a_time, self._total)):
                runners.create_task(self._run())
        self._is_through.set()
        _log.info(
            "%d of %d partitions opened in %.1f s",
            self._total - len(self._failed),
            self._total,
            self._clock.monotonic_s() - began_s,
        )
        while self._failed:
            await self._clock.sleep_until(self._clock.monotonic_s() + _RETRIED_EVERY_S)
            for key in list(self._failed):
                if key in self._failed:  # `drop` may have removed it meanwhile
                    await self._try(key, self._open_again)

    async def _run(self) -> None:
        while waiting := self._asked_for or self._waiting:
            key, _ = waiting.popitem(last=False)
            await self._try(key, self._open_one)

    async def _try(
        self, key: PartitionKey, open_it: Callable[[PartitionKey], Awaitable[None]]
    ) -> None:
        done = self._trying[key] = asyncio.get_running_loop().create_future()
        try:
            await open_it(key)
        except Exception as error:  # noqa: BLE001 - one partition must not keep the others closed
            if key not in self._unopened:  # `drop` has removed it meanwhile
                return
            if str(self._failed.get(key)) != str(error):
                _log.error("partition %s cannot be opened: %s", key, error)
            self._failed[key] = error
        else:
            self._failed.pop(key, None)
            self._unopened.discard(key)
        finally:
            del self._trying[key]
            done.set_result(None)
