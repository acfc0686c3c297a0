"""Where the old scheme is read: files, directories of the filer, a topic, the old gateway."""

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
"""A topic's name and a partition."""

_DAMAGE_SHOWN = 100
_MAX_LINE_BYTES = 1 << 20
_MAX_POSITION_BYTES = 1 << 16
# What the filer keeps beside the log files of a partition.
_NO_LOG_FILES = frozenset({".conf", ".offset", ".parquet"})


class Damage(NamedTuple):
    """Something that could not be read, and where it stands."""

    place: str
    reason: str


class OldScheme:
    """Everything that was read: entries by partition, positions of groups, and what was damaged."""

    def __init__(self, *, is_strict: bool = False) -> None:
        """A strict reader raises MigrationError for the first damage."""
        self.entries: dict[TopicPartition, Entries] = {}
        self.positions: dict[TopicPartition, dict[str, int]] = {}
        """By partition: the old offset that each group would have read next."""
        self.damage: list[Damage] = []
        """The first ones."""
        self.damage_count = 0
        self.cluster_id: str | None = None
        """Of the old gateway, where it was asked."""
        self._is_strict = is_strict

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have entries or positions, in order."""
        return sorted({*self.entries, *self.positions})

    def require_entries(self) -> None:
        """Raise MigrationError where there is no entry: every group would begin anew."""
        if not self.entries:
            damage = "".join(f"; {one.place}: {one.reason}" for one in self.damage[:1])
            raise MigrationError(f"the ledger has no entry that can be read{damage}")

    def add_message(self, place: str, key: bytes | None, value: bytes | None) -> None:
        """Take a message of the ledger topic."""
        entry = self.decoded(place, decode_entry, key, value)
        if entry is not None:
            entries = self.entries.setdefault((entry.topic, entry.partition), Entries())
            entries.add(entry.old_offset, entry.ts_ns, entry.size_bytes)

    def add_position(self, place: str, one: OldPosition) -> None:
        """Take a group's position. Of two for one partition the earlier counts."""
        positions = self.positions.setdefault((one.topic, one.partition), {})
        known = positions.setdefault(one.group_id, one.old_offset)
        if known != one.old_offset:
            self.note(place, f"group {one.group_id} has a second position: the earlier one counts")
            positions[one.group_id] = min(known, one.old_offset)

    def note(self, place: str, reason: str) -> None:
        """Count what could not be read."""
        if self._is_strict:
            raise MigrationError(f"{place}: {reason}")
        self.damage_count += 1
        if len(self.damage) < _DAMAGE_SHOWN:
            self.damage.append(Damage(place, reason))

    def take_damage(self, first: Iterable[Damage], count: int) -> None:
        """Count what was noted elsewhere: `count` in all, and the first ones of them."""
        before = self.damage_count
        for one in first:
            self.note(*one)
        self.damage_count = before + count

    def decoded(
        self, place: str, decode: Callable[..., DecodedT], *content: bytes | None
    ) -> DecodedT | None:
        """Return what a function of `ledger` decodes; None for damage, which is noted."""
        try:
            return decode(*content)
        except LedgerFormatError as error:
            self.note(place, str(error))
            return None


def files_below(paths: Iterable[Path]) -> list[Path]:
    """Return the files that are named, and those of directories, in order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(one for one in sorted(path.rglob("*")) if one.is_file())
        else:
            found.append(path)
    return found


def ledger_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that may hold entries, in order."""
    return [path for path in files_below(paths) if path.suffix not in _NO_LOG_FILES]


def read_ledger_files(
    scheme: OldScheme, paths: Iterable[Path], advance: Callable[[int], object]
) -> None:
    """Read exports (JSON, an entry a line) and log files of SeaweedMQ; of a directory the latter.

    `advance` is called with the bytes of each file that is done. Raises MigrationError for a file
    that cannot be opened or is of no such form.
    """
    for path in ledger_files(paths):
        if is_export(path):
            read_export(scheme, path, "{path}:{number}".format)
        else:
            read_log(scheme, path)
        advance(path.stat().st_size)


def is_export(path: Path) -> bool:
    """Whether a file is an export, and no log file of SeaweedMQ.

    Raises MigrationError for a file that cannot be opened, and for one of neither form.
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
    """Read an export, or the lines that begin in a part of it; return how many lines there were.

    `place_of` names the place of a line, for damage, from the keywords `path` and `number`, which
    is counted from 1 in this part. Raises MigrationError for a file that cannot be read.
    """
    number = 0
    with _opened(path) as file:
        for line in _lines(file, start, stop):
            number += 1
            if line.strip():
                scheme.add_message(place_of(path=path, number=number), None, line)
    return number


def read_log(scheme: OldScheme, path: Path) -> None:
    """Read a log file of SeaweedMQ. Raises MigrationError for a file that cannot be read."""
    with _opened(path) as file:
        for message in read_log_file(file.read):
            if isinstance(message, LogMessage):
                scheme.add_message(f"{path}: byte {message.position}", message.key, message.value)
            else:
                scheme.note(str(path), str(message))


def read_position_paths(scheme: OldScheme, paths: Iterable[Path]) -> None:
    """Read positions of groups: files with a JSON object a line, trees of the filer as copied.

    Raises MigrationError for what cannot be opened.
    """
    for path in paths:
        try:
            if path.is_dir():
                _read_position_tree(scheme, path)
                continue
            with path.open("rb") as file:
                for number, line in enumerate(_lines(file), 1):
                    if not line.strip():
                        continue
                    place = f"{path}:{number}"
                    position = scheme.decoded(place, decode_position_line, line)
                    if position is not None:
                        scheme.add_position(place, position)
        except OSError as error:
            raise MigrationError(f"{error.filename}: {error.strerror}") from None


async def read_ledger_topic(scheme: OldScheme, client: AsyncClient, topic: str) -> None:
    """Read a ledger that is a Kafka topic, up to its end as it is now; damage is passed over.

    Raises ClientError, DamagedRangeError where nobody knows where the damage ends.
    """
    reader = WireReader(client, await client.topic(topic))
    for partition in reader.partitions:
        await read_ledger_partition(scheme, reader, partition, *await ends(reader, partition))


async def read_ledger_partition(
    scheme: OldScheme, reader: WireReader, partition: int, start: int, end: int
) -> None:
    """Read one partition of a ledger that is a topic, up to an offset; as `read_ledger_topic`."""
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
    """Return how a message of a ledger that is a topic is named where it cannot be read."""
    return f"{topic}-{partition}@{offset}"


async def read_committed_positions(scheme: OldScheme, client: AsyncClient) -> None:
    """Ask the old gateway, while it still runs, where its groups stand. Raises ClientError."""
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
        # The tree may have been copied from anywhere above the names that count.
        named = place_of_position(path.parts)
        if named is None or named[0] == LEDGER_KEY:
            continue
        with path.open("rb") as file:
            content = file.read(_MAX_POSITION_BYTES)
        old_offset = scheme.decoded(str(path), decode_position, content)
        if old_offset is not None:
            scheme.add_position(str(path), OldPosition(*named, old_offset))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read; what goes wrong with it is a MigrationError."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror}") from None


def _lines(file: BinaryIO, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the lines that begin in a part of a file; one that is too long comes in several."""
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
