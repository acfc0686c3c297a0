"""Reads the old scheme from files, copied filer directories, a topic, or the old gateway."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.client import GroupClient, WireReader
from kgw.migrate.errors import MigrationError
from kgw.migrate.ledger import (
    LEDGER_KEY,
    LedgerFormatError,
    LogMessage,
    OldPosition,
    decode_entry,
    decode_position,
    decode_position_line,
    place_of_position,
    read_log_file,
)
from kgw.migrate.mapping import Entries
from kgw.migrate.native import ends, read_records
from kgw.offsets.ranges import DamagedRangeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from kgw.client import AsyncClient

DecodedT = TypeVar("DecodedT")

TopicPartition = tuple[str, int]
"""A topic's name and a partition number."""

_DAMAGE_SHOWN = 100
_MAX_LINE_BYTES = 1 << 20
_MAX_POSITION_BYTES = 1 << 16
# Types of files that are in a partition's directory but are not log files.
_NO_LOG_FILES = frozenset({".conf", ".offset", ".parquet"})


class UnreadableData(NamedTuple):
    """Data that cannot be read, its place, and the reason."""

    place: str
    reason: str


class OldScheme:
    """The data read so far: entries by partition, positions of groups, and damage."""

    def __init__(self, *, is_strict: bool = False) -> None:
        """With `is_strict`, the first damage raises MigrationError."""
        self.entries: dict[TopicPartition, Entries] = {}
        self.positions: dict[TopicPartition, dict[str, int]] = {}
        """For each partition, the next old offset of each group."""
        self.damage: list[UnreadableData] = []
        """The first `_DAMAGE_SHOWN` findings of damage."""
        self.damage_count = 0
        self.cluster_id: str | None = None
        """The cluster id of the old gateway, if the gateway was asked."""
        self._is_strict = is_strict

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions with entries or positions, sorted."""
        return sorted({*self.entries, *self.positions})

    def require_entries(self) -> None:
        """Raise MigrationError if there are no entries: every group would move to the start."""
        if not self.entries:
            damage = "".join(f"; {one.place}: {one.reason}" for one in self.damage[:1])
            raise MigrationError(f"the ledger has no entry that can be read{damage}")

    def add_message(self, place: str, key: bytes | None, value: bytes | None) -> None:
        """Add a message of the ledger topic."""
        entry = self.decoded(place, decode_entry, key, value)
        if entry is not None:
            entries = self.entries.setdefault((entry.topic, entry.partition), Entries())
            entries.add(entry.old_offset, entry.ts_ns, entry.size_bytes)

    def add_position(self, place: str, one: OldPosition) -> None:
        """Add a group's position.

        If a group has two positions in a partition, the earlier one is kept.
        """
        positions = self.positions.setdefault((one.topic, one.partition), {})
        known = positions.setdefault(one.group_id, one.old_offset)
        if known != one.old_offset:
            self.note(place, f"group {one.group_id} has a second position: the earlier one counts")
            positions[one.group_id] = min(known, one.old_offset)

    def note(self, place: str, reason: str) -> None:
        """Count a finding of damage. Raises MigrationError if `is_strict` is set."""
        if self._is_strict:
            raise MigrationError(f"{place}: {reason}")
        self.damage_count += 1
        if len(self.damage) < _DAMAGE_SHOWN:
            self.damage.append(UnreadableData(place, reason))

    def take_damage(self, first: Iterable[UnreadableData], count: int) -> None:
        """Add damage from another reader: `count` findings, of which `first` has the first ones."""
        before = self.damage_count
        for one in first:
            self.note(*one)
        self.damage_count = before + count

    def decoded(
        self, place: str, decode: Callable[..., DecodedT], *content: bytes | None
    ) -> DecodedT | None:
        """Return the result of a decoder; on damage, count it and return None."""
        try:
            return decode(*content)
        except LedgerFormatError as error:
            self.note(place, str(error))
            return None


def files_below(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, and all files in the given directories, in order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(one for one in sorted(path.rglob("*")) if one.is_file())
        else:
            found.append(path)
    return found


def ledger_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that may contain entries, in order."""
    return [path for path in files_below(paths) if path.suffix not in _NO_LOG_FILES]


def read_ledger_files(
    scheme: OldScheme, paths: Iterable[Path], advance: Callable[[int], object]
) -> None:
    """Read exports (one JSON entry per line) and SeaweedMQ log files.

    `advance` is called with the size of each finished file. Raises MigrationError for a file that
    cannot be opened, or has neither format.
    """
    for path in ledger_files(paths):
        if is_export(path):
            read_export(scheme, path, "{path}:{number}".format)
        else:
            read_log(scheme, path)
        advance(path.stat().st_size)


def is_export(path: Path) -> bool:
    """Return whether a file is an export; otherwise it is a SeaweedMQ log file.

    Raises MigrationError for a file that cannot be opened, or has neither format.
    """
    with _opened(path) as file:
        first = file.read(1)
    if first == b"[":
        raise MigrationError(f"{path}: a JSON array; an export has one object a line")
    return first in {b"{", b"\n", b"\r", b" "}


def read_export(
    scheme: OldScheme,
    path: Path,
    place_of: Callable[..., str],
    *,
    start: int = 0,
    stop: int | None = None,
) -> int:
    """Read an export, or the lines that begin in a part of it; return the number of lines.

    `place_of` makes a text about the place of damage from the keywords `path` and `number`, a line
    number counted from 1 in this part. Raises MigrationError for a file that cannot be read.
    """
    number = 0
    with _opened(path) as file:
        for line in _lines(file, start, stop):
            number += 1
            if line.strip():
                scheme.add_message(place_of(path=path, number=number), None, line)
    return number


def read_log(scheme: OldScheme, path: Path) -> None:
    """Read a SeaweedMQ log file. Raises MigrationError for a file that cannot be read."""
    with _opened(path) as file:
        for message in read_log_file(file.read):
            if isinstance(message, LogMessage):
                scheme.add_message(f"{path}: byte {message.position}", message.key, message.value)
            else:
                scheme.note(str(path), str(message))


def read_position_paths(scheme: OldScheme, paths: Iterable[Path]) -> None:
    """Read groups' positions from files with one JSON object per line, or from copied filer trees.

    Raises MigrationError for a path that cannot be opened.
    """
    for path in paths:
        if path.is_dir():
            try:
                _read_position_tree(scheme, path)
            except OSError as error:
                raise MigrationError(f"{error.filename}: {error.strerror}") from None
            continue
        with _opened(path) as file:
            for number, line in enumerate(_lines(file), 1):
                if not line.strip():
                    continue
                place = f"{path}:{number}"
                position = scheme.decoded(place, decode_position_line, line)
                if position is not None:
                    scheme.add_position(place, position)


async def read_ledger_topic(scheme: OldScheme, client: AsyncClient, topic: str) -> None:
    """Read a ledger from a Kafka topic, up to its present end; skip damaged records.

    Raises ClientError, and DamagedRangeError if the end of damage cannot be found.
    """
    reader = WireReader(client, await client.topic(topic))
    for partition in reader.partitions:
        await read_ledger_partition(scheme, reader, partition, *await ends(reader, partition))


async def read_ledger_partition(
    scheme: OldScheme, reader: WireReader, partition: int, start: int, end: int
) -> None:
    """Read one partition of a ledger topic up to `end`, like `read_ledger_topic`."""
    while start < end:
        try:
            async for record in read_records(reader, partition, start, end):
                place = place_of_record(reader.topic, partition, record.offset)
                scheme.add_message(place, record.key, record.value)
            break
        except DamagedRangeError as error:
            if error.end_offset is None:
                raise
            scheme.note(reader.topic, str(error))
            start = error.end_offset


def place_of_record(topic: str, partition: int, offset: int) -> str:
    """Return the name of a record in a ledger topic, for reports of damage."""
    return f"{topic}-{partition}@{offset}"


async def read_committed_positions(scheme: OldScheme, client: AsyncClient) -> None:
    """Read the groups' positions from the old gateway, which must be running.

    Raises ClientError.
    """
    scheme.cluster_id = (await client.cluster()).cluster_id
    groups = GroupClient(client)
    for group in await groups.groups():
        for (topic, partition), committed in (await groups.offsets(group.group_id)).items():
            place = f"group {group.group_id}, {topic} partition {partition}"
            if committed.is_damaged:
                scheme.note(place, "what it has committed is damaged")
                continue
            position = OldPosition(group.group_id, topic, partition, committed.offset)
            scheme.add_position(place, position)


def _read_position_tree(scheme: OldScheme, root: Path) -> None:
    for path in files_below([root]):
        # A copied tree may begin at any directory above the ones in the pattern.
        named = place_of_position(path.parts)
        if named is None or named[0] == LEDGER_KEY:
            continue
        with _opened(path) as file:
            content = file.read(_MAX_POSITION_BYTES)
        old_offset = scheme.decoded(str(path), decode_position, content)
        if old_offset is not None:
            scheme.add_position(str(path), OldPosition(*named, old_offset))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; an OSError becomes a MigrationError."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror}") from None


def _lines(file: BinaryIO, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the lines that begin in a part of a file; overlong lines are divided."""
    position = max(0, start - 1)
    file.seek(position)
    is_new = is_ours = start == 0
    while stop is None or not is_new or position < stop:
        line = file.readline(_MAX_LINE_BYTES)
        if not line:
            return
        is_ours = is_ours or is_new
        if is_ours:
            yield line
        position += len(line)
        is_new = line.endswith(b"\n")
