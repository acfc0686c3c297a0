"""Creates many logs at a time: a thread makes their directories, with shared syncs.

The flusher only takes over the finished directories, so that appends need not wait for the creation
of ten thousand logs.
"""

from __future__ import annotations

from asyncio import Task, gather, get_running_loop
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded.failures import storage_error
from kgw.completion import Completion
from kgw.errors import KgwError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.threads import Threads
    from kgw.types import PartitionKey, TopicName


class _Order(NamedTuple):
    """Logs of one topic that a caller of `create` waits for."""

    keys: Sequence[PartitionKey]
    topic: TopicName
    settings: LogSettings
    done: Completion[list[SegmentedLog]]

    def fail(self, error: Exception) -> None:
        if not self.done.is_done:
            self.done.error = error
            self.done.finish()


class LogCreator:
    """Creates logs in groups: calls that arrive while a group is created form the next group."""

    def __init__(self, store: Store, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._waiting: list[_Order] = []
        self._group: list[_Order] = []
        self._task: Task[None] | None = None

    async def create(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[SegmentedLog]:
        """Create empty logs, durably, or open the existing ones.

        Raises StorageError; some of the directories may have been made by then.
        """
        order = _Order(keys, topic, settings, Completion())
        self._waiting.append(order)
        if self._task is None:
            self._task = get_running_loop().create_task(self._run())
        return await order.done

    async def aclose(self) -> None:
        """Cancel the creation; callers that still wait get a StorageError."""
        if self._task is None:
            return
        self._task.cancel()
        await gather(self._task, return_exceptions=True)
        for order in (*self._group, *self._waiting):
            order.fail(StorageError("the backend is closed"))

    async def _run(self) -> None:
        while self._waiting:
            self._group, self._waiting = self._waiting, []
            try:
                await self._create(self._group)
            except OSError as error:
                for order in self._group:
                    order.fail(storage_error(error, f"cannot create topic {order.topic}"))
            except Exception as error:  # noqa: BLE001 - whoever waits raises it
                for order in self._group:
                    order.fail(error)
        self._task = None

    async def _create(self, group: list[_Order]) -> None:
        """Create the logs of a group and complete its orders."""
        places = [(key, order.topic) for order in group for key in order.keys]
        await self._threads.run_in_flusher(partial(self._store.begin_creation, places))
        made = await self._threads.run_in_io(partial(self._store.make_directories, places))
        for order in group:
            for key in order.keys:
                if key in made.failures:
                    text = f"cannot create partition {key} of {order.topic}"
                    order.fail(storage_error(made.failures[key], text))
        ready = [order for order in group if not order.done.is_done]
        take_in = partial(self._take_in, ready, made.new)
        for order, logs in zip(ready, await self._threads.run_in_flusher(take_in), strict=True):
            if isinstance(logs, KgwError):
                order.fail(logs)
            else:
                order.done.set_result(logs)

    def _take_in(
        self, orders: Sequence[_Order], new: AbstractSet[PartitionKey]
    ) -> list[list[SegmentedLog] | KgwError]:
        """Let the store use the new directories; return the logs, or the error, of each order."""
        taken: list[list[SegmentedLog] | KgwError] = []
        for keys, topic, settings, _ in orders:
            try:
                taken.append(
                    [self._store.take_in(key, topic, settings, is_new=key in new) for key in keys]
                )
            except KgwError as error:
                taken.append(error)
        return taken
