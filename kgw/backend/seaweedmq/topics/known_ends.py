"""Where each partition's log is known to have ended: a row a partition, in the state.

Files and leader entry tell nothing of what was taken from them: SeaweedFS's `mq.topic.truncate`
removes all of them, and a file that an old copy of the metadata brought back is shorter. A log that
ends before a row says so is not opened: it would give offsets twice.

Rows are written at checkpoints and at an orderly stop: what a log has lost of what came since the
last one is not seen. They only grow, until the partition is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.offsets.storage import parse_partition_key
from kgw.state.base import Change, DamagedRowsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.state.base import StateStore
    from kgw.types import PartitionKey, TopicId

KIND: Final = "log-end"
"""Its rows have a partition's key, and an offset in digits."""


class KnownEnds:
    """The ends of the logs that a gateway serves. In the event loop."""

    def __init__(self, state: StateStore) -> None:
        """Use an open store."""
        self._state = state
        self._ends: dict[PartitionKey, int] = {}
        self._forgotten: set[PartitionKey] = set()
        self.damage: str | None = None
        """What is to be said of rows that cannot be read; without them less is known."""

    async def open(self) -> None:
        """Read what is known. Raises StorageError."""
        try:
            rows = await self._state.load(KIND)
        except DamagedRowsError as error:
            rows = error.intact
            self.damage = str(error)
        for name, row in rows.items():
            try:
                self._ends[parse_partition_key(name)] = int(row.value)
            except ValueError:
                self.damage = f"the {KIND} row {name!r} is no number"

    def of(self, key: PartitionKey) -> int:
        """Return where a log ended at the least; 0 where nothing is known."""
        return self._ends.get(key, 0)

    def forget(self, key: PartitionKey) -> None:
        """Know nothing of a partition that was deleted; its row goes with the next `save`."""
        if self._ends.pop(key, None) is not None:
            self._forgotten.add(key)

    @property
    def topics(self) -> set[TopicId]:
        """The topics of which something is known."""
        return {key.topic_id for key in self._ends}

    def forget_topics(self, topic_ids: set[TopicId]) -> None:
        """Know nothing of topics that are gone: who deleted them was killed before a `save`."""
        for key in [key for key in self._ends if key.topic_id in topic_ids]:
            self.forget(key)

    async def save(self, ends: Mapping[PartitionKey, int]) -> None:
        """Keep where logs end now, those that have grown. Raises StorageError."""
        forgotten = set(self._forgotten)
        known = self._ends
        grown = {key: end for key, end in ends.items() if end > known.get(key, 0)}
        changes = [Change(KIND, str(key), None) for key in forgotten - grown.keys()]
        changes += [Change(KIND, str(key), b"%d" % end) for key, end in grown.items()]
        if not changes:
            return
        await self._state.apply(changes)
        self._forgotten -= forgotten
        for key, end in grown.items():
            # Of one that was deleted meanwhile the row has to go again.
            if key in self._forgotten:
                continue
            self._ends[key] = max(end, self._ends.get(key, 0))
