"""Creates many logs at a time, in a thread that syncs many directories together.

The flusher only gets the finished directories, so appends do not wait for the creation of ten
thousand logs.
"""

from __future__ import annotations

from asyncio import get_running_loop
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded.failures import storage_error
from kgw.errors import KgwError
from kgw.state.write_queue import CommitQueue

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Sequence

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.log.new_directories import NewDirectories
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.shell import EmbeddedShell
    from kgw.backend.embedded.store import Store
    from kgw.types import PartitionKey, TopicName


class _Order(NamedTuple):
    """Logs of one topic that a caller of `create` waits for."""

    keys: Sequence[PartitionKey]
    topic: TopicName
    settings: LogSettings
    done: Future[None]
    logs: list[SegmentedLog]
    """The created logs, once the order is done."""


class LogCreator:
    """Creates logs in groups: calls that arrive while a group is created form the next group."""

    def __init__(self, store: Store, backend: EmbeddedShell) -> None:
        self._store = store
        self._backend = backend
        self._queue: CommitQueue[_Order] = CommitQueue(
            lambda group: backend.run_until_closed(self._create(group))
        )

    async def create(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[SegmentedLog]:
        """Create empty logs, durably, or open the existing ones.

        Raises StorageError; some of the directories may have been made by then.
        """
        order = _Order(keys, topic, settings, get_running_loop().create_future(), [])
        self._queue.submit(order)
        await order.done
        return order.logs

    async def aclose(self) -> None:
        """After the backend has been closed, wait until all callers have got their errors."""
        await self._queue.aclose()

    async def _create(self, group: list[_Order]) -> dict[int, KgwError]:
        """Create the logs of a group; return the errors, by the order's number in the group."""
        threads = self._backend.threads
        places = [(key, order.topic) for order in group for key in order.keys]
        await threads.run_in_flusher(partial(self._store.begin_creation, places))
        try:
            made = await threads.run_in_io(partial(self._store.make_directories, places))
        except OSError as error:
            return {
                number: storage_error(error, f"cannot create topic {order.topic}")
                for number, order in enumerate(group)
            }
        return await threads.run_in_flusher(partial(self._take_in, group, made))

    def _take_in(self, group: Sequence[_Order], made: NewDirectories) -> dict[int, KgwError]:
        """Add the new directories to the store; return the errors as `_create` does."""
        failed: dict[int, KgwError] = {}
        for number, (keys, topic, settings, _, logs) in enumerate(group):
            broken = [key for key in keys if key in made.failures]
            if broken:
                text = f"cannot create partition {broken[0]} of {topic}"
                failed[number] = storage_error(made.failures[broken[0]], text)
                continue
            try:
                logs += [
                    self._store.take_in(key, topic, settings, is_new=key in made.new)
                    for key in keys
                ]
            except KgwError as error:
                failed[number] = error
        return failed
