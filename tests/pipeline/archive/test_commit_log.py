"""The commit log: dense coverage whatever two committers do, and whenever they die."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.pipeline.archive import commit_log
from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.commit_log import CHECKPOINT_EVERY, CommitLog, CoverageSnapshot
from kgw.pipeline.archive.coverage import Coverage
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole, Piece
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, CoverageFault, DamagedLogError
from kgw.pipeline.archive.names import data_path, generation_directory, parse_data_path
from kgw.pipeline.archive.sweeping import sweep

TOPIC_ID = UUID(int=7)


def data_file(first: int, last: int, *, kind: str = "append", rows: int | None = None) -> DataFile:
    """Return a file of partition 0 that covers `first` to `last`."""
    count = last - first + 1
    rows = count if rows is None else rows
    path = data_path(0, first, last, kind, uuid4().hex)
    return DataFile(path, 0, first, last, rows, 1, 0, 0, kind, "", (), count - rows)


def entry(
    *added: Piece, removed: tuple[Piece, ...] = (), start: int | None = None, topic: UUID = TOPIC_ID
) -> CommitLogEntry:
    """Return an entry of partition 0."""
    return CommitLogEntry(uuid4(), topic, added, removed, {} if start is None else {0: start})


class FilledLog(CommitLog):
    """A log whose committers have written what they commit, one byte a file."""

    def __init__(self, generation: Path, topic_id: UUID) -> None:
        super().__init__(generation, topic_id)
        self.generation = generation

    def commit(self, entry: CommitLogEntry, *, planned_at: int) -> CoverageSnapshot:
        for piece in entry.added:
            if isinstance(piece, DataFile):
                path = self.generation / piece.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")
        return super().commit(entry, planned_at=planned_at)


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (CoverageFault.FOREIGN_TOPIC_ID, entry(data_file(10, 19), topic=UUID(int=8))),
        (CoverageFault.WRONG_START, entry(start=0)),
        (CoverageFault.OVERLAP, entry(data_file(9, 19))),
        (CoverageFault.HOLE, entry(data_file(11, 19))),
        (CoverageFault.WRONG_COUNT, entry(Hole(0, 12, 10, "lost"))),
        (CoverageFault.UNKNOWN_PIECE, entry(removed=(data_file(5, 9),))),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused(
    tmp_path: Path, fault: CoverageFault, wrong: CommitLogEntry
) -> None:
    """The rule is named, and nothing is written."""
    log = FilledLog(tmp_path, TOPIC_ID)
    log.commit(entry(data_file(5, 9), start=5), planned_at=0)
    with pytest.raises(CoverageError) as refused:
        log.commit(wrong, planned_at=1)
    assert refused.value.fault is fault
    assert log.read().version == 1


@pytest.mark.parametrize(
    ("first", "last", "fault"),
    [(5, 8, CoverageFault.HOLE), (5, 10, CoverageFault.OVERLAP), (6, 9, CoverageFault.HOLE)],
)
def test_a_replacement_covers_exactly_what_it_replaces(
    tmp_path: Path, first: int, last: int, fault: CoverageFault
) -> None:
    """One that is shorter or longer is refused; an equal one with fewer rows is taken."""
    log = FilledLog(tmp_path, TOPIC_ID)
    old = data_file(5, 9)
    log.commit(entry(old, start=5), planned_at=0)
    with pytest.raises(CoverageError) as refused:
        log.commit(entry(data_file(first, last, kind="merged"), removed=(old,)), planned_at=1)
    assert refused.value.fault is fault
    new = data_file(5, 9, kind="compacted", rows=2)
    assert log.commit(entry(new, removed=(old,)), planned_at=1).coverage.files() == {new.path}


def test_a_checkpoint_says_what_the_versions_say(tmp_path: Path) -> None:
    """A reader that begins at it gets the same, and a missing version after it is damage."""
    log = FilledLog(tmp_path, TOPIC_ID)
    snapshot = log.commit(entry(start=0), planned_at=0)
    for number in range(CHECKPOINT_EVERY + 1):
        added = data_file(number, number)
        snapshot = log.commit(entry(added), planned_at=snapshot.version)
    assert CommitLog(tmp_path, TOPIC_ID).read() == snapshot
    for version in range(1, CHECKPOINT_EVERY + 1):
        (tmp_path / "_log" / f"{version:020d}.json").unlink()
    assert CommitLog(tmp_path, TOPIC_ID).read() == snapshot
    (tmp_path / "_log" / f"{CHECKPOINT_EVERY + 1:020d}.json").unlink()
    with pytest.raises(DamagedLogError, match="is missing"):
        CommitLog(tmp_path, TOPIC_ID).read()


def test_a_log_goes_on_from_what_it_has_read(tmp_path: Path) -> None:
    """It sees what others commit, reads no version twice, and notices when the log is another."""
    log, other = CommitLog(tmp_path, TOPIC_ID), CommitLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    assert 1 == log.read().version
    newest = other.commit(entry(Hole(0, 0, 4, "lost")), planned_at=1)
    (tmp_path / "_log" / f"{1:020d}.json").write_text("not read again")
    assert newest == log.read()
    for path in tmp_path.glob("_log/*"):
        path.unlink()
    assert CoverageSnapshot(0, Coverage(TOPIC_ID)) == log.read()


def test_old_checkpoints_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names every file: the newest is read, the one before it is there while others read."""
    monkeypatch.setattr(commit_log, "CHECKPOINT_EVERY", 2)
    log = CommitLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    for number in range(7):
        log.commit(entry(Hole(0, number, number, "lost")), planned_at=number + 1)
    assert [6, 8] == sorted(
        int(path.name.partition(".")[0]) for path in tmp_path.glob("_log/*.checkpoint.json")
    )
    assert 8 == CommitLog(tmp_path, TOPIC_ID).replay().version


def test_an_old_checkpoint_that_another_removes_first_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version was committed: who heard of an error would commit the same once more."""
    monkeypatch.setattr(commit_log, "CHECKPOINT_EVERY", 2)
    log = CommitLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    for number in range(4):
        log.commit(entry(Hole(0, number, number, "lost")), planned_at=number + 1)
    unlink = Path.unlink

    def too_late(path: Path, missing_ok: bool = False) -> None:
        if path.name == f"{2:020d}.checkpoint.json":
            unlink(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", too_late)
    assert 6 == log.commit(entry(Hole(0, 4, 4, "lost")), planned_at=5).version


def test_a_checkpoint_of_another_topic_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say that other files are read; no command goes on with it, nor does an audit."""
    monkeypatch.setattr(commit_log, "CHECKPOINT_EVERY", 1)
    FilledLog(tmp_path / "a", TOPIC_ID).commit(entry(data_file(0, 9), start=0), planned_at=0)
    other = UUID(int=8)
    theirs = entry(data_file(0, 9), start=0, topic=other)
    FilledLog(tmp_path / "b", other).commit(theirs, planned_at=0)
    (ours,) = (tmp_path / "a" / "_log").glob("*.checkpoint.json")
    ours.write_bytes((tmp_path / "b" / "_log" / ours.name).read_bytes())
    with pytest.raises(DamagedLogError, match=f"{ours.name}: of another format or topic id"):
        CommitLog(tmp_path / "a", TOPIC_ID).read()
    assert ["damaged log"] == [one.name for one in audit(tmp_path / "a", TOPIC_ID, level=0)]


def test_a_checkpoint_that_is_removed_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has seen it in the directory looks again."""
    monkeypatch.setattr(commit_log, "CHECKPOINT_EVERY", 2)
    log = CommitLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    for number in range(3):
        log.commit(entry(Hole(0, number, number, "lost")), planned_at=number + 1)
    read_bytes = Path.read_bytes
    removed: list[str] = []

    def remove_first(path: Path) -> bytes:
        if path.name.endswith(".checkpoint.json") and not removed:
            removed.append(path.name)
            path.unlink()
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", remove_first)
    assert 4 == CommitLog(tmp_path, TOPIC_ID).read().version
    assert ["00000000000000000004.checkpoint.json"] == removed


def test_a_file_that_is_not_there_is_not_committed(tmp_path: Path) -> None:
    """Swept while its committer slept, or shorter than it was reported."""
    log = CommitLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    piece = data_file(0, 9)
    for content in (None, b"xx"):
        if content is not None:
            (tmp_path / piece.path).parent.mkdir(parents=True)
            (tmp_path / piece.path).write_bytes(content)
        with pytest.raises(CoverageError) as refused:
            log.commit(entry(piece), planned_at=1)
        assert refused.value.fault is CoverageFault.MISSING_FILE
    assert log.read().version == 1


def test_a_log_without_a_version_beside_data_files_was_lost(tmp_path: Path) -> None:
    """A sweep would remove the files, and an audit find nothing; files of others do not count."""
    log = FilledLog(tmp_path, TOPIC_ID)
    (tmp_path / "p=00000").mkdir()
    (tmp_path / "p=00000" / "notes.txt").touch()
    assert 0 == log.read().version
    log.commit(entry(data_file(0, 9), start=0), planned_at=0)
    (tmp_path / "_log" / f"{1:020d}.json").unlink()
    lost = CommitLog(tmp_path, TOPIC_ID)
    with pytest.raises(DamagedLogError, match="the commit log was lost"):
        lost.read()
    with pytest.raises(DamagedLogError, match="the commit log was lost"):
        sweep(tmp_path, lost, now_s=1e12)
    assert ["damaged log"] == [one.name for one in audit(tmp_path, TOPIC_ID, level=0)]


def test_a_sweep_believes_the_versions_rather_than_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that was altered does not cost a file."""
    monkeypatch.setattr(commit_log, "CHECKPOINT_EVERY", 1)
    log = FilledLog(tmp_path, TOPIC_ID)
    piece = data_file(0, 9)
    log.commit(entry(piece, start=0), planned_at=0)
    (checkpoint,) = tmp_path.glob("_log/*.checkpoint.json")
    token = piece.path.rpartition("-")[2]
    checkpoint.write_text(checkpoint.read_text().replace(token, f"{uuid4().hex}.parquet"))
    damaged = CommitLog(tmp_path, TOPIC_ID)
    assert {piece.path} != damaged.read().coverage.files()
    assert [] == sweep(tmp_path, damaged, now_s=1e12, replaced_grace_s=0)


def test_a_sweep_needs_no_version_from_before_a_checkpoint(tmp_path: Path) -> None:
    """Where somebody has removed those, orphans are found all the same, and nothing else is."""
    log = FilledLog(tmp_path, TOPIC_ID)
    snapshot = log.commit(entry(start=0), planned_at=0)
    for number in range(CHECKPOINT_EVERY):
        snapshot = log.commit(entry(data_file(number, number)), planned_at=snapshot.version)
    for version in range(1, CHECKPOINT_EVERY):
        (tmp_path / "_log" / f"{version:020d}.json").unlink()
    orphan = data_file(0, 9).path
    (tmp_path / orphan).write_bytes(b"x")
    assert [orphan] == sweep(tmp_path, log, now_s=1e12)
    assert snapshot.coverage.files() == {
        str(path.relative_to(tmp_path)) for path in tmp_path.glob("p=*/*")
    }


def test_a_version_whose_answer_was_lost_is_known_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was made, and the file system says that there is one: that one is the committer's.

    An NFS client hears so when it sends its request again.
    """
    log = FilledLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    real_link = os.link

    def link(source: Path, target: Path) -> None:
        real_link(source, target)
        raise FileExistsError(target)

    added = data_file(0, 9)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        committed = log.commit(entry(added), planned_at=1)
    assert (2, {added.path}) == (committed.version, committed.coverage.files())
    assert committed == CommitLog(tmp_path, TOPIC_ID).read()


def test_a_version_that_another_takes_first_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the log and the link, another committer has covered the same offsets."""
    log, other = FilledLog(tmp_path, TOPIC_ID), FilledLog(tmp_path, TOPIC_ID)
    log.commit(entry(start=0), planned_at=0)
    theirs, real_link = data_file(0, 9), os.link

    def link(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", real_link)
        other.commit(entry(theirs), planned_at=1)
        real_link(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CoverageError) as refused:
        log.commit(entry(data_file(0, 9)), planned_at=1)
    assert CoverageFault.OVERLAP is refused.value.fault
    assert {theirs.path} == CommitLog(tmp_path, TOPIC_ID).read().coverage.files()


class DiedError(Exception):
    """The committer's process ends here."""


class Committer:
    """Appends files of random length; dies before, at or after the link of a version."""

    def __init__(self, directory: Path) -> None:
        self.log = FilledLog(directory, TOPIC_ID)
        self.planned: tuple[CoverageSnapshot, CommitLogEntry] | None = None

    def plan(self, length: int) -> None:
        snapshot = self.log.read()
        first = snapshot.coverage.partitions[0].next
        self.planned = snapshot, entry(data_file(first, first + length))

    def commit(self, death: str | None, patch: pytest.MonkeyPatch) -> None:
        """Commit what was planned; a process that dies comes back and commits it again."""
        if self.planned is None:
            return
        snapshot, planned = self.planned
        real_link = os.link

        def link(source: Path, target: Path) -> None:
            if death == "after":
                real_link(source, target)
            raise DiedError

        try:
            with patch.context() as patched:
                if death is not None:
                    patched.setattr(os, "link", link)
                self.log.commit(planned, planned_at=snapshot.version)
            self.planned = None
        except DiedError:
            return
        except CoverageError:
            self.planned = None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.one_of(st.integers(0, 9), st.sampled_from([None, "before", "after"])),
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_two_committers_keep_the_coverage_dense(steps: list[tuple[int, int | str | None]]) -> None:
    """No offset is covered twice or left out, and no entry is written twice."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        committers = [Committer(Path(name)), Committer(Path(name))]
        committers[0].log.commit(entry(start=0), planned_at=0)
        for who, step in steps:
            if isinstance(step, int):
                committers[who].plan(step)
            else:
                committers[who].commit(step, patch)
            snapshot = committers[0].log.read()
            offsets = [
                offset
                for partition in snapshot.coverage.partitions.values()
                for piece in partition.pieces
                for offset in range(piece.first, piece.last + 1)
            ]
            assert offsets == list(range(len(offsets)))
            entries = [committers[0].log.entry(v + 1) for v in range(snapshot.version)]
            assert len({one.id for one in entries if one}) == snapshot.version


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\n", "x" * 250, "ä"])
def test_a_topic_that_could_leave_the_root_is_refused(topic: str) -> None:
    """As are roots that are not local, and a topic without an id."""
    with pytest.raises(ArchiveError):
        generation_directory("/archive", topic, TOPIC_ID)


def test_a_topic_whose_name_is_as_long_as_names_may_be_has_a_directory() -> None:
    """Kafka takes 249 characters, and so does the archive."""
    assert f"/archive/{'x' * 249}/{TOPIC_ID}" == str(
        generation_directory("/archive", "x" * 249, TOPIC_ID)
    )


def test_roots_that_cannot_hold_a_log_are_refused() -> None:
    """They are named."""
    with pytest.raises(ArchiveError, match="s3://"):
        generation_directory("s3://bucket/archive", "orders", TOPIC_ID)
    with pytest.raises(ArchiveError, match="topic id"):
        generation_directory("/archive", "orders", UUID(int=0))


def test_a_path_of_data_says_what_it_holds() -> None:
    """And a path that is none says nothing."""
    assert parse_data_path(data_path(7, 3, 9, "merged", "ab1")) == (7, 3, 9, "merged")
    assert parse_data_path("p=00007/../../x.parquet") is None
