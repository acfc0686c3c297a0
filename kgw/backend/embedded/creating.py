"""Creating logs, many at a time: their directories in a thread, and one sync round all of them.

The flusher only takes in what is ready, so that appends need not wait for the creation of ten
thousand logs.
"""

from __future__ import annotations

from asyncio import Future, Task, gather, get_running_loop
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.failures import storage_error
from kgw.errors import KgwError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.log.new_directories import NewDirectories
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.threads import Threads
    from kgw.types import PartitionKey, TopicName

GROUP_LOGS: Final = 256
"""Logs that are made together. An order for more is made in one, with nobody else's."""


class _Order(NamedTuple):
    """Logs of one topic that somebody waits for."""

    keys: Sequence[PartitionKey]
    topic: TopicName
    settings: LogSettings
    done: Future[list[SegmentedLog]]

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class LogCreator:
    """Gathers what is to be created while the group before it is made."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
    ) -> None:
        self._store = store
        self._threads = threads
        self._waiting: list[_Order] = []
        self._group: list[_Order] = []
        self._task: Task[None] | None = None

    async def create(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[SegmentedLog]:
        """Create empty logs, durably, or open those that are there.

        Raises StorageError; some of the directories may have been made then.
        """
        loop = get_running_loop()
        order = _Order(keys, topic, settings, loop.create_future())
        self._waiting.append(order)
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await order.done

    async def aclose(self) -> None:
        """Give up what has not been created."""
        if self._task is None:
            return
        self._task.cancel()
        await gather(self._task, return_exceptions=True)
        for order in (*self._group, *self._waiting):
            order.fail(StorageError("the backend is closed"))

    async def _run(self) -> None:
        while self._waiting:
            self._group = self._take_group()
            await self._create(self._group)
        self._group = []
        self._task = None

    def _take_group(self) -> list[_Order]:
        count = 0
        for index, order in enumerate(self._waiting):
            count += len(order.keys)
            if count > GROUP_LOGS and index > 0:
                group, self._waiting = self._waiting[:index], self._waiting[index:]
                return group
        group, self._waiting = self._waiting, []
        return group

    async def _create(self, group: list[_Order]) -> None:
        """Make the logs of a group and tell everybody; of a bug, too."""
        loop = get_running_loop()
        places = [(key, order.topic) for order in group for key in order.keys]
        try:
            await self._threads.run_in_flusher(partial(self._store.begin_creation, places))
            made = await self._threads.run_in_io(partial(self._make_directories, places))
            ready = [order for order in group if not _fail(order, made.failures)]
            await self._threads.run_in_flusher(
                partial(self._take_in, ready, made.new, loop.call_soon_threadsafe)
            )
        except OSError as error:
            for order in group:
                order.fail(storage_error(error, f"cannot create topic {order.topic}"))
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            for order in group:
                order.fail(error)

    def _make_directories(self, places: Sequence[tuple[PartitionKey, TopicName]]) -> NewDirectories:
        made = self._store.make_directories(places)
        self._store.sync_partition_names()
        return made

    def _take_in(
        self,
        orders: Sequence[_Order],
        new: AbstractSet[PartitionKey],
        tell: Callable[[Callable[..., object], object], object],
    ) -> None:
        """Have the store use directories that were made, in the flusher."""
        for order in orders:
            try:
                logs = [
                    self._store.take_in(key, order.topic, order.settings, is_new=key in new)
                    for key in order.keys
                ]
            except KgwError as error:
                tell(order.fail, error)
            else:
                tell(partial(_succeed, order.done), logs)


def _fail(order: _Order, failures: Mapping[PartitionKey, OSError]) -> bool:
    """Fail an order of which a directory could not be made. Returns whether it was."""
    for key in order.keys:
        if key in failures:
            text = f"cannot create partition {key} of {order.topic}"
            order.fail(storage_error(failures[key], text))
            return True
    return False


def _succeed(done: Future[list[SegmentedLog]], logs: list[SegmentedLog]) -> None:
    if not done.done():
        done.set_result(logs)
