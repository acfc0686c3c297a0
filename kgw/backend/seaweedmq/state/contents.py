"""What the state store knows, and how it follows from items. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.backend.seaweedmq.state.items import Item, ItemError, Tag, append_item, item_bytes
from kgw.backend.seaweedmq.state.samples import SampleBlocks, pack
from kgw.state.base import Row, WatchedChange
from kgw.state.table import Decided, RowTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.state.base import Change, RowKey
    from kgw.state.history import LagSample
    from kgw.state.table import WrittenRows

ItemFields: TypeAlias = tuple[Tag, str, str, "bytes | None", int]
"""An `Item` that nobody keeps."""

_RUN_BYTES: Final = 64 << 10
"""How much of a snapshot is encoded in one turn of the loop: some 200 rows."""


class StateContents:
    """Rows, watched changes and samples."""

    def __init__(self) -> None:
        """Begin empty."""
        self.table = RowTable()
        self.samples = SampleBlocks()
        self._row_bytes = 0

    @property
    def size_bytes(self) -> int:
        """About how long a snapshot is, without the watched changes."""
        return self._row_bytes + self.samples.size_bytes

    def take(self, commit: Commit) -> None:
        """Make a commit part of it."""
        self._take_rows(commit.rows)
        for item in commit.others:
            self._take_other(item)

    def replay(self, items: Iterator[Item]) -> None:
        """Make the items of a stored commit part of it, as `take` did. Raises ItemError."""
        rows: dict[RowKey, Row | None] = {}
        for item in items:
            if item.tag == Tag.ROW:
                rows[item.kind, item.key] = _row_of(item)
            else:
                self._take_other(item)
        self._take_rows(rows)

    def restore(self, items: Iterator[Item]) -> None:
        """Make the items of a part of a snapshot part of it. Raises ItemError."""
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

    def freeze(self) -> Iterator[bytes]:
        """Return everything as it is now, as runs of whole items that `restore` takes.

        Rows are never changed, so that to hold on to them is enough, whatever comes later.
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

        return _runs(items())

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
    """What is to be stored together, decided on top of what is stored already."""

    def __init__(self, contents: StateContents) -> None:
        """Begin with nothing."""
        self._decided = Decided(contents.table)
        self.others: list[Item] = []
        """Samples, and what is left of them."""
        self.size_bytes = 0
        """Of its items, of those too that later ones replace."""

    @property
    def rows(self) -> WrittenRows:
        """What rows become."""
        return self._decided.rows

    def add_changes(self, changes: Sequence[Change]) -> None:
        """Add one set. Raises ConflictError, and nothing of the set counts."""
        self._decided.add(changes)
        for change in changes:
            self.size_bytes += item_bytes(change.kind, change.key, change.value)

    def add_samples(self, samples: Sequence[LagSample]) -> None:
        """Add samples of lag."""
        by_moment: dict[int, list[LagSample]] = {}
        for sample in samples:
            by_moment.setdefault(sample.sampled_at_ms, []).append(sample)
        for sampled_at_ms, ones in by_moment.items():
            self._add(Item(Tag.SAMPLES, "", "", pack(ones), sampled_at_ms))

    def add_prune(self, before_ms: int) -> None:
        """Take out the samples before a moment."""
        self._add(Item(Tag.PRUNE, "", "", None, before_ms))

    def _add(self, item: Item) -> None:
        self.others.append(item)
        self.size_bytes += item_bytes(item.kind, item.key, item.value)

    def encode(self) -> bytes:
        """Return its items; nothing when there is nothing to store."""
        output = bytearray()
        for (kind, key), row in self.rows.items():
            value, version = (None, 0) if row is None else row
            append_item(output, Tag.ROW, kind, key, value, version)
        for item in self.others:
            append_item(output, *item)
        return bytes(output)


def _runs(items: Iterator[ItemFields]) -> Iterator[bytes]:
    run = bytearray()
    for fields in items:
        append_item(run, *fields)
        if len(run) >= _RUN_BYTES:
            yield bytes(run)
            run.clear()
    if run:
        yield bytes(run)


def _row_of(item: Item) -> Row | None:
    return None if item.value is None else Row(item.value, item.number)


def _size_of(row_key: RowKey, row: Row | None) -> int:
    return 0 if row is None else item_bytes(*row_key, row.value)
