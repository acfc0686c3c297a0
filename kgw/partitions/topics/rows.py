"""The stored rows of topics.

The state store has rows, keyed by the text of the topic id, each with a `TopicRow`:
- `topic-creation` is written before a topic's logs are created, and is deleted in the same commit
  that writes the `topic` row. If a start finds it, no client knows the topic: its logs are removed.
- `topic` means that the topic exists.
- `topic-deletion` replaces the `topic` row in one commit, before the first log is removed, and is
  deleted after the last. If a start finds it, it removes the logs again. So after a crash a topic
  exists completely or not at all. Logs without a row are kept: a lost database must not cost
  records (`kgw log adopt` can restore the topics).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.errors import StorageError
from kgw.partitions.topics.topic import TopicRow
from kgw.state.base import DamagedRowsError
from kgw.state.kinds import TOPIC

if TYPE_CHECKING:
    from kgw.state.base import StateStore

_ADOPT_TOPICS: Final = "makes them anew from the logs, with default settings"
_ADOPT_CHANGES: Final = "removes them, and what they were about stays on disk"


async def stored_rows(state: StateStore, kind: str = TOPIC) -> list[TopicRow]:
    """Return the rows of a kind. Raise StorageError for damaged rows instead of skipping them.

    Without a topic's row, clients could create the topic again at offset 0 and records be lost.
    """
    try:
        rows = await state.load(kind)
    except DamagedRowsError as error:
        adoption = _ADOPT_TOPICS if kind == TOPIC else _ADOPT_CHANGES
        raise StorageError(f"{error}; `kgw log adopt` {adoption}") from error
    return [read_row(key, row.value) for key, row in rows.items()]


def read_row(key: str, value: bytes) -> TopicRow:
    """Return a topic's row. Raises StorageError if it cannot be read."""
    try:
        return TopicRow.decode(value)
    except ValueError as error:
        raise StorageError(f"the row of topic {key} cannot be read: {error}") from error
