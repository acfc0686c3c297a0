"""Makes a backup: copies the files of a stage that earlier backups do not have.

It blocks, so it runs in a separate process beside the server.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.backup.asking import asked_stage
from kgw.backend.embedded.backup.backup_directory import (
    UNFINISHED_SUFFIX,
    BackupDirectory,
    parse_name,
)
from kgw.backend.embedded.backup.control import NotYetError
from kgw.backend.embedded.backup.copying import Copier, Part
from kgw.backend.embedded.backup.cut import (
    CUT_NAME,
    Cut,
    LogCut,
    SegmentCut,
    count_partitions,
    decode_cut,
    write_stage,
)
from kgw.backend.embedded.backup.manifest import (
    MANIFEST_NAME,
    FileIdentity,
    Manifest,
    SegmentPart,
    StoredFile,
    StoredLog,
    StoredSegment,
    encode_manifest,
    log_directory,
    piece_path,
    side_path,
    snapshot_path,
)
from kgw.backend.embedded.backup.stage import held_stage, noted_as_stopped
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import DirectoryLock
from kgw.backend.embedded.foreign import refuse_no_directory
from kgw.backend.embedded.log.log_state import read_log_state
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry
from kgw.backend.embedded.offline.dump import DumpedDamage, dump_segment
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.state_place import read_place
from kgw.backend.embedded.store import is_as_left
from kgw.errors import CorruptionError, DataDirectoryError, DiskFullError
from kgw.offsets.storage import OffsetStorage
from kgw.state.kinds import CLUSTER, TOPIC
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.version import full_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from kgw.offsets.recovery import Checkpoint
    from kgw.types import PartitionKey, TopicId

WAIT_S: Final = 60.0
"""The longest time that a backup waits for a server to open its partitions."""
_RETRY_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0
MOST_PIECES: Final = 16
"""If a segment has this many parts, the next backup copies it as a whole. Each part is a file that
every backup links and every check reads."""
_COMPARED_BYTES: Final = 64 << 10
"""Number of bytes at the end of an earlier backup's copy that are compared with the segment. If
they are equal, the copy is used as the beginning of the segment."""
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
)
"""Errors of `link` if the file system cannot make this hard link."""


class Wishes(NamedTuple):
    """Options of a backup."""

    is_full: bool = False
    """Share no files with earlier backups."""
    is_copied: bool = False
    """Copy sealed segments even if they could be linked."""
    rate: int = 0
    """Limit for bytes read per second; 0 for no limit."""
    keep: int = 0
    """Number of backups to keep; 0 for all."""


class BackupResult(NamedTuple):
    """A backup that was made."""

    name: str
    parent: str | None
    size_bytes: int
    copied_bytes: int
    linked_bytes: int
    """Bytes shared with the data directory by hard links. Bytes shared with the parent are not
    counted here or in `copied_bytes`."""
    topics: int
    partitions: int
    unclaimed: int
    """Directories of partitions without a topic, which are not in the backup."""
    left_over: tuple[str, ...]
    """Unfinished backups that were removed."""
    pruned: tuple[str, ...]


def _nothing() -> None:
    """Do nothing: keep the process's priority."""


class Tools(NamedTuple):
    """The clocks and callbacks of the process that makes a backup."""

    show: Callable[[int], AbstractContextManager[Callable[[int], None]]]
    """Shows progress. Called with the number of bytes to read; the function that it yields is
    called with the number of bytes read."""
    wall_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    give_way: Callable[[], None] = _nothing
    """Called once the server does not wait for this process any more, to lower the process's
    priority."""


def take_backup(data_dir: str, backups_path: str, wishes: Wishes, tools: Tools) -> BackupResult:
    """Back up a data directory, whether it is served or not.

    Raises DataDirectoryError if the directory or the directory of backups cannot be used,
    DiskFullError before anything is copied if there is not enough space, StorageError, OSError.
    """
    root = os.path.realpath(data_dir)
    _check_source(root, data_dir)
    backups = BackupDirectory(os.path.realpath(backups_path))
    if f"{backups.path}/".startswith(f"{root}/"):
        raise DataDirectoryError(f"{backups_path} is within {data_dir}: its backups go elsewhere")
    RealFs().make_directories_durably(backups.path)
    backups.is_new()
    with backups.locked():
        left_over = backups.clean_up()
        newest = None if backups.is_new() else backups.newest()
        created_ms = int(tools.wall_s() * 1000)
        if newest is not None:
            # If the clock was set back, the new backup must still sort after the older ones.
            created_ms = max(created_ms, newest.created_ms + 1)
        with filled_stage(root, tools) as (stage, cut, facts):
            backups.begin(facts.cluster_id)
            parent = None if wishes.is_full else newest
            work = _Work(backups, stage, cut, facts, parent, wishes)
            taken = work.run(_free_name(backups, created_ms, newest), created_ms, tools)
        pruned = backups.prune(wishes.keep, spared=taken.name) if wishes.keep else []
    return taken._replace(left_over=tuple(left_over), pruned=tuple(pruned))


def _check_source(root: str, data_dir: str) -> None:
    fs = RealFs()
    refuse_no_directory(fs, root, data_dir)
    found = read_place(fs, root)
    if found is not None:
        raise DataDirectoryError(
            f"the state of {data_dir} is in {found.url}: a backup of the directory alone would "
            "have records without topics. Stop the server and back up both, or bring the state "
            "back with `kgw state copy` (docs/backup.md)"
        )


def _free_name(backups: BackupDirectory, created_ms: int, newest: Manifest | None) -> str:
    """Return an unused name with the time in UTC, which sorts after the newest backup's name."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created_ms / 1000))
    number = 1
    if newest is not None:
        of_newest, newest_number = parse_name(newest.name)
        number = newest_number + 1 if of_newest == name else 1
    while True:
        free = f"{name}-{number}" if number > 1 else name
        if not Path(backups.backup_path(free)).exists():
            return free
        number += 1


# --- stages --------------------------------------------------------------------------------------


class StateFacts(NamedTuple):
    """The contents of the copied state."""

    cluster_id: str
    topics: dict[TopicId, int]
    """The number of partitions of each topic."""
    checkpoints: dict[PartitionKey, Checkpoint]

    def has(self, key: PartitionKey) -> bool:
        """Return whether a topic has this partition, according to its row.

        When partitions are added to a topic, their directories are made before the topic's row is
        changed. If that is interrupted, directories remain that no start opens.
        """
        return key.partition < self.topics.get(key.topic_id, 0)


@contextmanager
def filled_stage(root: str, tools: Tools) -> Iterator[tuple[str, Cut, StateFacts]]:
    """Yield a stage with all files of a backup, from a server or a stopped directory.

    Raises DataDirectoryError, StorageError, OSError.
    """
    until_s = tools.monotonic_s() + WAIT_S
    pause_s = _RETRY_S
    while True:
        with ExitStack() as opened:
            try:
                stage = opened.enter_context(_filled(root, until_s, tools))
            except NotYetError:
                # This attempt has copied nothing.
                if tools.monotonic_s() >= until_s:
                    raise
            else:
                facts = read_state(f"{stage}/{layout.STATE_NAME}")
                cut = _read_cut(root, stage)
                waiting = sorted(key for key in cut.unopened if facts.has(key))
                if waiting:
                    raise DataDirectoryError(
                        f"the server of {root} does not serve partition {waiting[0]}, which its "
                        "topic has: try again"
                    )
                yield stage, _without_begun(cut, facts), facts
                return
        tools.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


@contextmanager
def _filled(root: str, until_s: float, tools: Tools) -> Iterator[str]:
    with held_stage(root) as stage, ExitStack() as asked:
        while (why := _fill(root, stage, asked)) is not None:
            if tools.monotonic_s() >= until_s:
                raise DataDirectoryError(
                    f"{why}, which does not answer: it is no `kgw serve` that makes online "
                    "backups, or its file system has no sockets"
                )
            tools.sleep(_RETRY_S)
        # Do not lower the priority earlier, because commits of the state or a start of the server
        # may wait for this process until here.
        tools.give_way()
        yield stage


def _fill(root: str, stage: str, asked: ExitStack) -> str | None:
    """Fill a stage, or return why neither the lock nor the server is available right now.

    `asked` keeps the connection to a server open.
    """
    try:
        with _lock_of_stopped(root, stage):
            fill_stopped(root, stage)
    except _InUseError as in_use:
        try:
            asked.enter_context(asked_stage(root, stage))
        except (ConnectionRefusedError, FileNotFoundError):
            return str(in_use)
    return None


class _InUseError(DataDirectoryError):
    """Another process holds the lock of the directory."""


@contextmanager
def _lock_of_stopped(root: str, stage: str) -> Iterator[None]:
    with noted_as_stopped(stage), ExitStack() as held:
        try:
            held.enter_context(DirectoryLock(RealFs(), root))
        except DataDirectoryError as error:
            raise _InUseError(str(error)) from error
        yield


def fill_stopped(root: str, stage: str) -> None:
    """Fill a stage from a directory that no server uses; the caller holds its lock."""
    fs = RealFs()
    if not is_as_left(fs, root):
        if fs.exists(f"{root}/{layout.COPIED_NAME}"):
            raise DataDirectoryError(
                f"no server has been in {root} since records were copied into it: start and stop "
                "one there, and back it up then"
            )
        raise DataDirectoryError(
            f"the server of {root} was not stopped in order: start it, and back it up then"
        )
    content = fs.read_bytes(f"{root}/{layout.STATE_NAME}")
    (Path(stage) / layout.STATE_NAME).write_bytes(content)
    facts = read_state(f"{stage}/{layout.STATE_NAME}")
    keys = layout.partition_keys(fs.listdir(f"{root}/{layout.PARTITIONS_DIRECTORY}"))
    logs = tuple(
        _stopped_log(fs, root, key, facts.checkpoints.get(key)) for key in keys if facts.has(key)
    )
    # No start opens directories without a topic, but they may be adopted later.
    unclaimed = frozenset(key for key in keys if not facts.has(key))
    cut = Cut(logs, unclaimed, EmbeddedOptions().min_free_bytes)
    write_stage(fs, root, stage, cut)


def _stopped_log(fs: RealFs, root: str, key: PartitionKey, checkpoint: Checkpoint | None) -> LogCut:
    path = f"{root}/{layout.PARTITIONS_DIRECTORY}/{key}"
    state = read_log_state(fs, path).state
    if state is None:
        raise CorruptionError(f"{path}: its state is lost; see `kgw log check`")
    identity = layout.decode_partition(fs.read_bytes(f"{path}/{layout.PARTITION_NAME}"))
    bases = layout.segment_bases(fs.listdir(path))
    segments = tuple(
        SegmentCut(base, fs.file_size(f"{path}/{layout.segment_stem(base)}{layout.LOG_SUFFIX}"))
        for base in bases
    )
    if checkpoint is not None and checkpoint.clean:
        end_offset = checkpoint.next_offset
    else:
        end_offset = max(state.log_start_offset, bases[-1] if bases else 0)
        if bases:
            log_path = f"{path}/{layout.segment_stem(bases[-1])}{layout.LOG_SUFFIX}"
            for one in dump_segment(log_path, fs):
                if not isinstance(one, DumpedDamage):
                    end_offset = max(end_offset, one.batch.next_offset)
    return LogCut(key, identity.topic, end_offset, state, segments)


def _without_begun(cut: Cut, facts: StateFacts) -> Cut:
    """Leave out partitions that are just being added to a topic: they are empty.

    A start after a restore would not open them.
    """
    begun = {
        log.key for log in cut.logs if log.key.topic_id in facts.topics and not facts.has(log.key)
    }
    logs = tuple(log for log in cut.logs if log.key not in begun)
    return cut._replace(logs=logs, unopened=cut.unopened | begun)


def _read_cut(root: str, stage: str) -> Cut:
    content = (Path(stage) / CUT_NAME).read_bytes()
    try:
        return decode_cut(content)
    except (ValueError, KeyError, TypeError) as error:
        raise DataDirectoryError(
            f"the server of {root} is of another kgw, whose answer cannot be read: {error}"
        ) from error


def read_state(path: str) -> StateFacts:
    """Open and check a copy of the state, and return its contents.

    Raises DataDirectoryError, StorageError.
    """
    return asyncio.run(_read_state(path))


async def _read_state(path: str) -> StateFacts:
    async with SqliteStateStore(path, quick_check=True) as store:
        cluster = (await store.load(CLUSTER)).get(CLUSTER)
        topics = count_partitions(await store.load(TOPIC))
        checkpoints = dict((await OffsetStorage(store).load()).checkpoints)
    if cluster is None:
        raise DataDirectoryError(f"{path} has no cluster id: nothing was ever served from it")
    return StateFacts(str(json.loads(cluster.value)["cluster_id"]), topics, checkpoints)


# --- copying -------------------------------------------------------------------------------------


class _File(NamedTuple):
    """A file of the new backup."""

    path: str
    """Path below the backup's directory."""
    parts: tuple[Part, ...] = ()
    tail: bytes = b""
    may_link: bool = False
    """Whether the file may be a hard link to its source, if it has only one part."""
    is_known: bool = False
    """Whether the parent backup has this file under the same path."""

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts) + len(self.tail)


class _Work:
    """One backup in progress."""

    def __init__(
        self,
        backups: BackupDirectory,
        stage: str,
        cut: Cut,
        facts: StateFacts,
        parent: Manifest | None,
        wishes: Wishes,
    ) -> None:
        self._backups = backups
        self._stage = stage
        self._cut = cut
        self._facts = facts
        self._parent = parent
        self._is_near = os.stat(backups.path).st_dev == os.stat(stage).st_dev  # noqa: PTH116
        self._may_link = self._is_near and not wishes.is_copied
        self._wishes = wishes
        self._known = {} if parent is None else {log.key: log for log in parent.logs}
        self._files: list[_File] = []
        self._done: dict[str, StoredFile] = {}
        """The files that are complete, by path."""
        self._copied_bytes = 0
        self._linked_bytes = 0

    def run(self, name: str, created_ms: int, tools: Tools) -> BackupResult:
        """Make the backup."""
        backups, parent = self._backups, self._parent
        plans = [self._plan_log(log) for log in self._cut.logs]
        self._files.append(self._whole(layout.STATE_NAME))
        self._check_room()
        target = backups.backup_path(name + UNFINISHED_SUFFIX)
        Path(target).mkdir(mode=0o700)
        try:
            wanted_bytes = sum(one.size_bytes for one in self._files if not one.is_known)
            with tools.show(wanted_bytes) as advance:
                copier = Copier(advance, self._wishes.rate, tools.monotonic_s, tools.sleep)
                self._make_directories(target, copier)
                for file in self._files:
                    self._put(file, target, copier)
                logs = tuple(build() for build in plans)
                manifest = Manifest(
                    name,
                    created_ms,
                    full_version(),
                    self._facts.cluster_id,
                    None if parent is None else parent.name,
                    self._done[layout.STATE_NAME],
                    logs,
                )
                copier.sync()
                # The manifest is written last, when all files in it are durable.
                copier.write(encode_manifest(manifest), f"{target}/{MANIFEST_NAME}")
                copier.sync()
        except BaseException:
            # Remove the unfinished backup, because the server may need its space. After a kill, the
            # next backup removes it.
            rmtree(target, ignore_errors=True)
            raise
        Path(target).rename(backups.backup_path(name))
        RealFs().sync_directory(backups.path)
        return BackupResult(
            name,
            manifest.parent,
            manifest.size_bytes,
            self._copied_bytes,
            self._linked_bytes,
            len(self._facts.topics),
            len(logs),
            len(self._cut.unopened),
            (),
            (),
        )

    def _make_directories(self, target: str, copier: Copier) -> None:
        (Path(target) / layout.PARTITIONS_DIRECTORY).mkdir(mode=0o700)
        copier.note_directory(target)
        copier.note_directory(f"{target}/{layout.PARTITIONS_DIRECTORY}")
        for log in self._cut.logs:
            path = f"{target}/{log_directory(log.key)}"
            Path(path).mkdir(mode=0o700)
            copier.note_directory(path)

    def _check_room(self) -> None:
        wanted = sum(
            one.size_bytes
            for one in self._files
            if not one.is_known and not (one.may_link and self._may_link)
        )
        free = RealFs().free_bytes(self._backups.path)
        # The server refuses appends if less space than this is free.
        reserve_bytes = self._cut.reserve_bytes if self._is_near else 0
        if wanted + reserve_bytes > free:
            reserve = f", and its server keeps {reserve_bytes} free" if reserve_bytes else ""
            raise DiskFullError(
                f"{self._backups.path} has room for {free} bytes, and the backup takes "
                f"{wanted}{reserve}"
            )

    # --- planning the files ----------------------------------------------------------------------

    def _plan_log(self, log: LogCut) -> Callable[[], StoredLog]:
        """Choose the files to copy for a log; return a function that describes the copied log."""
        known = self._known.get(log.key)
        of_segments = {} if known is None else {one.base_offset: one for one in known.segments}
        # If the epoch is the same, the log was not recovered since then, so records were only
        # appended.
        is_same_run = known is not None and (
            known.state.epochs[-1].leader_epoch == log.state.epochs[-1].leader_epoch
        )
        plans = [
            self._plan_segment(log, one, number + 1 < len(log.segments), of_segments, is_same_run)
            for number, one in enumerate(log.segments)
        ]
        snapshots = self._plan_snapshots(log, known)
        return lambda: StoredLog(
            log.key,
            log.topic,
            log.end_offset,
            log.state,
            tuple(plan() for plan in plans),
            {offset: build() for offset, build in snapshots.items()},
        )

    def _plan_segment(
        self,
        log: LogCut,
        segment: SegmentCut,
        is_sealed: bool,
        known: dict[int, StoredSegment],
        is_same_run: bool,
    ) -> Callable[[], StoredSegment]:
        base_offset, size_bytes = segment.base_offset, segment.size_bytes
        path = piece_path(log.key, base_offset, 0)
        source = self._source(path)
        before = known.get(base_offset)
        pieces: tuple[SegmentPart, ...] = ()
        if before is not None and self._is_prefix(
            log.key, segment, source, before, is_sealed=is_sealed, is_same_run=is_same_run
        ):
            pieces = tuple(one for one in before.pieces if one.size_bytes)
        if len(pieces) >= MOST_PIECES and pieces[-1].end_position < size_bytes:
            pieces = ()
        for piece in pieces:
            self._keep(
                piece_path(log.key, base_offset, piece.position),
                StoredFile(piece.size_bytes, piece.sha256),
                Part(self._staged(path), piece.position, piece.size_bytes),
            )
        position = pieces[-1].end_position if pieces else 0
        if position < size_bytes or not pieces:
            part = Part(self._staged(path), position, size_bytes - position)
            is_whole = is_sealed and not position and self._has_size(path, size_bytes)
            self._files.append(
                _File(piece_path(log.key, base_offset, position), (part,), may_link=is_whole)
            )
            pieces = (*pieces, SegmentPart(position, size_bytes - position, ""))
        side = self._plan_side(log, segment, is_sealed, before)
        return lambda: StoredSegment(
            base_offset,
            is_sealed,
            source,
            tuple(
                one._replace(
                    sha256=self._done[piece_path(log.key, base_offset, one.position)].sha256
                )
                for one in pieces
            ),
            side(),
        )

    def _is_prefix(
        self,
        key: PartitionKey,
        segment: SegmentCut,
        source: FileIdentity,
        before: StoredSegment,
        *,
        is_sealed: bool,
        is_same_run: bool,
    ) -> bool:
        """Return whether an earlier backup has the whole segment or its beginning."""
        if before.source.inode != source.inode or before.size_bytes > segment.size_bytes:
            return False
        if before.is_sealed and is_sealed:
            return before.source == source and before.size_bytes == segment.size_bytes
        return is_same_run and self._ends_alike(key, before)

    def _ends_alike(self, key: PartitionKey, before: StoredSegment) -> bool:
        """Return whether a segment still contains the last bytes that an earlier backup has.

        It does not if the directory was restored to an older state and then used again.
        """
        if not before.pieces or self._parent is None:
            return False
        last = before.pieces[-1]
        size_bytes = min(last.size_bytes, _COMPARED_BYTES)
        stored = piece_path(key, before.base_offset, last.position)
        path = f"{self._backups.backup_path(self._parent.name)}/{stored}"
        staged = self._staged(piece_path(key, before.base_offset, 0))
        try:
            ours = _read(path, last.size_bytes - size_bytes, size_bytes)
        except FileNotFoundError:
            return False
        return ours == _read(staged, last.end_position - size_bytes, size_bytes)

    def _plan_side(
        self, log: LogCut, segment: SegmentCut, is_sealed: bool, before: StoredSegment | None
    ) -> Callable[[], StoredFile | None]:
        path = side_path(log.key, segment.base_offset)
        try:
            source = self._source(path)
        except FileNotFoundError:
            if not segment.side_tail:
                return lambda: None
            self._files.append(_File(path, (), segment.side_tail))
            return lambda: self._done[path]
        size_bytes = self._side_bytes(path, segment)
        part = Part(self._staged(path), 0, size_bytes)
        is_final = is_sealed and not segment.side_tail
        known = None if before is None else before.side
        if (
            is_final
            and known is not None
            and known.source == source
            and known.size_bytes == size_bytes
        ):
            self._keep(path, known, part)
            return lambda: known
        self._files.append(_File(path, (part,), segment.side_tail))
        kept = source if is_final else None
        return lambda: self._done[path]._replace(source=kept)

    def _side_bytes(self, path: str, segment: SegmentCut) -> int:
        """Return the size of the side entries whose batches are within the segment's cut."""
        staged = self._staged(path)
        size_bytes = os.stat(staged).st_size  # noqa: PTH116 - as in files/fs
        if segment.side_count is not None:
            return min(size_bytes, segment.side_count * ENTRY_BYTES)
        count = size_bytes // ENTRY_BYTES
        while count:
            entry = decode_entry(_read(staged, (count - 1) * ENTRY_BYTES, ENTRY_BYTES))
            if entry is None or entry.end_position <= segment.size_bytes:
                break
            count -= 1
        return count * ENTRY_BYTES

    def _plan_snapshots(
        self, log: LogCut, known: StoredLog | None
    ) -> dict[int, Callable[[], StoredFile]]:
        plans: dict[int, Callable[[], StoredFile]] = {}
        directory = self._staged(log_directory(log.key))
        for name in sorted(os.listdir(directory)):  # noqa: PTH208 - as in files/fs
            offset = layout.parse_stem(name, layout.SNAPSHOT_SUFFIX)
            if offset is not None:
                plans[offset] = self._plan_snapshot(log.key, offset, known)
        return plans

    def _plan_snapshot(
        self, key: PartitionKey, offset: int, known: StoredLog | None
    ) -> Callable[[], StoredFile]:
        path = snapshot_path(key, offset)
        source = self._source(path)
        before = None if known is None else known.snapshots.get(offset)
        if before is not None and before.source == source:
            self._keep(path, before, Part(self._staged(path), 0, before.size_bytes))
            return lambda: before
        self._files.append(self._whole(path))
        return lambda: self._done[path]._replace(source=source)

    def _whole(self, path: str) -> _File:
        size_bytes = os.stat(self._staged(path)).st_size  # noqa: PTH116 - as in files/fs
        return _File(path, (Part(self._staged(path), 0, size_bytes),))

    def _keep(self, path: str, known: StoredFile, part: Part) -> None:
        """Reuse a file of the parent backup; `part` is the same content in the stage."""
        self._files.append(_File(path, (part,), is_known=True))
        self._done[path] = known

    def _staged(self, path: str) -> str:
        return f"{self._stage}/{path}"

    def _has_size(self, path: str, size_bytes: int) -> bool:
        return os.stat(self._staged(path)).st_size == size_bytes  # noqa: PTH116

    def _source(self, path: str) -> FileIdentity:
        found = os.stat(self._staged(path))  # noqa: PTH116 - as in files/fs
        return FileIdentity(found.st_ino, found.st_mtime_ns)

    # --- writing the files -----------------------------------------------------------------------

    def _put(self, file: _File, target: str, copier: Copier) -> None:
        path = f"{target}/{file.path}"
        if file.is_known and self._parent is not None:
            known = f"{self._backups.backup_path(self._parent.name)}/{file.path}"
            if _link(known, path):
                return
            # The parent's file is missing or has too many links: copy it instead.
        elif file.may_link and self._may_link and _link(file.parts[0].path, path):
            sha256 = copier.hash(file.parts[0])
            self._linked_bytes += file.size_bytes
            self._done[file.path] = StoredFile(file.size_bytes, sha256)
            return
        sha256 = copier.copy(file.parts, path, file.tail)
        self._copied_bytes += file.size_bytes
        before = self._done.get(file.path)
        if before is not None and before.sha256 != sha256:
            raise CorruptionError(
                f"{file.parts[0].path} is not what backup {self._parent and self._parent.name} "
                "has of it, which lost the file: make a full one"
            )
        self._done[file.path] = StoredFile(file.size_bytes, sha256)


def _link(source: str, target: str) -> bool:
    try:
        Path(target).hardlink_to(source)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def _read(path: str, position: int, size_bytes: int) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as in files/fs
        file.seek(position)
        return file.read(size_bytes)
