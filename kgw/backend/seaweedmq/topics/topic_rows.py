"""Writes copies of topics' rows to their directories, for `kgw log adopt`.

The copies are written after the state; no request waits for them, and no other data depends on
them. A later start or checkpoint writes copies that are missing or outdated.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.errors import KgwError
from kgw.logs import EventLogger
from kgw.types import format_uuid

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.topics.directories import TopicDirectories
    from kgw.clock import Clock
    from kgw.types import TopicId

_log = EventLogger(__name__)


class TopicRows:
    """Writes rows that differ from the copies in the directories. Used in the event loop."""

    def __init__(self, topics: TopicDirectories, clock: Clock, close_s: float) -> None:
        """`close_s` is how long a stop waits for the filer."""
        self._topics = topics
        self._clock = clock
        self._close_s = close_s
        self._waiting: dict[TopicId, bytes] = {}
        self._task: asyncio.Task[None] | None = None
        self._begins = False
        self._is_stopped = False

    def note(self, topic_id: TopicId, row: bytes) -> None:
        """Queue a row that has just been stored in the state."""
        self._waiting[topic_id] = row
        self._plan()

    def begin(self) -> None:
        """Start writing the queued rows, oldest first. Called once all topics have been listed.

        Call it again to retry rows whose writing failed.
        """
        self._begins = True
        self._plan()

    def stop(self) -> None:
        """Stop writing, because another gateway writes the rows now."""
        self._is_stopped = True
        self._waiting.clear()

    async def aclose(self) -> None:
        """Write the queued rows, unless the filer takes too long, and stop."""
        task = self._task
        if task is not None:
            timer = self._clock.call_at(self._clock.monotonic_s() + self._close_s, task.cancel)
            try:
                await asyncio.wait([task])
            finally:
                timer.cancel()
        if self._waiting and not self._is_stopped:
            _log.warning(
                "settings of topics were not written beside their files; the next start does it",
                topics=len(self._waiting),
                topic_ids=", ".join(map(format_uuid, self._waiting)),
            )
        self.stop()

    def _plan(self) -> None:
        if self._begins and self._task is None and self._waiting and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                topic_id = next(iter(self._waiting))
                row = self._waiting.pop(topic_id)
                try:
                    await self._topics.write_row(topic_id, row)
                except BaseException:
                    # Queue the row again at the end, unless a newer row has arrived meanwhile.
                    self._waiting.setdefault(topic_id, row)
                    raise
        except KgwError as error:
            _log.warning("settings of topics are not kept beside their files yet", reason=error)
        finally:
            self._task = None
