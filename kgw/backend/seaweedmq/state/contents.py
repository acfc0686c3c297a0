"""The content of the state store in memory, made from items. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.backend.seaweedmq.state.items import Item, ItemError, Tag, append_item, item_bytes
from kgw.backend.seaweedmq.state.samples import SampleBlocks, pack
from kgw.state.base import Row, WatchedChange
from kgw.state.table import Decided, RowTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.state.base import Change, RowKey
    from kgw.state.history import LagHistoryPoint
    from kgw.state.table import WrittenRows

ItemFields: TypeAlias = tuple[Tag, str, str, "bytes | None", int]
"""The fields of an `Item`, without the cost of making an `Item`."""

RUN_BYTES: Final = 64 << 10
"""Number of bytes of a snapshot, some 200 rows, that are encoded in one iteration of the event
loop."""


class StateContents:
    """Rows, watched changes and samples."""

    def __init__(self) -> None:
        """Begin empty."""
        self.table = RowTable()
        self.samples = SampleBlocks()
        self._row_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The approximate size of a snapshot, without the watched changes."""
        return self._row_bytes + self.samples.size_bytes

    def take(self, commit: Commit) -> None:
        """Add a commit."""
        self._take_rows(commit.rows)
        for item in commit.others:
            self._take_other(item)

    def replay(self, items: Iterator[Item]) -> None:
        """Add the items of a stored commit, as `take` did. Raises ItemError."""
        rows: dict[RowKey, Row | None] = {}
        for item in items:
            if item.tag == Tag.ROW:
                rows[item.kind, item.key] = _row_of(item)
            else:
                self._take_other(item)
        self._take_rows(rows)

    def restore(self, items: Iterator[Item]) -> None:
        """Add the items of a part of a snapshot. Raises ItemError."""
        for item in items:
            if item.tag == Tag.ROW:
                row = _row_of(item)
                if row is None:
                    raise ItemError(f"{item.kind} {item.key!r} is deleted in a snapshot")
                self.table.rows.setdefault(item.kind, {})[item.key] = row
                self._row_bytes += item_bytes(item.kind, item.key, item.value)
            elif item.tag == Tag.CHANGE:
                change = WatchedChange(item.number, item.kind, item.key, item.value)
                if change.version != self.table.newest_change + 1:
                    self.table.changes.clear()
                self.table.changes.append(change)
            else:
                self._take_other(item)

    def freeze(self, run_bytes: int = RUN_BYTES) -> Iterator[bytes]:
        """Return the present contents, in runs of whole items for `restore`.

        Row objects are never changed. So the iterator only needs references to them, and later
        commits do not affect it.
        """
        rows = [(kind, list(rows.items())) for kind, rows in self.table.rows.items()]
        changes, blocks = list(self.table.changes), self.samples.blocks()

        def items() -> Iterator[ItemFields]:
            for kind, kept in rows:
                for key, row in kept:
                    yield Tag.ROW, kind, key, row.value, row.version
            for version, kind, key, value in changes:
                yield Tag.CHANGE, kind, key, value, version
            for sampled_at_ms, packed in blocks:
                yield Tag.SAMPLES, "", "", packed, sampled_at_ms

        return _runs(items(), run_bytes)

    def _take_rows(self, written: WrittenRows) -> None:
        for row_key, row in written.items():
            self._row_bytes += _size_of(row_key, row) - _size_of(row_key, self.table.get(row_key))
        self.table.take(written)

    def _take_other(self, item: Item) -> None:
        if item.tag == Tag.SAMPLES:
            self.samples.take(item.number, item.value or b"")
        elif item.tag == Tag.PRUNE:
            self.samples.prune(item.number)
        else:
            raise ItemError(f"an item of the tag {item.tag.name} does not belong here")


class Commit:
    """Changes that are stored together. Their conditions are checked against the stored state."""

    def __init__(self, contents: StateContents) -> None:
        """Begin with nothing."""
        self._decided = Decided(contents.table)
        self.others: list[Item] = []
        """Items with samples of lag, and items that remove samples."""
        self.size_bytes = 0
        """The size of the items, including items that later items replace."""

    @property
    def rows(self) -> WrittenRows:
        """The new states of the changed rows."""
        return self._decided.rows

    def add_changes(self, changes: Sequence[Change]) -> None:
        """Add a set of changes. If it raises ConflictError, no change of the set is added."""
        self._decided.add(changes)
        for change in changes:
            self.size_bytes += item_bytes(change.kind, change.key, change.value)

    def add_samples(self, samples: Sequence[LagHistoryPoint]) -> None:
        """Add samples of lag."""
        by_moment: dict[int, list[LagHistoryPoint]] = {}
        for sample in samples:
            by_moment.setdefault(sample.sampled_at_ms, []).append(sample)
        for sampled_at_ms, ones in by_moment.items():
            self._add(Item(Tag.SAMPLES, "", "", pack(ones), sampled_at_ms))

    def add_prune(self, before_ms: int) -> None:
        """Remove the samples before a time."""
        self._add(Item(Tag.PRUNE, "", "", None, before_ms))

    def _add(self, item: Item) -> None:
        self.others.append(item)
        self.size_bytes += item_bytes(item.kind, item.key, item.value)

    def encode(self) -> bytes:
        """Return the encoded items; b"" when there is nothing to store."""
        output = bytearray()
        for (kind, key), row in self.rows.items():
            value, version = (None, 0) if row is None else row
            append_item(output, Tag.ROW, kind, key, value, version)
        for item in self.others:
            append_item(output, *item)
        return bytes(output)


def _runs(items: Iterator[ItemFields], run_bytes: int) -> Iterator[bytes]:
    run = bytearray()
    for fields in items:
        append_item(run, *fields)
        if len(run) >= run_bytes:
            yield bytes(run)
            run.clear()
    if run:
        yield bytes(run)


def _row_of(item: Item) -> Row | None:
    return None if item.value is None else Row(item.value, item.number)


def _size_of(row_key: RowKey, row: Row | None) -> int:
    return 0 if row is None else item_bytes(*row_key, row.value)
