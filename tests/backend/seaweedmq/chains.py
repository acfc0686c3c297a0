"""Chains as tests look at them: payloads, what is stored, and filers that break the rules."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.seaweedmq.chain import Chain, ChainFile, ChainOptions, Payload, Settler
from kgw.backend.seaweedmq.chain.leader import LEADER, read_leader
from kgw.backend.seaweedmq.chain.marks import CHANGES, EPOCH, Marks, read_file, read_marks
from kgw.backend.seaweedmq.filer import FilerError, OutcomeUnknownError
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from kgw.backend.seaweedmq.filer import FilerEntry

DIRECTORY = "/topics/kafka/orders/v2026-11-23-00-00-00/0000-0031"
IDENTITY = b"orders-0"
ENTRY_BYTES = 8
SMALL = ChainOptions(file_chunks=3, chunk_bytes=3 * ENTRY_BYTES, refuse_after_s=10)


def payload(number: int, base_offset: int, count: int = 1) -> Payload:
    """Return a payload of one entry, told from all others by its number."""
    return Payload([b"%08d" % number], ENTRY_BYTES, base_offset, base_offset + count, number)


class Stored(NamedTuple):
    """An entry that is in a chain."""

    base_offset: int
    """Of its chunk."""
    number: int


def listed_files(store: FilerStore) -> list[ChainFile]:
    """Return the files that the leader entry lists, read from the store itself, in order."""
    leader_entry = store.look_up(DIRECTORY, LEADER)
    if leader_entry is None:
        return []
    leader, _ = read_leader(leader_entry, LEADER)
    found: list[ChainFile] = []
    for row in leader.rows:
        entry = store.look_up(DIRECTORY, row.name)
        if entry is None:
            assert row is leader.rows[-1]
            assert not leader.is_active_there
        else:
            found.append(read_file(entry, row.as_file(), row.name))
    return found


def stored(store: FilerStore) -> list[Stored]:
    """Return what a chain has, in order."""
    found: list[Stored] = []
    for file in listed_files(store):
        for chunk, note in zip(file.chunks, file.notes, strict=True):
            assert chunk.file_id in store.chunks, "a chunk that is named was removed"
            data = store.read_chunk(chunk, 0, chunk.size_bytes)
            found += [
                Stored(note.base_offset, int(data[place : place + ENTRY_BYTES]))
                for place in range(0, len(data), ENTRY_BYTES)
            ]
    return found


def all_marks(store: FilerStore) -> dict[str, Marks]:
    """Return the marks of every entry of the chain."""
    entries = store.directories.get(DIRECTORY, {})
    return {name: read_marks(entry, name) for name, entry in entries.items()}


async def contents(chain: Chain) -> list[bytes]:
    """Return every entry, as the chain's owner reads it."""
    found: list[bytes] = []
    for file in chain.files:
        await chain.load(file)
        for number in range(len(file.chunks)):
            data = await chain.read(file, number)
            found += [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
    return found


async def until(clock: ManualClock, awaited: Awaitable[object], *, seconds: float = 120) -> None:
    """Let time pass until something is done."""
    task = asyncio.ensure_future(awaited)
    passed_s = 0.0
    while not task.done():
        await turns(30)
        assert passed_s < seconds, "it waits for ever"
        clock.advance(0.5)
        passed_s += 0.5
    await task


class World:
    """A store, a clock, and clients of it."""

    def __init__(self, options: ChainOptions = SMALL) -> None:
        self.clock = ManualClock()
        self.store = FilerStore()
        self.options = options

    async def filer(self) -> MemoryFiler:
        """Return another client, open."""
        filer = MemoryFiler(self.store, self.clock)
        await filer.open()
        return filer

    async def create(self, filer: MemoryFiler, detail: bytes = b"") -> Chain:
        """Make the chain."""
        settler = Settler(filer, self.clock, DIRECTORY)
        return await Chain.create(settler, IDENTITY, detail, self.options)

    async def take_over(self, filer: MemoryFiler) -> Chain:
        """Become its writer."""
        settler = Settler(filer, self.clock, DIRECTORY)
        return await Chain.take_over(settler, IDENTITY, self.options)

    async def numbers(self) -> list[int]:
        """Return what a new writer finds."""
        filer = await self.filer()
        chain = await self.take_over(filer)
        found = [int(entry) for entry in await contents(chain)]
        assert [one.number for one in stored(self.store)] == found
        return found


class _Ignoring(MemoryFiler):
    """A filer that does not look at one part of a condition."""

    ignored: str

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        others = {key: value for key, value in expected.items() if key != self.ignored}
        await super().update(directory, entry, others, deadline_s=deadline_s)


class WithoutEpoch(_Ignoring):
    """A filer that does not look at the epoch."""

    ignored = EPOCH


class WithoutChanges(_Ignoring):
    """A filer that does not look at the number of changes."""

    ignored = CHANGES


class AnswersFirst(MemoryFiler):
    """A filer that says that a change is made before it is."""

    def __init__(self, store: FilerStore, clock: ManualClock) -> None:
        super().__init__(store, clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        late = super().update(directory, entry, expected, deadline_s=deadline_s)
        task = asyncio.ensure_future(late)
        task.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        self._tasks.append(task)
        await asyncio.sleep(0)


class TakesDoubtForFailure(MemoryFiler):
    """A filer that says that nothing was done when it does not know."""

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        try:
            await super().update(directory, entry, expected, deadline_s=deadline_s)
        except OutcomeUnknownError as error:
            raise FilerError("it failed, it seems") from error


def is_rising(values: Sequence[int]) -> bool:
    """Whether each is greater than the one before it."""
    return all(one < other for one, other in pairwise(values))
