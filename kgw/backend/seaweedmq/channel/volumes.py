"""Stores, reads and removes chunks on volume servers."""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, create_task, gather, get_running_loop, to_thread, wait
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.payload import Payload

from kgw.backend.seaweedmq.channel.calls import statuses
from kgw.backend.seaweedmq.channel.cipher import ADDED_BYTES, decrypt, encrypt
from kgw.backend.seaweedmq.channel.options import GRPC_PORT_ABOVE_HTTP
from kgw.backend.seaweedmq.channel.servers import READING, SILENT_S, UPLOADING, Servers
from kgw.backend.seaweedmq.channel.statuses import PassingError
from kgw.backend.seaweedmq.filer import (
    Chunk,
    ChunkMissingError,
    ChunkTooLargeError,
    FilerError,
)
from kgw.backend.seaweedmq.protos import filer_pb2, volume_server_pb2, volume_server_pb2_grpc
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.problems import NO_VOLUME, Problem

if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from aiohttp.abc import AbstractStreamWriter
    from grpc.aio import Channel

    from kgw.backend.seaweedmq.channel.calls import Calls, Deadline
    from kgw.backend.seaweedmq.channel.options import ChannelOptions
    from kgw.backend.seaweedmq.protos import filer_pb2_grpc
    from kgw.clock import Clock
    from kgw.errors import StorageError
    from kgw.metrics import Metrics
    from kgw.types import Buffer

_ResultT = TypeVar("_ResultT")

_log = EventLogger(__name__)

JOINED_BYTES = 256 * 1024
"""Small buffers of an upload are joined up to this size, because a call of the transport costs more
than copying."""

_COOKIE_DIGITS = 8
"""The random digits at the end of a file id, which make it hard to guess."""

MISSING_TIMES = 6
"""Number of times, over 1.5 s, that every server of a volume must answer 404 before a chunk counts
as missing."""

_TOO_LARGE = "over the limit"
"""Part of a volume server's answer if a chunk is larger than its -fileSizeLimitMB."""

_READ_BUFFER_BYTES = 1 << 18

_NO_VOLUME_S = 1.0
"""A lack of writable volumes is reported only after this time, because the master may be making a
volume."""

_ON_LOOP_BYTES = 64 << 10
"""Larger chunks are encrypted and decrypted in a thread."""

# Errors of the server, of the connection to it or in its answer. (A TimeoutError is an OSError.)
_TROUBLE = (ClientError, OSError, ValueError)


class FileId(NamedTuple):
    """An unused file id for a chunk."""

    name: str
    path: str
    """The id in its form for the upload."""
    url: str
    """The volume server's `host:port`."""
    token: str
    """The token for the upload; "" if volume servers need none."""
    until_s: float
    """The monotonic time until which the id may be used."""
    is_synced: bool
    """Whether the upload must be synced, by the filer's rule for the path (`fs.configure`)."""


class VolumeLocation(NamedTuple):
    """A volume server that has a volume."""

    url: str
    grpc_port: int

    @property
    def grpc_target(self) -> str:
        """The target of a gRPC connection to it."""
        host, _, port = self.url.rpartition(":")
        return f"{host}:{self.grpc_port or int(port) + GRPC_PORT_ABOVE_HTTP}"


class Volumes:
    """The volume servers of one cluster, as a filer knows them."""

    def __init__(
        self,
        options: ChannelOptions,
        clock: Clock,
        metrics: Metrics,
        calls: Calls,
        filer: filer_pb2_grpc.SeaweedFilerStub,
        connect: Callable[[str], Channel],
    ) -> None:
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._calls = calls
        self._filer = filer
        self._connect = connect
        self.encrypts = False
        """Whether chunks are encrypted before they are uploaded."""
        self._scheme = "https" if options.security.https else "http"
        self._http = ClientSession(
            connector=TCPConnector(
                limit=0,
                limit_per_host=options.connections,
                ssl=options.security.https or True,
            ),
            cookie_jar=DummyCookieJar(),
            # Without this header a server would compress answers, even ranges of a chunk.
            headers={"Accept-Encoding": "identity"},
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self._servers: dict[str, tuple[VolumeLocation, ...]] = {}
        """The servers of each volume in use. They are looked up again after a failed read."""
        self._channels: dict[str, Channel] = {}
        self._ids: deque[FileId] = deque()
        """The unused ids, in the order in which they expire."""
        self._ids_forgotten = 0
        """The number of calls of `forget_ids`. Ids that were requested before the last call are not
        used."""
        self._assigning: Task[None] | None = None
        self._expected_bytes = 0
        """The average size of a chunk, 0 before the first one. The master adds it (or 1 MB if it is
        unknown) to a volume's size for each id, to decide when the volume is full."""
        self._removals: set[Task[None]] = set()
        self._troubled = Servers(clock.monotonic_s)
        self._no_volume: tuple[float, str] | None = None
        """The time since which no volume is writable, and the filer's error text."""

    @property
    def problems(self) -> list[Problem]:
        """The faults of volumes and their servers that reads and uploads have met."""
        found = self._troubled.problems
        if self._no_volume is not None:
            since_s, why = self._no_volume
            if self._clock.monotonic_s() >= since_s + _NO_VOLUME_S:
                found.append(Problem(NO_VOLUME, f"SeaweedFS has no volume to write to: {why}"))
        return found

    async def look(self) -> None:
        """Check whether volumes are writable again, even if nothing is uploaded."""
        if self._no_volume is not None:
            await wait([self._assign_more()])

    async def aclose(self) -> None:
        """Close every connection."""
        tasks = [*self._removals, *([self._assigning] if self._assigning else [])]
        for task in tasks:
            task.cancel()
        await gather(*tasks, return_exceptions=True)
        await self._http.close()
        for channel in self._channels.values():
            await channel.close()

    # --- storing ---

    async def upload(self, pieces: Sequence[Buffer], deadline_s: float | None) -> Chunk:
        """Store a chunk. After a failed try, use another id, probably on another server."""
        content_bytes = size_bytes = sum(map(len, pieces))
        key = b""
        if self.encrypts:
            key, pieces, size_bytes = await _off_loop(partial(encrypt, pieces), size_bytes)

        async def attempt(deadline: Deadline) -> Chunk:
            # Use an average, so that the master does not count a volume as full after one large
            # chunk.
            expected = self._expected_bytes or size_bytes
            self._expected_bytes = expected + (size_bytes - expected) // 8
            file_id = await self._next_id(deadline)
            try:
                await self._put(file_id, pieces, size_bytes, deadline)
            except BaseException:
                # The failed upload may have stored the chunk, which no entry will ever name.
                self._ids.clear()
                self._remove_behind(file_id.name)
                raise
            now_ns = self._clock.wall_ms() * 1_000_000
            return Chunk(file_id.name, 0, content_bytes, now_ns, key)

        chunk = await self._calls.until_done("upload", attempt, deadline_s)
        count(self._metrics.filer_bytes, "uploaded", size_bytes)
        return chunk

    async def _put(
        self, file_id: FileId, pieces: Sequence[Buffer], size_bytes: int, deadline: Deadline
    ) -> None:
        url = f"{self._scheme}://{file_id.url}/{file_id.path}"
        if file_id.is_synced or self._options.is_synced:
            url += "?fsync=true"
        try:
            async with self._http.put(
                url,
                data=_UploadBody(pieces, size_bytes),
                headers=_authorization(file_id.token),
                timeout=ClientTimeout(total=deadline.one_try_s()),
            ) as answer:
                if answer.status != 201:
                    told = f"{url} answers {answer.status} {await answer.text()}"
                    if answer.status == 400 and _TOO_LARGE in told:
                        raise ChunkTooLargeError(
                            f"{told}: a chunk of {size_bytes} bytes is more than the volume "
                            "servers take (weed volume -fileSizeLimitMB); let them take more"
                        )
                    raise PassingError(told)
                stored_bytes = (await answer.json()).get("size")
        except _TROUBLE as error:
            self._troubled.note_trouble(file_id.url, UPLOADING, repr(error))
            raise PassingError(f"{url}: {error!r}") from error
        except PassingError as error:
            self._troubled.note_trouble(file_id.url, UPLOADING, str(error), is_silent=False)
            raise
        self._troubled.note_answer(file_id.url, UPLOADING)
        if stored_bytes != size_bytes:
            raise PassingError(f"{url} has stored {stored_bytes} of {size_bytes} bytes")

    async def _next_id(self, deadline: Deadline) -> FileId:
        """Return an unused file id. More ids are requested before the last one is used.

        Sometimes a request takes 200 ms, because the master makes a volume.
        """
        while True:
            while self._ids and self._ids[0].until_s <= self._clock.monotonic_s():
                self._ids.popleft()
            assigning = self._assigning
            if assigning is None and len(self._ids) <= self._options.ids_at_once // 2:
                assigning = self._assign_more()
            if self._ids:
                return self._ids.popleft()
            assert assigning is not None  # noqa: S101 - for the type checker
            await wait([assigning], timeout=deadline.left_s())
            if not assigning.done() or assigning.cancelled():
                raise PassingError("no file id within the deadline")
            # Raises the error of the request.
            assigning.result()

    def _assign_more(self) -> Task[None]:
        """Request more file ids; concurrent callers share one request."""
        if self._assigning is None:
            self._assigning = create_task(self._assign())
            self._assigning.add_done_callback(self._assigned)
        return self._assigning

    def _assigned(self, task: Task[None]) -> None:
        self._assigning = None
        if not task.cancelled():
            # Retrieve the error here, because callers do not while there are unused ids.
            task.exception()

    def forget_ids(self) -> None:
        """Drop all ids requested before this call."""
        self._ids.clear()
        self._ids_forgotten += 1

    async def _assign(self) -> None:
        options = self._options
        forgotten = self._ids_forgotten
        with statuses("AssignVolume", is_change=False):
            answer = await self._filer.AssignVolume(
                filer_pb2.AssignVolumeRequest(
                    count=options.ids_at_once,
                    collection=options.collection,
                    replication=options.replication,
                    ttl_sec=options.ttl_s,
                    path=options.path,
                    disk_type=options.disk_type,
                    expected_data_size=self._expected_bytes,
                ),
                timeout=options.timeout_s,
            )
        if answer.error or not answer.file_id:
            since_s = self._clock.monotonic_s() if self._no_volume is None else self._no_volume[0]
            self._no_volume = since_s, answer.error
            raise PassingError(f"AssignVolume: no volume can be written: {answer.error}")
        self._no_volume = None
        if forgotten != self._ids_forgotten:
            return  # The caller that waits for an id requests ids again.
        until_s = self._clock.monotonic_s() + options.id_lifetime_s
        self._ids += [
            FileId(name, path, answer.location.url, answer.auth, until_s, answer.fsync)
            for name, path in numbered(answer.file_id, answer.count)
        ]

    def _remove_behind(self, file_id: str) -> None:
        """Remove the chunk of a failed upload, once, in the background.

        If that fails, the chunk uses space until SeaweedFS's `volume.fsck` finds it.
        """

        async def remove() -> None:
            try:
                await self.delete((Chunk(file_id, 0, 0),))
            except FilerError as error:
                _log.info("what a failed upload left may still be there", chunk=file_id, why=error)

        removal = create_task(remove())
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    # --- reading ---

    async def read(
        self, chunk: Chunk, start: int, size_bytes: int, deadline_s: float | None
    ) -> bytes:
        """Return a part of a chunk from any server that has it."""
        if not size_bytes:
            return b""
        volume = _volume_of(chunk.file_id)
        missing = 0

        async def attempt(deadline: Deadline) -> bytes:
            nonlocal missing
            servers = self._troubled.in_order(await self._servers_of(volume, deadline))
            errors: list[StorageError] = []

            def read_at(server: VolumeLocation) -> Task[bytes]:
                return create_task(self._read_at(server, chunk, start, size_bytes, deadline))

            data = await self._first_of(servers, read_at, errors)
            if data is not None:
                return data
            # The volume may have moved to another server.
            self._servers.pop(volume, None)
            if all(isinstance(error, ChunkMissingError) for error in errors):
                missing += 1
                # After a volume has moved, the masters need a moment to report its new server.
                if missing == MISSING_TIMES:
                    raise errors[0]
            raise PassingError("; ".join(str(error) for error in errors))

        data = await self._calls.until_done("read", attempt, deadline_s)
        count(self._metrics.filer_bytes, "read", size_bytes)
        return data

    async def _first_of(
        self,
        servers: Sequence[VolumeLocation],
        read_at: Callable[[VolumeLocation], Task[bytes]],
        errors: list[StorageError],
    ) -> bytes | None:
        """Return the bytes from the first server that succeeds; None if all fail, with `errors`.

        The next server is asked if a server fails or does not answer in time.
        """
        waiting = deque(servers)
        running: dict[Task[bytes], VolumeLocation] = {}
        try:
            while waiting or running:
                if waiting:
                    server = waiting.popleft()
                    running[read_at(server)] = server
                done = await self._some(running, self._clock.monotonic_s() + SILENT_S)
                if not done:
                    for silent in running.values():
                        self._troubled.note_trouble(
                            silent.url, READING, f"no answer for {SILENT_S} s"
                        )
                    if waiting:
                        continue
                    done = await self._some(running, None)
                for task in done:
                    del running[task]
                    try:
                        return task.result()
                    except (PassingError, ChunkMissingError) as error:
                        errors.append(error)
            return None
        finally:
            for task in running:
                task.cancel()

    async def _some(
        self, running: Collection[Task[bytes]], until_s: float | None
    ) -> list[Task[bytes]]:
        """Wait until the first of some tasks is done, or a time; return the tasks that are done."""
        told: Future[None] = get_running_loop().create_future()

        def tell() -> None:
            if not told.done():
                told.set_result(None)

        timer = None if until_s is None else self._clock.call_at(until_s, tell)
        try:
            waiting: list[Future[Any]] = [*running, told]
            await wait(waiting, return_when=FIRST_COMPLETED)
        finally:
            tell()
            if timer is not None:
                timer.cancel()
        return [task for task in running if task.done()]

    async def _read_at(
        self, server: VolumeLocation, chunk: Chunk, start: int, size_bytes: int, deadline: Deadline
    ) -> bytes:
        if chunk.cipher_key:
            # An encrypted chunk can only be decrypted as a whole.
            whole = await self._decrypted_at(server, chunk, deadline)
            data = whole[start : start + size_bytes]
        else:
            data = await self._get(server, chunk.file_id, start, size_bytes, deadline)
        if len(data) != size_bytes:
            url = self._url(server, chunk.file_id)
            raise ChunkMissingError(f"{url} is too short for {size_bytes} bytes from {start}")
        return data

    async def _decrypted_at(
        self, server: VolumeLocation, chunk: Chunk, deadline: Deadline
    ) -> bytes:
        """Return the whole decrypted content of an encrypted chunk."""
        # A compressed chunk is shorter than this.
        most_bytes = chunk.size_bytes + ADDED_BYTES
        data = await self._get(server, chunk.file_id, 0, most_bytes, deadline)
        work = partial(
            decrypt,
            chunk.cipher_key,
            data,
            chunk.size_bytes,
            is_compressed=chunk.is_compressed,
        )
        try:
            return await _off_loop(work, chunk.size_bytes)
        except ChunkMissingError as error:
            raise ChunkMissingError(f"{self._url(server, chunk.file_id)}: {error}") from error

    def _url(self, server: VolumeLocation, file_id: str) -> str:
        return f"{self._scheme}://{server.url}/{file_id}"

    async def _get(
        self, server: VolumeLocation, file_id: str, start: int, size_bytes: int, deadline: Deadline
    ) -> bytes:
        """Return a range of the bytes stored under a file id; fewer bytes at the end."""
        url = self._url(server, file_id)
        token = self._options.security.read_token(file_id, self._clock.wall_ms() // 1000)
        headers = {"Range": f"bytes={start}-{start + size_bytes - 1}"} | _authorization(token)
        try:
            async with self._http.get(
                url, headers=headers, timeout=ClientTimeout(total=deadline.one_try_s())
            ) as answer:
                status = answer.status
                data = await answer.read()
        except _TROUBLE as error:
            self._troubled.note_trouble(server.url, READING, repr(error))
            raise PassingError(f"{url}: {error!r}") from error
        self._troubled.note_answer(server.url, READING)
        if status == 404:
            volume = _volume_of(file_id)
            raise ChunkMissingError(
                f"{url} is not there (404): if its machine has lost power, stop the volume server "
                f"and run `weed fix -volumeId={volume}` on its directory, which finds the chunks "
                "that the index of the volume misses"
            )
        if status in {401, 403}:
            raise FilerError(
                f"{url} answers {status}: volume servers ask for a token; "
                "give the security.toml that has their jwt.signing.read"
            )
        if status == 200:
            # A proxy may have ignored the Range header.
            data = data[start : start + size_bytes]
        elif status == 416:
            data = b""
        elif status != 206:
            raise PassingError(f"{url} answers {status}")
        return data

    async def _servers_of(self, volume: str, deadline: Deadline) -> tuple[VolumeLocation, ...]:
        servers = self._servers.get(volume)
        if servers is None:
            with statuses(f"LookupVolume {volume}", is_change=False):
                answer = await self._filer.LookupVolume(
                    filer_pb2.LookupVolumeRequest(volume_ids=[volume]), timeout=deadline.left_s()
                )
            servers = tuple(
                VolumeLocation(one.url, one.grpc_port)
                for one in answer.locations_map[volume].locations
            )
            if not servers:
                raise PassingError(f"no volume server has volume {volume}")
            self._servers[volume] = servers
        return servers

    # --- removing ---

    async def delete(self, chunks: Iterable[Chunk]) -> None:
        """Remove chunks from every server that has their volumes."""
        waiting: dict[str, list[str]] = {}
        for chunk in chunks:
            waiting.setdefault(_volume_of(chunk.file_id), []).append(chunk.file_id)

        async def attempt(deadline: Deadline) -> None:
            for volume in list(waiting):
                for server in await self._servers_of(volume, deadline):
                    try:
                        await self._delete_at(server, waiting[volume], deadline)
                    except PassingError:
                        self._servers.pop(volume, None)
                        raise
                del waiting[volume]

        await self._calls.until_done("delete_chunks", attempt, None)

    async def _delete_at(
        self, server: VolumeLocation, file_ids: list[str], deadline: Deadline
    ) -> None:
        target = server.grpc_target
        if target not in self._channels:
            self._channels[target] = self._connect(target)
        stub = volume_server_pb2_grpc.VolumeServerStub(self._channels[target])
        with statuses(f"BatchDelete at {target}", is_change=False):
            answer = await stub.BatchDelete(
                volume_server_pb2.BatchDeleteRequest(file_ids=file_ids),
                timeout=deadline.one_try_s(),
            )
        for result in answer.results:
            if result.status >= 300 and result.status != 404:
                raise PassingError(f"BatchDelete of {result.file_id} at {target}: {result.error}")


async def _off_loop(work: Callable[[], _ResultT], size_bytes: int) -> _ResultT:
    """Run computing work, in a thread unless it is brief."""
    return work() if size_bytes <= _ON_LOOP_BYTES else await to_thread(work)


def _volume_of(file_id: str) -> str:
    return file_id.partition(",")[0]


def numbered(first: str, count: int) -> Iterator[tuple[str, str]]:
    """Yield the ids of an assignment, each with its form for the upload.

    SeaweedFS accepts `FIRST_N` as the Nth id after the first, and its tokens are valid only for
    this form. But if an entry had such an id, SeaweedFS could not remove the chunk with the file,
    and `volume.fsck` would stop. So entries need the full id as SeaweedFS writes it (in whole
    bytes, without leading zeros).
    """
    volume, _, rest = first.partition(",")
    key, cookie = int(rest[:-_COOKIE_DIGITS], 16), rest[-_COOKIE_DIGITS:]
    yield first, first
    for number in range(1, count):
        digits = f"{key + number:x}"
        padding = "0" * (len(digits) % 2)
        yield f"{volume},{padding}{digits}{cookie}", f"{first}_{number}"


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


class _UploadBody(Payload):
    """The body of an upload; only small buffers of it are copied."""

    _default_content_type = "application/octet-stream"

    def __init__(self, pieces: Sequence[Buffer], size_bytes: int) -> None:
        super().__init__(pieces)
        self._size = size_bytes

    async def write(self, writer: AbstractStreamWriter) -> None:
        for run in runs(self._value):
            await writer.write(run)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("an upload is bytes")


def runs(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield the same bytes in fewer buffers, by joining small ones."""
    gathered: list[Buffer] = []
    gathered_bytes = 0
    for piece in pieces:
        if gathered and gathered_bytes + len(piece) > JOINED_BYTES:
            yield b"".join(gathered) if len(gathered) > 1 else gathered[0]
            gathered, gathered_bytes = [], 0
        gathered.append(piece)
        gathered_bytes += len(piece)
    if gathered:
        yield b"".join(gathered) if len(gathered) > 1 else gathered[0]
