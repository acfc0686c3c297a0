"""A SeaweedFS in process that does what a script says: gRPC and HTTP of a filer and its servers."""

from __future__ import annotations

from asyncio import Queue
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import grpc
from aiohttp import web

from kgw.backend.seaweedmq.channel.encoding import entry_of, message_of
from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
)
from kgw.backend.seaweedmq.protos import (
    filer_pb2,
    filer_pb2_grpc,
    master_pb2,
    master_pb2_grpc,
    volume_server_pb2,
    volume_server_pb2_grpc,
)
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from ssl import SSLContext

    from google.protobuf.message import Message

HOST = "127.0.0.1"


class HastyClock(ManualClock):
    """A clock on which every pause passes at once."""

    async def sleep_until(self, monotonic_s: float) -> None:
        self.advance(max(0.0, monotonic_s - self.monotonic_s()))


class Abort(Exception):  # noqa: N818 - an order to the server, no error of the test
    """The status to answer with, before or after the request was carried out."""

    def __init__(self, code: grpc.StatusCode, details: str, *, is_done: bool = False) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_done = is_done


class VolumeServer:
    """A volume server: what it holds, and what it answers in place of the truth."""

    def __init__(self, https: SSLContext | None = None) -> None:
        self._https = https
        self.chunks: dict[str, bytes] = {}
        self.requests: list[web.Request] = []
        self.answers: list[Callable[[web.Request], Awaitable[web.StreamResponse]]] = []
        """Used up one after the other, before anything is stored or read."""
        self.every_answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        """What is answered once `answers` are used up, in place of the truth."""
        self.url = ""
        self._runner: web.AppRunner

    async def start(self) -> None:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{file_id}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0, ssl_context=self._https)
        await site.start()
        self.url = f"{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.answers:
            return await self.answers.pop(0)(request)
        if self.every_answer is not None:
            return await self.every_answer(request)
        file_id = request.match_info["file_id"]
        if request.method == "PUT":
            file_id = _spelled_out(file_id)
            self.chunks[file_id] = await request.read()
            return web.json_response({"size": len(self.chunks[file_id])}, status=201)
        data = self.chunks.get(file_id)
        if data is None:
            return web.Response(status=404)
        wanted = request.http_range
        if wanted.start is None:
            return web.Response(body=data)
        if wanted.start >= len(data):
            return web.Response(status=416)
        return web.Response(status=206, body=data[wanted])


async def _give(answer: Abort | Message) -> Message:
    if isinstance(answer, Abort):
        raise answer
    return answer


def _spelled_out(file_id: str) -> str:
    """Return what `FIRST_N` is short for."""
    first, _, number = file_id.partition("_")
    volume, _, rest = first.partition(",")
    digits = f"{int(rest[:-8], 16) + int(number or 0):x}"
    return f"{volume},{'0' * (len(digits) % 2)}{digits}{rest[-8:]}"


class ScriptedFiler(
    filer_pb2_grpc.SeaweedFilerServicer,
    volume_server_pb2_grpc.VolumeServerServicer,
    master_pb2_grpc.SeaweedServicer,
):
    """Filer, master and the gRPC side of its volume servers, at one gRPC port."""

    def __init__(
        self,
        *,
        servers: int = 1,
        credentials: grpc.ServerCredentials | None = None,
        https: SSLContext | None = None,
    ) -> None:
        self.store = FilerStore()
        self.servers = [VolumeServer(https) for _ in range(servers)]
        self.locations: dict[str, list[VolumeServer]] = {}
        """Where each volume is, instead of on the server that its number says."""
        self.requests: list[Message] = []
        self.scripts: dict[type[Message], list[Callable[[], Awaitable[Message | None]]]] = {}
        self.every_answer: dict[type[Message], Abort | Message] = {}
        """What each request of a kind is answered once its script is used up."""
        self.removals: Queue[list[str]] = Queue()
        """The file ids that were removed together, once they are gone."""
        self.auth = ""
        self.is_synced = False
        """What a rule of the path says of uploads."""
        self.encrypts = False
        """Whether clients are to encrypt chunks."""
        self.filer_addresses = ["127.0.0.1:8888.18888"]
        self.port = 0
        self._credentials = credentials
        self._assigned = 0
        self._server: grpc.aio.Server

    @property
    def address(self) -> str:
        """What a channel is told."""
        return f"{HOST}:8888.{self.port}"

    def script(self, kind: type[Message], *answers: Abort | Message) -> None:
        """Answer the next requests of a kind so, in order."""
        for answer in answers:
            self.scripts.setdefault(kind, []).append(partial(_give, answer))

    def count(self, kind: type[Message]) -> int:
        """How many requests of a kind have come."""
        return sum(isinstance(request, kind) for request in self.requests)

    async def __aenter__(self) -> Self:
        for server in self.servers:
            await server.start()
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        filer_pb2_grpc.add_SeaweedFilerServicer_to_server(self, self._server)
        volume_server_pb2_grpc.add_VolumeServerServicer_to_server(self, self._server)
        master_pb2_grpc.add_SeaweedServicer_to_server(self, self._server)
        if self._credentials is None:
            self.port = self._server.add_insecure_port(f"{HOST}:0")
        else:
            self.port = self._server.add_secure_port(f"{HOST}:0", self._credentials)
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for server in self.servers:
            await server.stop()

    async def stop(self) -> None:
        """Break off every call and connection of gRPC."""
        await self._server.stop(None)

    async def _answer(self, request: Any, context: Any, do: Callable[[], Any]) -> Any:
        self.requests.append(request)
        kind = type(request)
        script = self.scripts.get(kind)
        try:
            if script or kind in self.every_answer:
                try:
                    give = script.pop(0) if script else partial(_give, self.every_answer[kind])
                    answer = await give()
                except Abort as abort:
                    if abort.is_done:
                        do()
                    await context.abort(abort.code, abort.details)
                if answer is not None:
                    return answer
            return do()
        except ConditionFailedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except EntryMissingError:
            details = "not found: filer: no entry is found in filer store"
            await context.abort(grpc.StatusCode.UNKNOWN, details)

    # Methods of gRPC have the names of the services.

    async def GetFilerConfiguration(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(
            request,
            context,
            lambda: filer_pb2.GetFilerConfigurationResponse(
                version="4.48",
                masters=["nowhere.invalid:1.2", self.address],
                filer_group="g",
                cipher=self.encrypts,
            ),
        )

    async def ListClusterNodes(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(
            request,
            context,
            lambda: master_pb2.ListClusterNodesResponse(
                cluster_nodes=[{"address": address} for address in self.filer_addresses]
            ),
        )

    async def LookupDirectoryEntry(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            entry = self.store.look_up(request.directory, request.name)
            if entry is None:
                raise EntryMissingError
            return filer_pb2.LookupDirectoryEntryResponse(entry=message_of(entry, 0))

        return await self._answer(request, context, do)

    async def ListEntries(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        names = await self._answer(
            request,
            context,
            lambda: self.store.list_names(
                request.directory, request.prefix, request.startFromFileName
            ),
        )
        for name in names[: request.limit]:
            entry = self.store.look_up(request.directory, name)
            assert entry is not None
            if request.omit_chunks:
                entry = entry._replace(chunks=())
            yield filer_pb2.ListEntriesResponse(entry=message_of(entry, 0))

    async def CreateEntry(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            entry = entry_of(request.directory, request.entry)
            try:
                if request.o_excl:
                    self.store.create(request.directory, entry)
                else:
                    self.store.put(request.directory, entry)
            except EntryExistsError as error:
                return filer_pb2.CreateEntryResponse(
                    error=str(error), error_code=filer_pb2.ENTRY_ALREADY_EXISTS
                )
            return filer_pb2.CreateEntryResponse()

        return await self._answer(request, context, do)

    async def UpdateEntry(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            entry = entry_of(request.directory, filer_pb2.Entry.FromString(request.entry))
            self.store.update(request.directory, entry, request.expected_extended)
            return filer_pb2.UpdateEntryResponse()

        return await self._answer(request, context, do)

    async def DeleteEntry(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            try:
                self.store.delete(
                    request.directory, request.name, is_recursive=request.is_recursive
                )
            except FilerError:
                return filer_pb2.DeleteEntryResponse(error="fail to delete non-empty folder: x")
            return filer_pb2.DeleteEntryResponse()

        return await self._answer(request, context, do)

    async def AssignVolume(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            # Each assignment is of the next server's volume.
            volume = self._assigned % len(self.servers)
            self._assigned += 1
            return filer_pb2.AssignVolumeResponse(
                file_id=f"{volume},{self._assigned:02x}0000c0ffee",
                count=request.count,
                auth=self.auth,
                fsync=self.is_synced,
                location={"url": self.servers[volume].url, "grpc_port": self.port},
            )

        return await self._answer(request, context, do)

    async def LookupVolume(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            answer = filer_pb2.LookupVolumeResponse()
            for volume in request.volume_ids:
                for server in self.locations.get(volume) or [self.servers[int(volume)]]:
                    answer.locations_map[volume].locations.add(url=server.url, grpc_port=self.port)
            return answer

        return await self._answer(request, context, do)

    async def BatchDelete(self, request: Any, context: Any) -> Any:  # noqa: N802
        def do() -> Message:
            answer = volume_server_pb2.BatchDeleteResponse()
            for file_id in request.file_ids:
                held = [server.chunks.pop(file_id, None) for server in self.servers]
                answer.results.add(file_id=file_id, status=202 if any(held) else 404)
            self.removals.put_nowait(list(request.file_ids))
            return answer

        return await self._answer(request, context, do)
