"""Rows of topics, kept with their directories behind the state: what `kgw log adopt` reads.

Nothing waits for them and nothing rests on them. What could not be written, or was changed while no
gateway of this version ran, is written by a later start or checkpoint.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.errors import KgwError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.topics import TopicDirectories
    from kgw.types import TopicId

_log = EventLogger(__name__)


class TopicRows:
    """Writes the rows that differ from what their directories have. All in the event loop."""

    def __init__(self, topics: TopicDirectories) -> None:
        """Take what knows the directories."""
        self._topics = topics
        self._waiting: dict[TopicId, bytes] = {}
        self._task: asyncio.Task[None] | None = None
        self._begins = False
        self._is_stopped = False

    def note(self, topic_id: TopicId, row: bytes) -> None:
        """Take a row that is stored now."""
        self._waiting[topic_id] = row
        self._plan()

    def begin(self) -> None:
        """Write from now on, what was noted first: the directories of all topics are known.

        To be called again for what a filer did not take.
        """
        self._begins = True
        self._plan()

    def stop(self) -> None:
        """Write nothing any more: another gateway does."""
        self._is_stopped = True
        self._waiting.clear()

    async def aclose(self) -> None:
        """Write what waits, and stop. Each call ends by itself when the filer is away."""
        if self._task is not None:
            await asyncio.wait([self._task])
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
                except KgwError:
                    # Behind the others, unless a newer one has come meanwhile.
                    self._waiting.setdefault(topic_id, row)
                    raise
        except KgwError as error:
            _log.warning("settings of topics are not kept beside their files yet", reason=error)
        finally:
            self._task = None
