"""Reads partitions and the state from their files, without becoming their writer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from kgw.backend.seaweedmq.chain.leader import LEADER, read_leader
from kgw.backend.seaweedmq.chain.marks import read_listed_file
from kgw.backend.seaweedmq.chain.taking_over import check_not_lost
from kgw.backend.seaweedmq.entries.layouts import decode
from kgw.backend.seaweedmq.entries.log_entries import EntryError, walk
from kgw.backend.seaweedmq.filer import FilerError
from kgw.backend.seaweedmq.log.detail import decode_detail
from kgw.backend.seaweedmq.state.items import ItemError, Sort, open_payload, read_items
from kgw.backend.seaweedmq.state.snapshots import SnapshotFiles, snapshots_of
from kgw.backend.seaweedmq.state.snapshots import decode_detail as decode_snapshots
from kgw.backend.seaweedmq.state.store import StateOptions
from kgw.errors import CorruptionError
from kgw.state.base import DamagedStateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.seaweedmq.chain import ChainFile
    from kgw.backend.seaweedmq.chain.leader import Leader
    from kgw.backend.seaweedmq.chain.marks import Marks
    from kgw.backend.seaweedmq.entries.layouts import DecodedChunk
    from kgw.backend.seaweedmq.filer import Chunk, Filer
    from kgw.backend.seaweedmq.log.detail import PartitionDetail
    from kgw.backend.seaweedmq.state.contents import StateContents


class ReadChunk(NamedTuple):
    """A chunk of a log file, with its batches."""

    path: str
    """The path of the file."""
    chunk: Chunk
    base_offset: int
    end_offset: int
    decoded: DecodedChunk | None
    """None if the chunk cannot be read."""
    problem: str | None = None
    """The reason why the chunk cannot be read."""


class ChainView:
    """A read-only view of a chain: its leader entry and the files listed there."""

    def __init__(self, filer: Filer, directory: str, leader: Leader, marks: Marks) -> None:
        self.directory = directory
        self.leader = leader
        self.marks = marks
        self._filer = filer

    @classmethod
    async def open(cls, filer: Filer, directory: str) -> Self | None:
        """Return the chain in a directory; None if there is no chain.

        Raises CorruptionError if the leader entry is missing or unreadable; FilerError.
        """
        entry = await filer.look_up(directory, LEADER)
        if entry is None:
            await check_not_lost(filer, directory)
            return None
        leader, marks = read_leader(entry, f"{directory}/{LEADER}")
        return cls(filer, directory, leader, marks)

    @property
    def names(self) -> frozenset[str]:
        """The names of all files in the leader entry, including unwanted ones."""
        return frozenset((*(row.name for row in self.leader.rows), *self.leader.unwanted))

    @property
    def expected_names(self) -> frozenset[str]:
        """The names of the files that must exist, including the active file if it has been made."""
        rows = self.leader.rows
        return frozenset(row.name for row in (rows if self.leader.is_active_there else rows[:-1]))

    async def file(self, number: int) -> ChainFile | None:
        """Return a file with its chunks; None for an active file that was never made.

        Raises CorruptionError if the file is missing or contradicts the leader entry, FilerError.
        """
        row = self.leader.rows[number]
        is_active = number == len(self.leader.rows) - 1
        path = f"{self.directory}/{row.name}"
        entry = await self._filer.look_up(self.directory, row.name)
        if entry is None and is_active and not self.leader.is_active_there:
            return None
        return read_listed_file(
            entry, row.as_file(), self.marks.identity, path, is_sealed=not is_active
        )

    async def end_offset(self) -> int:
        """Return the end offset of the log. Raises as `file`."""
        rows = self.leader.rows
        if not rows:
            return 0
        file = await self.file(len(rows) - 1)
        return rows[-1].base_offset if file is None else file.end_offset


class LogView(ChainView):
    """One partition's log."""

    def __init__(self, filer: Filer, directory: str, leader: Leader, marks: Marks) -> None:
        super().__init__(filer, directory, leader, marks)
        self.detail: PartitionDetail = decode_detail(leader.detail)

    async def chunks(
        self, file: ChainFile, away: dict[str, str] | None = None
    ) -> AsyncIterator[ReadChunk]:
        """Yield the chunks of a file, one at a time in memory. Raises FilerError.

        With `away`, a chunk that no volume server returns is yielded with a problem. Its volume is
        added to `away` with the reason. Further chunks of that volume are not requested, because
        each request would wait for a time-out.
        """
        path = f"{self.directory}/{file.name}"
        listed = zip(file.chunks, file.notes, file.chunk_ends, strict=True)
        for chunk, note, end_offset in listed:
            one = partial(ReadChunk, path, chunk, note.base_offset, end_offset)
            volume = chunk.file_id.partition(",")[0]
            if away is not None and volume in away:
                yield one(None, away[volume])
                continue
            try:
                data = await self._filer.read_chunk(chunk, 0, chunk.size_bytes)
            except CorruptionError as error:
                yield one(None, str(error))
                continue
            except FilerError as error:
                if away is None:
                    raise
                away[volume] = str(error)
                yield one(None, str(error))
                continue
            yield one(decode(data, note.base_offset, end_offset))


class StateView(ChainView):
    """The state of a namespace."""

    def __init__(self, filer: Filer, directory: str, leader: Leader, marks: Marks) -> None:
        super().__init__(filer, directory, leader, marks)
        self.notes = decode_snapshots(leader.detail)
        """The snapshots, oldest first."""

    async def read(self) -> tuple[StateContents, int]:
        """Return the whole state, and the number of commits.

        Raises CorruptionError if the state is damaged, or a gateway has removed files meanwhile;
        FilerError.
        """
        note = self.notes[-1]
        contents = await SnapshotFiles(
            self._filer, snapshots_of(self.directory), StateOptions().part_bytes
        ).read(note)
        offset = note.offset
        for number in range(len(self.leader.rows)):
            file = await self.file(number)
            if file is None or file.end_offset <= offset:
                continue
            for chunk in file.chunks:
                path = f"{self.directory}/{file.name} at position {chunk.position}"
                data = await self._filer.read_chunk(chunk, 0, chunk.size_bytes)
                try:
                    for entry in walk(data):
                        if entry.offset >= offset:
                            payload = open_payload(entry.data, Sort.COMMIT, offset)
                            contents.replay(read_items(payload))
                            offset += 1
                except (EntryError, ItemError) as error:
                    raise DamagedStateError(f"{path}: {error}") from error
            if offset != file.end_offset:
                raise DamagedStateError(
                    f"{self.directory}/{file.name} ends at commit {offset}, where "
                    f"{file.end_offset} were stored"
                )
        return contents, offset
