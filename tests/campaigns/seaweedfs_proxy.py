"""A bad network between a gateway and SeaweedFS, one that knows requests from answers.

TCP loses nothing and doubles nothing; what loses and doubles are connections that end, and clients
and proxies that try again. So this stands before the filer's gRPC and before the volume server's
HTTP, and does that to whole requests and answers. It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import grpc
from aiohttp import ClientError, ClientSession, ClientTimeout, web

from kgw.backend.seaweedmq.protos import filer_pb2
from tests import patience
from tests.campaigns.request_fates import Network, Trap
from tests.seaweedfs.cluster import GRPC_ABOVE, HOST, Setup, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from random import Random

    from tests.campaigns.request_fates import Fate
    from tests.seaweedfs.cluster import Cluster

_Answer: TypeAlias = bytes | grpc.aio.AioRpcError

_CALL_S: Final = 10.0
_STREAMED: Final = "/ListEntries"
_CHANGES: Final = ("/CreateEntry", "/UpdateEntry", "/DeleteEntry")


class SeaweedfsProxy:
    """A filer's address that has faults; chunks go through it, too."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        """Stand before the filer and the volume server of a cluster. It begins without faults."""
        self.network = Network(random)
        """What becomes of requests to the filer, but for lists, and of those for chunks."""
        self._trap: Trap[_Answer] | None = None
        self._cluster = cluster
        ports = free_ports(Setup())
        self._filer_port, self._volume_port = ports["filer"], ports["volume"]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def url(self, of_namespace: str) -> str:
        """Return a backend's address for a namespace of SeaweedMQ."""
        return f"seaweedmq://{HOST}:{self._filer_port}/{of_namespace}"

    def trap(self, fate: Fate, places: int) -> Trap[_Answer]:
        """Lay a trap for updates of so many partitions' log files, and return it."""
        self._trap = Trap(fate, places, lambda answer: isinstance(answer, bytes))
        return self._trap

    def untrap(self) -> None:
        """Let updates pass again."""
        self._trap = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(
            patience.seconds(_CALL_S)
        )
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(2 * _CALL_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience.seconds(_CALL_S))
        self._loop.close()

    async def _start(self) -> None:
        self._channel = grpc.aio.insecure_channel(
            self._cluster.grpc_address("filer"),
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.enable_retries", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 10_000),
                ("grpc.max_reconnect_backoff_ms", 500),
            ],
        )
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._server.add_insecure_port(f"{HOST}:{self._filer_port + GRPC_ABOVE}")
        await self._server.start()
        self._http = ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._chunk)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._volume_port).start()

    async def _end(self) -> None:
        await self._server.stop(None)
        await self._runner.cleanup()
        await self.network.arrived()
        await self._http.close()
        await self._channel.close()

    # --- the filer ---

    async def call(
        self,
        method: str,
        request: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],
    ) -> bytes:
        """Pass on a call with one answer."""
        pass_on = self._channel.unary_unary(method)

        async def send() -> _Answer:
            try:
                answer: bytes = await pass_on(request, timeout=patience.seconds(_CALL_S))
            except grpc.aio.AioRpcError as error:
                return error
            return answer

        trap, place = self._trap, ""
        if trap is not None and method.endswith("/UpdateEntry"):
            place = _place_of_records(request)
        if trap is not None and place:
            answer = await trap.deliver(place, send)
        else:
            what = method.rpartition("/")[2] if method.endswith(_CHANGES) else "look_up"
            answer = await self.network.deliver(what, send)
        if isinstance(answer, bytes):
            return self._with_volumes_here(method, answer)
        if answer is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy ended the connection")
        else:
            # "failed to connect" would say that nothing was sent, and some of it may have been.
            await context.abort(answer.code(), f"through the proxy: {answer.details()}")
        raise AssertionError("abort has raised")

    async def stream(
        self,
        method: str,
        request: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],
    ) -> AsyncIterator[bytes]:
        """Pass on a call with many answers, as it is."""
        try:
            async for answer in self._channel.unary_stream(method)(
                request, timeout=patience.seconds(_CALL_S)
            ):
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")

    def _with_volumes_here(self, method: str, answer: bytes) -> bytes:
        """Let the client take this for the volume server."""
        if method.endswith("/AssignVolume"):
            assigned = filer_pb2.AssignVolumeResponse.FromString(answer)
            if assigned.HasField("location"):
                self._put_here(assigned.location)
            answer = assigned.SerializeToString()
        if method.endswith("/LookupVolume"):
            found = filer_pb2.LookupVolumeResponse.FromString(answer)
            for locations in found.locations_map.values():
                for location in locations.locations:
                    self._put_here(location)
            answer = found.SerializeToString()
        return answer

    def _put_here(self, location: filer_pb2.Location) -> None:
        location.grpc_port = self._cluster.ports["volume"] + GRPC_ABOVE
        location.url = f"{HOST}:{self._volume_port}"

    # --- the volume server ---

    async def _chunk(self, request: web.Request) -> web.Response:
        body = await request.read()
        url = f"http://{self._cluster.address('volume')}{request.rel_url}"
        names = ("Authorization", "Range", "Accept-Encoding", "Content-Type")
        headers = {name: request.headers[name] for name in names if name in request.headers}

        async def send() -> web.Response | None:
            try:
                async with self._http.request(
                    request.method,
                    url,
                    data=body or None,
                    headers=headers,
                    timeout=ClientTimeout(total=_CALL_S),
                ) as answer:
                    return web.Response(
                        status=answer.status,
                        body=await answer.read(),
                        headers={
                            name: value
                            for name, value in answer.headers.items()
                            if name in {"Content-Type", "Content-Range", "Etag"}
                        },
                    )
            except (ClientError, OSError):
                return None

        answer = await self.network.deliver("chunk", send)
        if answer is None:
            # Ends the connection; the client sees no answer.
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=502)
        return answer


def _place_of_records(request: bytes) -> str:
    """Return the file of a partition that an update is of; "" for the state, a lease, a list."""
    update = filer_pb2.UpdateEntryRequest.FromString(request)
    entry = filer_pb2.Entry.FromString(update.entry)
    is_of_records = entry.chunks and not update.directory.startswith("/topics/.")
    return f"{update.directory}/{entry.name}" if is_of_records else ""


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc] # it has no types
    """Any method, with requests and answers as bytes."""

    def __init__(self, proxy: SeaweedfsProxy) -> None:
        self._proxy = proxy

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return what answers a method."""
        method = handler_call_details.method
        if method.endswith(_STREAMED):

            async def stream(
                request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
            ) -> AsyncIterator[bytes]:
                async for answer in self._proxy.stream(method, request, context):
                    yield answer

            return grpc.unary_stream_rpc_method_handler(stream)

        async def call(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            return await self._proxy.call(method, request, context)

        return grpc.unary_unary_rpc_method_handler(call)
