"""What a table is to do, and how it is not what the log says, without a table."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.pipeline.archive.coverage import Coverage, apply
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole
from kgw.pipeline.archive.names import data_path
from kgw.pipeline.archive.tables.changes import TableState, difference, fold

TOPIC_ID = UUID(int=7)


def data_file(first: int, last: int, kind: str = "append", rows: int | None = None) -> DataFile:
    """Return a file of partition 0."""
    count = last - first + 1
    rows = count if rows is None else rows
    path = data_path(0, first, last, kind, uuid4().hex)
    return DataFile(path, 0, first, last, rows, 1, 0, 0, kind, "", (), count - rows)


def paths(files: tuple[DataFile, ...]) -> set[str]:
    """Return the paths of files."""
    return {one.path for one in files}


@st.composite
def logs(draw: st.DrawFn) -> list[CommitLogEntry]:
    """Draw entries of partition 0: appends, merges of some neighbours, and what retention does."""
    entries: list[CommitLogEntry] = []
    pieces: list[DataFile | Hole] = []
    position = 0
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.integers(0, len(pieces)))
        starts = {} if entries else {0: 0}
        if count == 0:
            is_file = draw(st.booleans())
            added = (
                data_file(position, position + 4)
                if is_file
                else Hole(0, position, position, "lost")
            )
            position = added.last + 1
            pieces.append(added)
            entries.append(CommitLogEntry(uuid4(), TOPIC_ID, (added,), starts=starts))
            continue
        old = tuple(pieces[:count])
        rows = sum(one.rows for one in old if isinstance(one, DataFile))
        new = (
            data_file(old[0].first, old[-1].last, "merged", rows)
            if draw(st.booleans())
            else Hole(0, old[0].first, old[-1].last, "retention")
        )
        pieces[:count] = [new]
        entries.append(CommitLogEntry(uuid4(), TOPIC_ID, (new,), old, starts))
    return entries


@given(logs(), st.data())
def test_a_change_leads_from_any_version_to_the_newest(
    entries: list[CommitLogEntry], data: st.DataObject
) -> None:
    """Files plus what is added, less what is removed, are the files of the newest version."""
    covered = [Coverage(TOPIC_ID)]
    for entry in entries:
        covered.append(apply(covered[-1], entry))
    version = data.draw(st.integers(0, len(entries) - 1))
    change = fold(entries[version:], version + 1)
    before, after = covered[version].files(), covered[-1].files()

    assert (version + 1, len(entries)) == (change.first_version, change.version)
    assert after == (before - paths(change.removed)) | paths(change.added)
    assert set() == paths(change.added) & paths(change.removed)
    assert paths(change.removed) <= before
    state = TableState(version, frozenset(before))
    assert difference(state, len(entries), after, change) is None
    assert difference(TableState(len(entries), frozenset(after)), len(entries), after, None) is None


def test_offsets_of_neighbours_are_one_range() -> None:
    """Of files and of holes, by partition."""
    entry = CommitLogEntry(
        uuid4(),
        TOPIC_ID,
        (data_file(10, 19), Hole(0, 20, 29, "lost"), Hole(2, 5, 5, "lost"), data_file(31, 40)),
    )
    assert {0: ((10, 29), (31, 40)), 2: ((5, 5),)} == fold([entry], 1).offsets


@pytest.mark.parametrize(
    ("added", "keeps_rows"),
    [
        ((data_file(0, 9, "merged"),), True),
        ((data_file(0, 9, "compacted", 7),), False),
        ((data_file(0, 9, "merged"), data_file(10, 19)), False),
        ((Hole(0, 0, 9, "retention"),), False),
    ],
)
def test_only_a_merge_keeps_rows(added: tuple[DataFile | Hole, ...], keeps_rows: bool) -> None:
    """Readers of changes may pass over it."""
    old = (data_file(0, 4), data_file(5, 9))
    assert keeps_rows == fold([CommitLogEntry(uuid4(), TOPIC_ID, added, old)], 1).keeps_rows


def test_a_table_that_is_not_what_the_log_says() -> None:
    """By what is wrong, and naming files."""
    mine, other = data_file(0, 9), data_file(0, 9)
    files = {mine.path}
    lacking = difference(TableState(1, frozenset()), 1, files, None)
    more = difference(TableState(1, frozenset([mine.path, other.path])), 1, files, None)
    ahead = difference(TableState(2, frozenset(files)), 1, files, None)
    foreign = difference(TableState(1, frozenset(files), "a reason"), 1, files, None)
    assert ("table differs", f"at version 1 it lacks {mine.path}") == lacking
    assert ("table differs", f"at version 1 it has {other.path}") == more
    assert ("table ahead", "it has come to version 2, the commit log to 1") == ahead
    assert ("foreign table", "a reason") == foreign
