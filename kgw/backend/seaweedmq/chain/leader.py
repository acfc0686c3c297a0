"""The leader entry, which lists the files of a chain and has bytes of the chain's owner.

Its content is JSON, inline in the entry, with a version and a checksum. An unreadable entry is an
error, and is never treated as an empty chain.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from json import dumps, loads
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.backend.seaweedmq.chain.files import ChainFile
from kgw.backend.seaweedmq.chain.marks import read_marks
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.errors import CorruptionError
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.seaweedmq.chain.marks import Marks

LEADER: Final = "leader.offset"
"""SMQ's own readers treat every file as a log file unless its name ends in `.offset`."""
VERSION: Final = 1


class FileRow(NamedTuple):
    """A file, as the leader entry lists it."""

    # Stored as a list: moving or removing a field changes the stored form.
    name: str
    base_offset: int
    end_offset: int
    """Like size and timestamp, this is only set for sealed files."""
    begun_ms: int
    size_bytes: int
    largest_timestamp_ms: int
    content_bytes: int

    def as_file(self) -> ChainFile:
        """Return the file for the owner, without its chunks."""
        return ChainFile(**self._asdict())


_row_fields: Final = attrgetter(*FileRow._fields)
"""Returns the attributes of a `ChainFile` that a `FileRow` also has."""


class Leader(NamedTuple):
    """The content of a leader entry."""

    rows: tuple[FileRow, ...] = ()
    """The files in order; the last one is active."""
    is_active_there: bool = False
    """Whether the active file has been made. If it is True and the file is missing, data is lost.
    If it is False, the writer was killed between naming and making the file."""
    last_name: str = ""
    """The greatest name of all files so far, so that no name is used twice."""
    unwanted: tuple[str, ...] = ()
    """Files to be removed, which were dropped, replaced, or written in vain."""
    detail: bytes = b""


def rows_of(files: Iterable[ChainFile]) -> tuple[FileRow, ...]:
    """Return files as the leader entry lists them."""
    return tuple(FileRow(*_row_fields(file)) for file in files)


def leader_entry(leader: Leader, marks: Marks, modified_s: int) -> FilerEntry:
    """Return the entry with this content."""
    body = {
        "identity": marks.identity.hex(),
        "epoch": marks.epoch,
        "changes": marks.changes,
        "files": [list(row) for row in leader.rows],
        "is_active_there": leader.is_active_there,
        "last_name": leader.last_name,
        "unwanted": list(leader.unwanted),
        "detail": b64encode(leader.detail).decode("ascii"),
    }
    content = {"version": VERSION, "checksum": _checksum(body), **body}
    return FilerEntry(
        LEADER,
        content=dumps(content, separators=(",", ":")).encode(),
        extended=marks.attributes,
        modified_s=modified_s,
    )


def read_leader(entry: FilerEntry, place: str) -> tuple[Leader, Marks]:
    """Return the content and marks of a leader entry. CorruptionError has `place` in it."""
    marks = read_marks(entry, place)
    try:
        body = loads(entry.content)
        version, checksum = body.pop("version"), body.pop("checksum")
        if version != VERSION:
            message = f"{place}: version {version}, and this kgw knows {VERSION} only"
            raise CorruptionError(message)
        if checksum != _checksum(body):
            raise CorruptionError(f"{place}: its checksum is wrong")
        said = (bytes.fromhex(body["identity"]), body["epoch"], body["changes"])
        if said != marks[:3]:
            raise CorruptionError(f"{place}: its attributes contradict its content")
        leader = Leader(
            tuple(FileRow(*row) for row in body["files"]),
            body["is_active_there"],
            body["last_name"],
            tuple(body["unwanted"]),
            b64decode(body["detail"], validate=True),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as reason:
        raise CorruptionError(f"{place}: cannot be understood: {reason!r}") from reason
    return leader, marks


def _checksum(body: dict[str, Any]) -> str:
    return f"{crc32c(dumps(body, separators=(',', ':'), sort_keys=True).encode()):08x}"
