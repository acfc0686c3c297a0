"""A SeaweedFS filer in memory, for tests: entries, chunks, and faults of calls."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.backend.seaweedmq.channel.cipher import decrypt, encrypt
from kgw.backend.seaweedmq.channel.servers import Servers
from kgw.backend.seaweedmq.filer import (
    Chunk,
    ChunkMissingError,
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    Expiry,
    Filer,
    FilerEntry,
    FilerError,
    OutcomeUnknownError,
)
from kgw.clock import Clock, SystemClock
from kgw.errors import DataDirectoryError
from kgw.problems import NO_VOLUME, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from kgw.backend.seaweedmq.path_rules import PathRule
    from kgw.types import Buffer

ResultT = TypeVar("ResultT")


VOLUMES = range(1, 8)
"""The volumes in which chunks are stored, in turn."""


class FilerStore:
    """The entries and chunks of a filer and its volume servers. No method waits."""

    def __init__(self) -> None:
        self.directories: dict[str, dict[str, FilerEntry]] = {"/": {}}
        """The entries of each directory, by name."""
        self.chunks: dict[str, bytes] = {}
        """The content of each chunk, by file id. A test may remove or damage chunks here."""
        self.is_full = False
        """Whether all volumes refuse new chunks."""
        self.away = set[str]()
        """The volumes that are on no volume server."""
        self.encrypts = False
        """Whether chunks are encrypted, as by a filer with `-encryptVolumeData`."""
        self.expiries: dict[int, Expiry] = {}
        """When each volume, 1 to 7, deletes its chunks; a volume that is not in it never does."""
        self._uploads = 0

    @property
    def named_chunks(self) -> set[str]:
        """The file ids of the chunks of all entries."""
        return {
            chunk.file_id
            for entries in self.directories.values()
            for entry in entries.values()
            for chunk in entry.chunks
        }

    def look_up(self, directory: str, name: str) -> FilerEntry | None:
        return self.directories.get(directory, {}).get(name)

    def list_names(self, directory: str, prefix: str, after: str) -> list[str]:
        names = self.directories.get(directory, {})
        return sorted(name for name in names if name.startswith(prefix) and name > after)

    def create(self, directory: str, entry: FilerEntry) -> None:
        if self.look_up(directory, entry.name) is not None:
            raise EntryExistsError(f"{directory}/{entry.name} exists")
        self._make_directory(directory)
        self._set(directory, entry)

    def put(self, directory: str, entry: FilerEntry) -> None:
        self._make_directory(directory)
        self._set(directory, entry)

    def update(self, directory: str, entry: FilerEntry, expected: Mapping[str, bytes]) -> None:
        there = self.look_up(directory, entry.name)
        if there is None:
            raise EntryMissingError(f"{directory}/{entry.name} is not there")
        for key, value in expected.items():
            if there.extended.get(key) != value:
                raise ConditionFailedError(f'{directory}/{entry.name}: "{key}" has changed')
        self._set(directory, entry)

    def delete(self, directory: str, name: str, *, is_recursive: bool) -> None:
        entry = self.look_up(directory, name)
        if entry is None:
            return
        if entry.is_directory:
            path = _join(directory, name)
            if self.directories.get(path) and not is_recursive:
                raise FilerError(f"{path} is not empty")
            for inner in list(self.directories.get(path, ())):
                self.delete(path, inner, is_recursive=True)
            self.directories.pop(path, None)
        self.delete_chunks(entry.chunks)
        del self.directories[directory][name]

    def upload(self, data: bytes, now_ns: int) -> Chunk:
        if self.is_full:
            raise FilerError("no volume can be written: no free volumes left")
        self._uploads += 1
        cookie = self._uploads * 2654435761 % 2**32
        file_id = f"{VOLUMES[self._uploads % 7]},{self._uploads:x}{cookie:08x}"
        key = b""
        stored = data
        if self.encrypts:
            encrypted = encrypt([data])
            key, stored = encrypted.key, b"".join(encrypted.pieces)
        self.chunks[file_id] = stored
        return Chunk(file_id, 0, len(data), now_ns, key)

    def read_chunk(self, chunk: Chunk, start: int, size_bytes: int) -> bytes:
        volume = chunk.file_id.partition(",")[0]
        if volume in self.away:
            raise FilerError(f"no volume server has volume {volume}")
        data = self.chunks.get(chunk.file_id)
        if data is None:
            raise ChunkMissingError(f"chunk {chunk.file_id} is gone")
        if chunk.cipher_key:
            data = decrypt(
                chunk.cipher_key, data, chunk.size_bytes, is_compressed=chunk.is_compressed
            )
        if start + size_bytes > len(data):
            message = f"chunk {chunk.file_id} ends at {len(data)}, not at {start + size_bytes}"
            raise ChunkMissingError(message)
        return data[start : start + size_bytes]

    def delete_chunks(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.chunks.pop(chunk.file_id, None)

    def _set(self, directory: str, entry: FilerEntry) -> None:
        names = self.directories[directory]
        before = names.get(entry.name)
        if before is not None and before.is_directory != entry.is_directory:
            raise FilerError(f"{directory}/{entry.name} is of another kind")
        # Store a copy, because the caller may change its mapping later.
        names[entry.name] = entry._replace(extended=dict(entry.extended))
        if entry.is_directory:
            self.directories.setdefault(_join(directory, entry.name), {})
        if before is not None:
            kept = {chunk.file_id for chunk in entry.chunks}
            self.delete_chunks(chunk for chunk in before.chunks if chunk.file_id not in kept)

    def _make_directory(self, directory: str) -> None:
        if directory in self.directories:
            return
        above, _, name = directory.rpartition("/")
        self._make_directory(above or "/")
        if self.look_up(above or "/", name) is not None:
            raise FilerError(f"{directory} is a file")
        self._set(above or "/", FilerEntry(name, is_directory=True))


class CallKind(StrEnum):
    """The methods of `Filer`, by name."""

    LOOK_UP = "look_up"
    LIST = "list_entries"
    CREATE = "create"
    PUT = "put"
    UPDATE = "update"
    DELETE = "delete"
    UPLOAD = "upload"
    READ_CHUNK = "read_chunk"
    DELETE_CHUNKS = "delete_chunks"


class FilerCall(NamedTuple):
    """One call of the filer."""

    kind: CallKind
    directory: str = ""
    name: str = ""
    """The name of the entry, or the file ids of the chunks."""
    size_bytes: int = 0
    """The size of the upload or read."""


class FilerRequest:
    """A call that the test can carry out, answer or lose.

    `MemoryFiler.held` has the calls that wait for the test.
    """

    def __init__(self, call: FilerCall, do: Callable[[], object]) -> None:
        self.call = call
        self._do = do
        self._answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._first: Callable[[], None] | None = None
        self.deliveries = 0
        """How often the call was carried out."""

    @property
    def is_answered(self) -> bool:
        """Whether the caller has a result or an error."""
        return self._answer.done()

    def deliver(self) -> None:
        """Carry the call out; more than once simulates a repeated request."""
        self.deliveries += 1
        tell: Callable[[], None]
        try:
            result = self._do()
        except Exception as error:  # noqa: BLE001 - whatever the store raises is the answer
            tell = _teller(self._answer.set_exception, error)
        else:
            tell = _teller(self._answer.set_result, result)
        self._first = self._first or tell

    def answer(self) -> None:
        """Give the caller the result of the first delivery; deliver now if there was none."""
        if self._first is None:
            self.deliver()
        if not self._answer.done() and self._first is not None:
            self._first()

    def lose(self) -> None:
        """Let the caller get no response. The call can still be delivered."""
        if not self._answer.done():
            self._answer.set_exception(
                OutcomeUnknownError(f"no answer to {self.call.kind} {self.call.name}")
            )

    def refuse(self, error: Exception | None = None) -> None:
        """Let the caller get an error; such a call must never be delivered."""
        if not self._answer.done():
            self._answer.set_exception(
                error or FilerError(f"cannot {self.call.kind} {self.call.name}: refused")
            )

    async def wait(self) -> object:
        return await self._answer


class MemoryFiler(Filer):
    """A filer in memory, with faults that a test requests.

    Its data are kept when it is closed and opened again.

    Several filers can share a store, as gateways share a SeaweedFS; each has its own faults. Every
    call yields to the event loop once. Faults are requested by kind of call, and take effect in the
    order of the requests.
    """

    def __init__(self, store: FilerStore | None = None, clock: Clock | None = None) -> None:
        self.store = store or FilerStore()
        self.calls: list[FilerCall] = []
        """All calls so far, in order."""
        self.held: list[FilerRequest] = []
        """Calls that wait for the test, or whose requests were lost but can still be delivered, in
        order."""
        self.is_away = False
        """Whether every call fails, as if the filer did not run."""
        self.is_mute = False
        """Whether the masters do not answer, while the filer does."""
        self.addresses = ["memory:8888"]
        """The addresses of the cluster's filers."""
        self.version = "8000GB 4.48 memory"
        self.path_rules: tuple[PathRule, ...] = ()
        """The rules that `fs.configure` would show."""
        self.places_forgotten = 0
        """How often `forget_places` was called."""
        self.refreshed = 0
        """How often `refresh` was called."""
        self._was_full = False
        self._clock = clock or SystemClock()
        self.troubled = Servers(self._clock.monotonic_s)
        """The problems of volume servers that a test has set; `problems` returns them."""
        self._is_open = False
        self._faults: dict[CallKind, list[Callable[[FilerRequest], None]]] = {}
        self._holding: set[CallKind] = set()

    # --- faults ---

    def fail_next(self, kind: CallKind, error: Exception | None = None, *, times: int = 1) -> None:
        """Let the next calls of a kind fail, with FilerError unless `error` is given."""
        self._plan(kind, lambda request: request.refuse(error), times)

    def lose_answer(self, kind: CallKind, *, times: int = 1) -> None:
        """Carry out the next calls of a kind, but lose their responses."""

        def fault(request: FilerRequest) -> None:
            request.deliver()
            request.lose()

        self._plan(kind, fault, times)

    def lose_request(self, kind: CallKind, *, times: int = 1) -> None:
        """Lose the next calls of a kind; the test can deliver them later, from `held`."""

        def fault(request: FilerRequest) -> None:
            self.held.append(request)
            request.lose()

        self._plan(kind, fault, times)

    def hold_next(self, kind: CallKind, *, times: int = 1) -> None:
        """Let the next calls of a kind wait in `held`."""
        self._plan(kind, self.held.append, times)

    def hold_all(self, *kinds: CallKind) -> None:
        """Let every call of these kinds wait in `held` from now on; without kinds, stop that."""
        self._holding = set(kinds)

    def count(self, *kinds: CallKind) -> int:
        """Return the number of calls of these kinds; without kinds, of all calls."""
        return sum(1 for call in self.calls if not kinds or call.kind in kinds)

    def _plan(self, kind: CallKind, fault: Callable[[FilerRequest], None], times: int) -> None:
        self._faults.setdefault(kind, []).extend([fault] * times)

    async def _ask(
        self, call: FilerCall, do: Callable[[], ResultT], deadline_s: float | None = None
    ) -> ResultT:
        self.calls.append(call)
        await asyncio.sleep(0)
        if not self._is_open:
            raise FilerError("the filer is not open")
        if self.is_away:
            raise FilerError("the filer cannot be reached")
        faults = self._faults.get(call.kind)
        if not faults and call.kind not in self._holding:
            return do()
        results: list[ResultT] = []
        request = FilerRequest(call, lambda: results.append(do()))
        if faults:
            faults.pop(0)(request)
        else:
            self.held.append(request)
        timer = None if deadline_s is None else self._clock.call_at(deadline_s, request.lose)
        try:
            await request.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return results[0]

    # --- Filer ---

    @property
    def encrypts(self) -> bool:
        return self.store.encrypts

    @property
    def problems(self) -> Sequence[Problem]:
        found = self.troubled.problems
        if self._was_full:
            found.append(Problem(NO_VOLUME, "no volume can be written"))
        return found

    async def look(self) -> None:
        self._was_full = self._was_full and self.store.is_full

    async def open(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise DataDirectoryError("the filer cannot be reached")
        self._is_open = True

    async def aclose(self) -> None:
        self._is_open = False

    async def filers(self, *, deadline_s: float | None = None) -> list[str]:
        await asyncio.sleep(0)
        if self.is_away or self.is_mute:
            raise FilerError("the masters cannot be reached")
        return list(self.addresses)

    async def refresh(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise FilerError("the filer cannot be reached")
        self.refreshed += 1

    def forget_places(self) -> None:
        self.places_forgotten += 1

    async def rules(self) -> tuple[PathRule, ...]:
        await asyncio.sleep(0)
        if self.is_away:
            raise FilerError("the filer cannot be reached")
        return self.path_rules

    async def expiries(self) -> dict[int, Expiry | None]:
        await asyncio.sleep(0)
        if self.is_away or self.is_mute:
            raise FilerError("the masters cannot be reached")
        return {number: self.store.expiries.get(number) for number in VOLUMES}

    async def look_up(
        self, directory: str, name: str, *, deadline_s: float | None = None
    ) -> FilerEntry | None:
        call = FilerCall(CallKind.LOOK_UP, directory, name)
        return await self._ask(call, lambda: self.store.look_up(directory, name), deadline_s)

    async def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        call = FilerCall(CallKind.LIST, directory)
        names = await self._ask(call, lambda: self.store.list_names(directory, prefix, after))
        for name in names:
            entry = self.store.look_up(directory, name)
            if entry is not None:
                yield entry if chunks else entry._replace(chunks=())

    async def create(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        call = FilerCall(CallKind.CREATE, directory, entry.name)
        await self._ask(call, lambda: self.store.create(directory, entry), deadline_s)

    async def put(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        call = FilerCall(CallKind.PUT, directory, entry.name)
        await self._ask(call, lambda: self.store.put(directory, entry), deadline_s)

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        if not all(expected.values()):
            raise ValueError("an attribute that is absent passes for an empty one")
        call = FilerCall(CallKind.UPDATE, directory, entry.name)
        await self._ask(call, lambda: self.store.update(directory, entry, expected), deadline_s)

    async def delete(
        self,
        directory: str,
        name: str,
        *,
        is_recursive: bool = False,
        deadline_s: float | None = None,
    ) -> None:
        call = FilerCall(CallKind.DELETE, directory, name)
        await self._ask(
            call,
            lambda: self.store.delete(directory, name, is_recursive=is_recursive),
            deadline_s,
        )

    async def upload(self, pieces: Sequence[Buffer], *, deadline_s: float | None = None) -> Chunk:
        data = b"".join(pieces)
        call = FilerCall(CallKind.UPLOAD, size_bytes=len(data))
        now_ns = self._clock.wall_ms() * 1_000_000
        try:
            return await self._ask(call, lambda: self.store.upload(data, now_ns), deadline_s)
        finally:
            self._was_full = self.store.is_full

    async def read_chunk(
        self, chunk: Chunk, start: int, size_bytes: int, *, deadline_s: float | None = None
    ) -> bytes:
        call = FilerCall(CallKind.READ_CHUNK, name=chunk.file_id, size_bytes=size_bytes)
        return await self._ask(
            call, lambda: self.store.read_chunk(chunk, start, size_bytes), deadline_s
        )

    async def delete_chunks(self, chunks: Iterable[Chunk]) -> None:
        gone = list(chunks)
        names = " ".join(chunk.file_id for chunk in gone)
        call = FilerCall(CallKind.DELETE_CHUNKS, name=names)
        await self._ask(call, lambda: self.store.delete_chunks(gone))


def _join(directory: str, name: str) -> str:
    return f"{'' if directory == '/' else directory}/{name}"


def _teller(tell: Callable[[ResultT], None], value: ResultT) -> Callable[[], None]:
    return lambda: tell(value)
