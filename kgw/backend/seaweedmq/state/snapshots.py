"""Snapshots of the state, which let the chain drop old commits.

The files of snapshots are in a directory beside the directory of the chain. A snapshot is valid
once the detail of the chain's leader entry lists it. Only the writer of the chain can change the
detail, so nobody reads files of a replaced gateway. The detail lists the newest two snapshots, and
the chain keeps all commits after the older one. So a damaged snapshot costs time, but no data.
"""

from __future__ import annotations

import json
from asyncio import sleep
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.chain.settling import discard_chunks
from kgw.backend.seaweedmq.entries.log_entries import EntryError
from kgw.backend.seaweedmq.filer import FilerEntry, FilerError, OutcomeUnknownError
from kgw.backend.seaweedmq.state.contents import StateContents
from kgw.backend.seaweedmq.state.in_order import in_order
from kgw.backend.seaweedmq.state.items import (
    ItemError,
    Sort,
    decode_entry,
    encode_entry,
    read_items,
)
from kgw.errors import CorruptionError
from kgw.state.base import DamagedStateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from kgw.backend.seaweedmq.filer import Chunk, Filer

_DETAIL_VERSION: Final = 1
_PARTS_AT_ONCE: Final = 4


class SnapshotNote(NamedTuple):
    """The fields of a snapshot in the leader entry."""

    offset: int
    """The offset of the first commit after the snapshot."""
    name: str
    parts: int
    size_bytes: int


NOTHING: Final = SnapshotNote(0, "", 0, 0)
"""The empty snapshot of a new state, which has no file."""


class StoppedError(FilerError):
    """A snapshot was not written, because the store is being closed."""


def encode_detail(notes: Sequence[SnapshotNote]) -> bytes:
    """Return the detail for the leader entry: the snapshots, the oldest first."""
    return json.dumps({"version": _DETAIL_VERSION, "snapshots": notes}).encode()


def decode_detail(detail: bytes) -> list[SnapshotNote]:
    """Return the snapshots in a detail. Raises DamagedStateError."""
    try:
        words = json.loads(detail)
        if words["version"] != _DETAIL_VERSION:
            raise DamagedStateError(
                f"the state's leader entry has version {words['version']}; this program reads "
                f"{_DETAIL_VERSION}"
            )
        notes = [
            SnapshotNote(int(offset), str(name), int(parts), int(size_bytes))
            for offset, name, parts, size_bytes in words["snapshots"]
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedStateError(f"the state's leader entry cannot be read: {error}") from error
    if not notes:
        raise DamagedStateError("the state's leader entry names no snapshot")
    return notes


def snapshots_of(directory: str) -> str:
    """Return the directory of the snapshots of a state, given that of its commits."""
    return f"{directory}-snapshots"


class SnapshotFiles:
    """The files of snapshots in one directory."""

    def __init__(self, filer: Filer, directory: str, part_bytes: int) -> None:
        """`part_bytes` is the approximate size of a part; items are never split."""
        self._filer = filer
        self.directory = directory
        self._part_bytes = part_bytes
        self._written = 0

    async def write(
        self,
        offset: int,
        epoch: int,
        runs: Iterator[bytes],
        ts_ns: int,
        is_stopped: Callable[[], bool],
    ) -> SnapshotNote:
        """Write a file that is not listed yet; read each part back and compare it.

        Raises StorageError; StoppedError once `is_stopped` returns True.
        """
        self._written += 1
        chunks: list[Chunk] = []
        size_bytes = 0
        try:
            async for part in self._parts(runs):
                if is_stopped():
                    raise StoppedError("the store closes")
                data = b"".join(encode_entry(part, Sort.SNAPSHOT, offset, ts_ns, part=len(chunks)))
                chunk = await self._filer.upload([data])
                chunks.append(chunk._replace(position=size_bytes))
                if await self._filer.read_chunk(chunk, 0, len(data)) != data:
                    raise DamagedStateError(f"chunk {chunk.file_id} was not stored as it was sent")
                size_bytes += len(data)
            # The number distinguishes attempts of one writer, the epoch distinguishes writers.
            note = SnapshotNote(
                offset, f"{epoch}-{self._written}-{offset}", len(chunks), size_bytes
            )
            if chunks:
                await self._filer.create(
                    self.directory, FilerEntry(note.name, tuple(chunks), modified_s=ts_ns // 10**9)
                )
                if await self._filer.look_up(self.directory, note.name) is None:
                    raise DamagedStateError(f"{self.directory}/{note.name} was not stored")
        except OutcomeUnknownError:
            raise  # The entry may exist now or later: `remove_others` finds it.
        except Exception:
            await discard_chunks(self._filer, chunks)
            raise
        return note

    async def _parts(self, runs: Iterator[bytes]) -> AsyncIterator[bytes]:
        part = bytearray()
        for run in runs:
            part += run
            if len(part) >= self._part_bytes:
                yield bytes(part)
                part.clear()
            else:
                await sleep(0)
        if part:
            yield bytes(part)

    async def read(self, note: SnapshotNote) -> StateContents:
        """Return the state in a snapshot. Raises CorruptionError when it is damaged, FilerError."""
        contents = StateContents()
        if note == NOTHING:
            return contents
        place = f"{self.directory}/{note.name}"
        entry = await self._filer.look_up(self.directory, note.name)
        if entry is None:
            raise DamagedStateError(f"{place} is gone")
        if (len(entry.chunks), entry.size_bytes) != (note.parts, note.size_bytes):
            raise DamagedStateError(
                f"{place} has {len(entry.chunks)} parts and {entry.size_bytes} bytes, where "
                f"{note.parts} and {note.size_bytes} were written"
            )
        calls = (self._filer.read_chunk(chunk, 0, chunk.size_bytes) for chunk in entry.chunks)
        part = 0
        try:
            async with aclosing(in_order(calls, _PARTS_AT_ONCE)) as parts:
                async for data in parts:
                    contents.restore(
                        read_items(decode_entry(data, Sort.SNAPSHOT, note.offset, part))
                    )
                    part += 1
        except (CorruptionError, EntryError, ItemError) as error:
            position = entry.chunks[part].position
            raise DamagedStateError(f"{place} at position {position}: {error}") from error
        return contents

    async def remove_others(self, notes: Sequence[SnapshotNote], epoch: int) -> int:
        """Remove unlisted snapshots of writers up to an epoch; return the number of files.

        `notes` are the snapshots in the leader entry after the last change by this epoch's writer.
        Other snapshots of these writers will never be listed. Raises StorageError.
        """
        named = {note.name for note in notes}
        found = [
            entry.name
            async for entry in self._filer.list_entries(self.directory, chunks=False)
            if entry.name not in named and _epoch_of(entry.name) <= epoch
        ]
        for name in found:
            await self._filer.delete(self.directory, name)
        return len(found)


def _epoch_of(name: str) -> int:
    epoch = name.partition("-")[0]
    return int(epoch) if epoch.isdecimal() else 0
