"""Stores the known end of each partition's log in the state.

Files and leader entries do not show that records were lost. SeaweedFS's `mq.topic.truncate` removes
all files, and a file restored from old metadata is shorter. A log that ends before its known end is
not opened, because it would assign offsets again.

Rows are written at checkpoints and at an orderly stop, so a loss of later records is not detected.
A known end only rises, until the partition is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.state.base import Change, DamagedRowsError
from kgw.types import parse_partition_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.state.base import StateStore
    from kgw.types import PartitionKey, TopicId

KIND: Final = "log-end"
"""The kind of rows, which have a partition as their key and an offset in digits as their value."""


class KnownEnds:
    """The known ends of the logs of one gateway. In the event loop."""

    def __init__(self, state: StateStore) -> None:
        """Use an open store."""
        self._state = state
        self._ends: dict[PartitionKey, int] = {}
        self._forgotten: set[PartitionKey] = set()
        self.damage: str | None = None
        """The error text if rows cannot be read, so that some ends are unknown."""

    async def open(self) -> None:
        """Read the rows. Raises StorageError."""
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
        """Return the known end of a log; 0 if it is unknown."""
        return self._ends.get(key, 0)

    def forget(self, key: PartitionKey) -> None:
        """Drop the end of a deleted partition; the next `save` removes its row."""
        if self._ends.pop(key, None) is not None:
            self._forgotten.add(key)

    @property
    def topics(self) -> set[TopicId]:
        """The topics with known ends."""
        return {key.topic_id for key in self._ends}

    def forget_topics(self, topic_ids: set[TopicId]) -> None:
        """Drop the ends of topics whose deletion was interrupted by a kill before `save`."""
        for key in [key for key in self._ends if key.topic_id in topic_ids]:
            self.forget(key)

    async def save(self, ends: Mapping[PartitionKey, int]) -> None:
        """Save the ends of logs that have grown. Raises StorageError."""
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
            # If the partition was deleted meanwhile, its row must be removed again.
            if key in self._forgotten:
                continue
            self._ends[key] = max(end, self._ends.get(key, 0))
