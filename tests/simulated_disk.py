"""What a simulated disk holds, and what a power loss leaves of it.

The rules are in `tests.simulated_fs`, which is the file system built from these.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

SECTOR_BYTES: Final = 512


class CrashMode(Enum):
    """How much of what was not synced a power loss leaves."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"
    RANDOM = "random"


class Version(NamedTuple):
    """A sector's content after an unsynced write."""

    sequence: int
    data: bytes


class Length(NamedTuple):
    """A file's length after an unsynced change of it."""

    sequence: int
    size: int


class Inode:
    """A regular file: what reads see, what is on disk, and what lies between."""

    __slots__ = (
        "cold",
        "content",
        "dirty",
        "durable",
        "error_count",
        "error_number",
        "is_error_told",
        "lengths",
        "limbo",
        "open_count",
    )

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.dirty: dict[int, list[Version]] = {}
        self.limbo: dict[int, list[Version]] = {}
        """Sectors whose sync has failed: on disk or not, and no later sync changes that."""
        self.lengths: list[Length] = []
        self.cold: set[int] = set()
        """Sectors that are not in the page cache."""
        self.error_count = 0
        """Syncs that have failed, each to be told once to each open file."""
        self.error_number = 0
        self.is_error_told = True
        """Whether anybody knows of the last one; who opens the file after that is not told."""
        self.open_count = 0

    def touch(self, start: int, end: int, sequence: int) -> None:
        """Mark the sectors of [start, end) as changed but not synced."""
        content, dirty = self.content, self.dirty
        for sector in _sectors(start, end):
            position = sector * SECTOR_BYTES
            version = Version(sequence, bytes(content[position : position + SECTOR_BYTES]))
            dirty.setdefault(sector, []).append(version)
        self.warm(start, end)

    def warm(self, start: int, end: int) -> None:
        """Mark the sectors of [start, end) as being in the page cache."""
        if self.cold:
            self.cold.difference_update(_sectors(start, end))

    def drop_pages(self) -> None:
        """Let only what is dirty be in the page cache."""
        self.cold = set(_sectors(0, len(self.content))) - self.dirty.keys()

    def warm_bytes(self, position: int, size: int) -> int:
        """Return how many bytes from `position` on are in the page cache back to back."""
        end = min(position + size, len(self.content))
        if self.cold:
            for sector in _sectors(position, end):
                if sector in self.cold:
                    end = max(position, sector * SECTOR_BYTES)
                    break
        return max(0, end - position)

    def cold_bytes(self, position: int, size: int) -> int:
        """Return how many bytes of a range are not in the page cache, in whole sectors."""
        if not self.cold:
            return 0
        end = min(position + size, len(self.content))
        return SECTOR_BYTES * sum(one in self.cold for one in _sectors(position, end))

    def sync(self) -> None:
        """Let what is dirty reach the disk; sectors in limbo stay as they are."""
        durable, content = self.durable, self.content
        resize(durable, len(content))
        for sector in self.dirty:
            position = sector * SECTOR_BYTES
            durable[position : position + SECTOR_BYTES] = content[
                position : position + SECTOR_BYTES
            ]
            self.limbo.pop(sector, None)
        self.dirty.clear()
        self.lengths.clear()

    def sync_until(self, sequence: int) -> None:
        """As `sync`, of what had been written by then: what came later stays in doubt."""
        durable = self.durable
        lengths = [length for length in self.lengths if length.sequence <= sequence]
        if lengths:
            resize(durable, lengths[-1].size)
            self.lengths = self.lengths[len(lengths) :]
        for sector, versions in list(self.dirty.items()):
            covered = [version for version in versions if version.sequence <= sequence]
            if not covered:
                continue
            position = sector * SECTOR_BYTES
            data = covered[-1].data[: max(len(durable) - position, 0)]
            durable[position : position + len(data)] = data
            self.limbo.pop(sector, None)
            if len(covered) == len(versions):
                del self.dirty[sector]
            else:
                self.dirty[sector] = versions[len(covered) :]

    def fail_sync(self, error_number: int) -> None:
        """Count everything dirty as clean without its having reached the disk."""
        self.error_count += 1
        self.error_number = error_number
        self.is_error_told = False
        for sector, versions in self.dirty.items():
            self.limbo.setdefault(sector, []).extend(versions)
        self.dirty.clear()

    def after_power_loss(self, loss: PowerLoss) -> Inode:
        """Return the file as it is found afterwards, everything in it durable."""
        survivor = Inode()
        content = survivor.content
        content[:] = self.durable
        resize(content, loss.choose_size(len(self.durable), self.lengths))
        end = len(content)
        for pending in (self.limbo, self.dirty):
            for sector, versions in pending.items():
                position = sector * SECTOR_BYTES
                if position >= end:
                    continue
                data = loss.choose_version(versions, is_new=position >= len(self.durable))
                if data is not None:
                    stop = min(position + len(data), end)
                    content[position:stop] = data[: stop - position]
        survivor.durable[:] = content
        survivor.drop_pages()
        return survivor


class Directory:
    """Names; `durable` is what a power loss leaves of them at least."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = Inode | Directory


class NameChange(NamedTuple):
    """A name removed, a name added, or both at one stroke, not yet synced."""

    sequence: int
    removed: tuple[Directory, str] | None
    added: tuple[Directory, str] | None
    node: Node

    def touches(self, directory: Directory) -> bool:
        return any(name is not None and name[0] is directory for name in (self.removed, self.added))

    def apply(self, entries_of: Callable[[Directory], dict[str, Node]]) -> None:
        """Make the change in whichever view of the directories is given."""
        if self.removed is not None:
            directory, name = self.removed
            entries = entries_of(directory)
            if entries.get(name) is self.node:
                del entries[name]
        if self.added is not None:
            directory, name = self.added
            entries = entries_of(directory)
            # A creation cannot replace a name whose own removal did not survive; a rename does.
            if self.removed is not None or name not in entries:
                entries[name] = self.node


class PowerLoss:
    """The choices of one power loss."""

    def __init__(self, random: Random, mode: CrashMode, last_sequence: int) -> None:
        self._random = random
        self._mode = mode
        # Most of the run is synced already: a cut that lies near the end tells states apart.
        self._cut = max(0, last_sequence - int(random.expovariate(0.25)))
        self._survival = random.choice((0.1, 0.5, 0.9))
        self._garbage = mode is CrashMode.RANDOM and random.random() < 0.1

    def keeps(self, sequence: int) -> bool:
        """Whether a change of a name survives."""
        match self._mode:
            case CrashMode.NOTHING:
                return False
            case CrashMode.EVERYTHING:
                return True
            case CrashMode.PREFIX:
                return sequence <= self._cut
            case CrashMode.RANDOM:
                return self._random.random() < self._survival

    def choose_size(self, durable_size: int, lengths: Sequence[Length]) -> int:
        if not lengths:
            return durable_size
        sizes = [durable_size, *(length.size for length in lengths)]
        match self._mode:
            case CrashMode.NOTHING:
                return durable_size
            case CrashMode.EVERYTHING:
                return sizes[-1]
            case CrashMode.PREFIX:
                kept = [length.size for length in lengths if length.sequence <= self._cut]
                return kept[-1] if kept else durable_size
            case CrashMode.RANDOM:
                at = self._random.randrange(1, len(sizes))
                if self._random.random() < 0.4:
                    between = sorted(sizes[at - 1 : at + 1])
                    return self._random.randint(*between)
                return self._random.choice((sizes[at - 1], sizes[at], sizes[-1]))

    def choose_version(self, versions: Sequence[Version], *, is_new: bool) -> bytes | None:
        """Return what is found in a sector, None for what was durable before.

        A sector is written whole or not at all; only in one that held nothing before (`is_new`) may
        something else be found.
        """
        match self._mode:
            case CrashMode.NOTHING:
                return None
            case CrashMode.EVERYTHING:
                return versions[-1].data
            case CrashMode.PREFIX:
                kept = [version.data for version in versions if version.sequence <= self._cut]
                if kept and versions[-1].sequence != self._cut:
                    return kept[-1]
                # The write during which the power went: any of its sectors.
                return self._random.choice([None, *kept]) if kept else None
            case CrashMode.RANDOM:
                if is_new and self._garbage and self._random.random() < 0.2:
                    return self._random.randbytes(len(versions[-1].data))
                if self._random.random() < self._survival:
                    return versions[-1].data
                return self._random.choice([None, *(version.data for version in versions)])


def current_entries(directory: Directory) -> dict[str, Node]:
    """What processes see in a directory."""
    return directory.entries


def durable_entries(directory: Directory) -> dict[str, Node]:
    """What a power loss leaves of a directory at least."""
    return directory.durable


def _sectors(start: int, end: int) -> range:
    return range(start // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)


def resize(data: bytearray, size: int) -> None:
    """Cut, or extend with zeros."""
    if size < len(data):
        del data[size:]
    elif size > len(data):
        data.extend(bytes(size - len(data)))
