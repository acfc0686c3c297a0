"""Checks every invariant of a data directory that is not in use, and returns the violations.

Read-only. State that recovery handles after an unclean stop is no problem: a torn tail, or a side
file or index that lacks the newest batches. After an orderly stop these are problems, too.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import COPIED, is_copy
from kgw.backend.embedded.log.journal import FILE_NAMES, Journal
from kgw.backend.embedded.log.log_state import read_log_state
from kgw.backend.embedded.log.side import last_mark
from kgw.backend.embedded.log.snapshots import read_snapshot
from kgw.backend.embedded.log.swap import read_notes
from kgw.backend.embedded.offline.derived_check import (
    DerivedCheck,
    IndexCheck,
    RecordCheck,
)
from kgw.backend.embedded.recover.scan import SegmentScanner
from kgw.backend.embedded.store import look_at_state
from kgw.backend.storage_problem import StorageProblem
from kgw.errors import DataDirectoryError
from kgw.offsets.manager import MAX_OFFSET
from kgw.state.base import DamagedRowsError
from kgw.state.kinds import TOPIC
from kgw.types import NO_TIMESTAMP_MS, format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kgw.backend.embedded.files.fs import File, FileSystem
    from kgw.backend.embedded.recover.scan import SegmentScan
    from kgw.offsets.recovery import Checkpoint
    from kgw.state.base import StateStore
    from kgw.types import PartitionKey


_LOST_STATE: Final = layout.LogState(epochs=())
"""Replaces a log state that cannot be read. The epochs are then collected from the batches."""
_PIECE_ENTRIES: Final = 1 << 16
"""The most side entries in memory at a time."""


def check_directory(
    root: str,
    fs: FileSystem | None = None,
    checkpoints: Mapping[PartitionKey, Checkpoint] | None = None,
    *,
    reads_records: bool = False,
    ends: dict[PartitionKey, int] | None = None,
) -> list[StorageProblem]:
    """Return the problems of the records and files in a data directory.

    The logs are compared with `checkpoints`, if given. The end of each log is added to `ends`. With
    `reads_records`, each batch is also decompressed, because consumers cannot read past a batch
    whose records do not match its header. The caller makes sure that no process uses the directory.
    Raises OSError if the directory cannot be read.
    """
    fs = fs or RealFs()
    problems = list(_check_root(fs, root))
    is_clean = fs.exists(f"{root}/{layout.CLEAN_NAME}")
    journaled = {} if is_clean else _journaled(fs, root)
    partitions = f"{root}/{layout.PARTITIONS_DIRECTORY}"
    for name in fs.listdir(partitions) if fs.is_directory(partitions) else []:
        if name.endswith(layout.DELETED_SUFFIX):
            continue
        key = layout.parse_directory_name(name)
        if key is None:
            problems.append(
                StorageProblem(f"{partitions}/{name}", "is not a partition's directory")
            )
            continue
        checkpoint = checkpoints.get(key) if checkpoints is not None else None
        check = PartitionCheck(
            fs,
            f"{partitions}/{name}",
            key,
            checkpoint,
            is_clean,
            reads_records,
            journaled.get(key, {}),
        )
        problems += check.run()
        if ends is not None:
            ends[key] = check.end_offset
    return problems


def _check_root(fs: FileSystem, root: str) -> Iterator[StorageProblem]:
    path = f"{root}/{layout.FORMAT_NAME}"
    try:
        layout.check_format(fs.read_bytes(path))
    except FileNotFoundError:
        yield StorageProblem(path, "is missing")
    except DataDirectoryError as error:
        yield StorageProblem(path, str(error))
    yield from _check_small_file(fs, f"{root}/{layout.CLEAN_NAME}", layout.decode_clean)
    directory = f"{root}/{layout.JOURNAL_DIRECTORY}"
    if any(fs.exists(f"{directory}/{name}") for name in FILE_NAMES):
        for problem in Journal(fs, directory, 0).recover().problems:
            yield StorageProblem(directory, problem)


def _check_small_file(
    fs: FileSystem, path: str, decode: Callable[[bytes], object]
) -> Iterator[StorageProblem]:
    """Yield a problem if a small file exists and cannot be decoded."""
    if fs.exists(path):
        try:
            decode(fs.read_bytes(path))
        except layout.SmallFileError as error:
            yield StorageProblem(path, str(error))


def _journaled(fs: FileSystem, root: str) -> dict[PartitionKey, dict[int, int]]:
    """Return, by base offset, the positions from which the next start rewrites segments."""
    found: dict[PartitionKey, dict[int, int]] = {}
    directory = f"{root}/{layout.JOURNAL_DIRECTORY}"
    for redo in Journal(fs, directory, 0).recover().redos:
        positions = found.setdefault(redo.key, {})
        known = positions.get(redo.segment_base_offset, redo.position)
        positions[redo.segment_base_offset] = min(known, redo.position)
    return found


@dataclass
class PartitionCheck:
    """The check of one partition's directory."""

    fs: FileSystem
    path: str
    key: PartitionKey
    checkpoint: Checkpoint | None
    is_clean: bool
    reads_records: bool
    journaled: Mapping[int, int]
    state: layout.LogState = _LOST_STATE
    exchanged: set[int] = field(default_factory=set)
    end_offset: int = 0
    """The end of the log; known once `run` is complete."""

    def run(self) -> Iterator[StorageProblem]:
        """Yield the problems."""
        yield from self._check_small_files()
        known = set(layout.segment_bases(self.fs.listdir(self.path)))
        try:
            known = self._take_exchanges(known)
        except OSError as error:
            path = f"{self.path}/{layout.COMPACTION_DIRECTORY}"
            yield StorageProblem(error.filename or path, error.strerror or str(error))
        bases = sorted(known)
        expected = bases[0] if bases else 0
        for number, base_offset in enumerate(bases):
            following = bases[number + 1] if number + 1 < len(bases) else None
            known_holes = (*self.state.damaged, *self.state.gaps)
            if base_offset != expected and not layout.is_covered(
                expected, base_offset, known_holes
            ):
                path = self._file_path(base_offset, layout.LOG_SUFFIX)
                yield StorageProblem(path, f"begins where {expected} was expected")
            expected, problems = self._check_segment(base_offset, following)
            yield from problems
        self.end_offset = max(expected, self.state.log_start_offset)
        yield from self._check_ends(bases[0] if bases else None, expected)

    def _take_exchanges(self, bases: set[int]) -> set[int]:
        """Return the base offsets that the segments will have once all swap files are processed.

        The next start completes these replacements. Raises OSError for a damaged swap file.
        """
        if self.fs.is_directory(f"{self.path}/{layout.COMPACTION_DIRECTORY}"):
            for first, last in read_notes(self.fs, self.path):
                bases = {base for base in bases if not first < base <= last} | {first}
                self.exchanged.add(first)
        return bases

    def _file_path(self, base_offset: int, suffix: str) -> str:
        """Return the path of a segment's file, which may still be in the `compaction` directory."""
        name = layout.segment_stem(base_offset) + suffix
        new_path = f"{self.path}/{layout.COMPACTION_DIRECTORY}/{name}"
        if base_offset in self.exchanged and self.fs.exists(new_path):
            return new_path
        return f"{self.path}/{name}"

    def _check_small_files(self) -> Iterator[StorageProblem]:
        path = f"{self.path}/{layout.PARTITION_NAME}"
        try:
            identity = layout.decode_partition(self.fs.read_bytes(path))
            if identity.key != self.key:
                yield StorageProblem(path, f"is that of {identity.key}")
        except FileNotFoundError:
            yield StorageProblem(path, "is missing")
        except layout.SmallFileError as error:
            yield StorageProblem(path, str(error))
        found = read_log_state(self.fs, self.path)
        self.state = found.state or self.state
        for path, problem in found.problems:
            yield StorageProblem(path, problem)
        path = f"{self.path}/{layout.RESERVATION_NAME}"
        yield from _check_small_file(self.fs, path, layout.decode_reservation)
        for name in self.fs.listdir(self.path):
            offset = layout.parse_stem(name, layout.SNAPSHOT_SUFFIX)
            if offset is not None and read_snapshot(self.fs, self.path, offset) is None:
                yield StorageProblem(f"{self.path}/{name}", "fails its checksum")

    def _check_segment(
        self, base_offset: int, following: int | None
    ) -> tuple[int, list[StorageProblem]]:
        """Return the end offset of a segment, and its problems."""
        log_path = self._file_path(base_offset, layout.LOG_SUFFIX)
        side_path = self._file_path(base_offset, layout.SIDE_SUFFIX)
        stem = log_path.removesuffix(layout.LOG_SUFFIX)
        may_lag = not self.is_clean and following is None
        with ExitStack() as files:
            log_file = self._open(log_path, files)
            side_file = self._open(side_path, files) if self.fs.exists(side_path) else None
            indexes: list[IndexCheck] = []
            if self.is_clean:
                for suffix in (layout.OFFSET_INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX):
                    path = stem + suffix
                    if self.fs.exists(path):
                        indexes.append(IndexCheck(path, self._open(path, files), base_offset))
            records = None
            if self.reads_records:
                records = RecordCheck(log_path, log_file, self.key.partition)
            derived = DerivedCheck(side_path, None if may_lag else side_file, indexes, records)
            epochs = self.state.epochs
            scanner = SegmentScanner(
                log_file, side_file, 0, epochs, 0, derived, piece_entries=_PIECE_ENTRIES
            )
            derived.damaged_at = scanner.damaged_at
            # Scan the last segment as if it were sealed, so that the scan continues after damage.
            found = scanner.scan(
                0, base_offset, NO_TIMESTAMP_MS, segment_end=following or MAX_OFFSET
            )
            derived.finish(scanner.entries, found.next_offset)
            end_offset = found.next_offset
            if following is None:
                mark = 0 if side_file is None else last_mark(side_file)
                end_offset, problems = self._judge_last(
                    log_path, base_offset, found, log_file.size(), mark
                )
            else:
                problems = [*self._judge_damage(log_path, found.damaged)]
            if side_file is None and log_file.size() and not may_lag:
                problems.append(StorageProblem(side_path, "is missing"))
        return end_offset, problems + derived.problems

    def _open(self, path: str, files: ExitStack) -> File:
        file = self.fs.open(path)
        files.callback(file.close)
        return file

    def _judge_last(
        self, path: str, base_offset: int, found: SegmentScan, size_bytes: int, mark: int
    ) -> tuple[int, list[StorageProblem]]:
        """Return the end offset of the last segment, and the damage in it.

        Damage at the end does not show how many offsets it covers. So the end offset is taken from
        the checkpoint, or from `mark`, the durable end in the side file.
        """
        journaled_from = self.journaled.get(base_offset, size_bytes + 1)
        places = zip(found.damaged, found.damaged_at, strict=True)
        damaged = [one for one, position in places if position < journaled_from]
        known_end = 0 if self.checkpoint is None else self.checkpoint.next_offset
        if found.next_offset < MAX_OFFSET:
            problems = [*self._judge_damage(path, damaged)]
            is_short = not self.is_clean and max(found.next_offset, known_end) < mark
            if is_short and size_bytes < journaled_from:
                problems.append(
                    StorageProblem(
                        path,
                        f"ends at offset {found.next_offset}, and was durable up to {mark} by its "
                        "side file",
                    )
                )
            return found.next_offset, problems
        # The segment ends in damage.
        start, position = found.damaged[-1].start_offset, found.damaged_at[-1]
        end_offset = max(start, known_end, mark)
        damaged = [one for one in damaged if one.end_offset < MAX_OFFSET]
        problems = [*self._judge_damage(path, damaged)]
        if position >= journaled_from:
            return end_offset, problems  # the next start writes these bytes again
        if end_offset > start:
            tail = layout.DamagedRange(start, end_offset)
            return end_offset, [*problems, *self._judge_damage(path, [tail])]
        if self.is_clean:
            problems.append(
                StorageProblem(
                    path,
                    f"its last {size_bytes - position} bytes, from position {position} on, are no "
                    f"batch at offset {start}",
                )
            )
        # Otherwise the bytes are a torn tail, which the next start cuts off.
        return end_offset, problems

    def _judge_damage(
        self, path: str, damaged: Iterable[layout.DamagedRange]
    ) -> Iterator[StorageProblem]:
        for one in damaged:
            if not layout.is_covered(one.start_offset, one.end_offset, self.state.damaged):
                yield StorageProblem(path, str(one))

    def _check_ends(self, first: int | None, end_offset: int) -> Iterator[StorageProblem]:
        log_start_offset = self.state.log_start_offset
        if first is not None and log_start_offset < first:
            yield StorageProblem(
                self.path, f"begins at {first}, after its start {log_start_offset}"
            )
        checkpoint = self.checkpoint
        if checkpoint is None:
            return
        if checkpoint.next_offset > max(end_offset, log_start_offset):
            yield StorageProblem(
                self.path,
                f"ends at {end_offset}, below its checkpoint at {checkpoint.next_offset}",
            )
        if self.is_clean and checkpoint.clean and checkpoint.next_offset < end_offset:
            yield StorageProblem(
                self.path,
                f"ends at {end_offset}, above its clean checkpoint at {checkpoint.next_offset}",
            )


def _check_left_state(fs: FileSystem, data_dir: str) -> list[StorageProblem]:
    """Report a database that was changed after an orderly stop, because rows may be missing."""
    try:
        left = layout.decode_clean(fs.read_bytes(f"{data_dir}/{layout.CLEAN_NAME}"))
    except (FileNotFoundError, layout.SmallFileError):
        return []  # the server was killed, or the damaged marker is reported elsewhere
    if left is None or look_at_state(fs, data_dir) in {left, None}:
        return []  # if the database is missing, each topic is reported
    return [StorageProblem(f"{data_dir}/{layout.STATE_NAME}", "is not as the last stop left it")]


async def check_data_dir(data_dir: str, *, reads_records: bool = False) -> list[StorageProblem]:
    """Check a stopped data directory with its database, for `kgw log check`.

    Raises DataDirectoryError if the directory is in use or is no data directory.
    """
    import asyncio

    from kgw.backend.embedded.offline.adopt import find_in
    from kgw.backend.embedded.offline.opening import opened_state
    from kgw.offsets.storage import OffsetStorage

    fs = RealFs()
    was_copied = await asyncio.to_thread(_was_copied_in_use, fs, data_dir)
    async with opened_state(data_dir) as state:
        loaded = await OffsetStorage(state).load()
        problems = [
            StorageProblem(f"{data_dir}/{layout.STATE_NAME}", f"the checkpoint of {key} is damaged")
            for key in sorted(loaded.damaged)
        ]
        problems += await asyncio.to_thread(_check_left_state, fs, data_dir)
        problems += [
            StorageProblem(
                f"{data_dir}/{layout.PARTITIONS_DIRECTORY}",
                f"topic {lost.topic} ({format_uuid(lost.topic_id)}) is on disk and not in the "
                "database; see `kgw log adopt`",
            )
            for lost in await find_in(data_dir, state)
        ]
        problems += await check_topics(data_dir, fs, state)
        ends: dict[PartitionKey, int] = {}
        problems += await asyncio.to_thread(
            check_directory,
            data_dir,
            None,
            loaded.checkpoints,
            reads_records=reads_records,
            ends=ends,
        )
        if was_copied:
            problems.append(StorageProblem(data_dir, COPIED))
            problems += await _check_committed(data_dir, state, ends)
    return problems


def _was_copied_in_use(fs: FileSystem, data_dir: str) -> bool:
    return is_copy(fs, data_dir) and not fs.exists(f"{data_dir}/{layout.CLEAN_NAME}")


async def check_topics(data_dir: str, fs: FileSystem, state: StateStore) -> list[StorageProblem]:
    """Report partitions of topics without a directory: the next start creates them empty."""
    import asyncio

    partitions = f"{data_dir}/{layout.PARTITIONS_DIRECTORY}"
    names = frozenset(await asyncio.to_thread(_names, fs, partitions))
    try:
        rows = await state.load(TOPIC)
    except DamagedRowsError:
        return []  # the topic is reported as adoptable
    problems = []
    for key, row in rows.items():
        topic = json.loads(row.value)
        missing = [
            number for number in range(topic["partitions"]) if f"{key}-{number}" not in names
        ]
        if missing:
            problems.append(
                StorageProblem(
                    partitions,
                    f"topic {topic['name']} ({key}) has no directory of "
                    f"{len(missing)} partitions, the first of them {missing[0]}",
                )
            )
    return problems


def _names(fs: FileSystem, path: str) -> list[str]:
    return fs.listdir(path) if fs.is_directory(path) else []


async def _check_committed(
    data_dir: str, state: StateStore, ends: dict[PartitionKey, int]
) -> list[StorageProblem]:
    """Report committed offsets beyond the ends of the logs, if the directory was copied in use."""
    from kgw.backend.embedded.offline.committed_check import beyond_ends

    try:
        found = await beyond_ends(state, ends)
    except (DamagedRowsError, ValueError):
        return []  # a start reports these offsets for each group
    return [StorageProblem(f"{data_dir}/{layout.STATE_NAME}", text) for text in found]
