"""A filer over gRPC, and the volume servers behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError
from grpc import ssl_channel_credentials
from grpc.aio import AioRpcError, insecure_channel, secure_channel

from kgw.backend.seaweedmq.channel.calls import Calls, statuses
from kgw.backend.seaweedmq.channel.cipher import check_can_encrypt
from kgw.backend.seaweedmq.channel.encoding import UpdateEncoder, entry_of, message_of
from kgw.backend.seaweedmq.channel.options import grpc_target
from kgw.backend.seaweedmq.channel.statuses import (
    PassingError,
    creation_error,
    deletion_error,
    trouble_at_start,
)
from kgw.backend.seaweedmq.channel.topology import expiries_of, volume_servers_of
from kgw.backend.seaweedmq.channel.volumes import Volumes
from kgw.backend.seaweedmq.filer import EntryMissingError, Filer, FilerError
from kgw.backend.seaweedmq.path_rules import (
    MOUNTS_DIRECTORY,
    MOUNTS_NAME,
    RULES_DIRECTORY,
    RULES_NAME,
    PathRule,
    read_rules,
)
from kgw.backend.seaweedmq.protos import (
    filer_pb2,
    filer_pb2_grpc,
    master_pb2,
    master_pb2_grpc,
    remote_pb2,
)
from kgw.errors import CorruptionError, DataDirectoryError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from grpc.aio import Channel

    from kgw.backend.seaweedmq.channel.calls import Deadline
    from kgw.backend.seaweedmq.channel.options import ChannelOptions
    from kgw.backend.seaweedmq.channel.topology import VolumeServer
    from kgw.backend.seaweedmq.filer import Chunk, Expiry, FilerEntry
    from kgw.clock import Clock
    from kgw.metrics import Metrics
    from kgw.problems import Problem
    from kgw.types import Buffer

_log = EventLogger(__name__)

ResultT = TypeVar("ResultT")

_PAGE = 1024
"""Number of entries that a request lists; an eighth of that if their chunks are listed, too."""

_REFRESH_S = 3.0
"""The time limit of a request for the filer's configuration."""

_GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Disable gRPC's retries: kgw itself decides which calls are repeated, and never repeats a
    # change.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # A server allows a ping every 20 s. Without pings, calls on a connection that a firewall has
    # dropped would wait for TCP's time-out.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC's default pause grows to two minutes, although a restarted filer is running much earlier.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # This option is also the time-out for connecting, which must be long enough for a busy or
    # distant filer.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class FilerChannel(Filer):
    """The filer at one address. Open it in the event loop in which it is used."""

    def __init__(self, options: ChannelOptions, clock: Clock, metrics: Metrics) -> None:
        """Raises ValueError if the address is malformed."""
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._calls = Calls(clock, metrics, options.timeout_s)
        self._target = grpc_target(options.address)
        self._updates = UpdateEncoder()
        self._channel: Channel
        self._volumes: Volumes | None = None
        self._masters: dict[str, Channel] = {}
        """Connections to the masters that were asked, by address."""
        self._master = ""
        """The address of the master that answered last."""
        self._stub: filer_pb2_grpc.SeaweedFilerStub
        self.configuration = filer_pb2.GetFilerConfigurationResponse()
        """The filer's last known configuration, with its masters and defaults."""

    async def open(self) -> None:
        self._channel = self.connect(self._target)
        self._stub = filer_pb2_grpc.SeaweedFilerStub(self._channel)
        try:
            self.configuration = await self._stub.GetFilerConfiguration(
                filer_pb2.GetFilerConfigurationRequest(), timeout=self._options.timeout_s
            )
        except AioRpcError as error:
            await self._channel.close()
            raise DataDirectoryError(
                trouble_at_start(self._options.address, self._target, error.code(), error.details())
            ) from error
        if self.configuration.cipher:
            try:
                check_can_encrypt()
            except DataDirectoryError:
                await self._channel.close()
                raise
        self._volumes = Volumes(
            self._options, self._clock, self._metrics, self._calls, self._stub, self.connect
        )
        self._calls.is_open = True
        self.version = self.configuration.version
        self._take_configuration()
        _log.info("filer", address=self._options.address, version=self.configuration.version)

    @property
    def encrypts(self) -> bool:
        return self._volumes is not None and self._volumes.encrypts

    @property
    def problems(self) -> Sequence[Problem]:
        return () if self._volumes is None else self._volumes.problems

    async def look(self) -> None:
        if self._volumes is not None:
            await self._volumes.look()

    def _take_configuration(self) -> None:
        """Apply the filer's configuration to the chunks that are stored from now on."""
        volumes, encrypts = self._volumes, self.configuration.cipher
        if volumes is not None and volumes.encrypts != encrypts:
            volumes.encrypts = encrypts
            _log.info("chunks are encrypted" if encrypts else "chunks are not encrypted any more")

    def connect(self, target: str) -> Channel:
        """Return a connection to another server of the same SeaweedFS, for the caller to close."""
        security = self._options.security
        if security.grpc_ca is None:
            return insecure_channel(target, options=_GRPC_OPTIONS)
        credentials = ssl_channel_credentials(
            security.grpc_ca, security.grpc_key, security.grpc_certificate
        )
        name = self._options.tls_name
        options = [("grpc.ssl_target_name_override", name)] if name else []
        return secure_channel(target, credentials, options=[*_GRPC_OPTIONS, *options])

    async def aclose(self) -> None:
        volumes, self._volumes = self._volumes, None
        if volumes is not None:
            self._calls.is_open = False
            await volumes.aclose()
            await self._calls.finish()
            for master in self._masters.values():
                await master.close()
            self._masters.clear()
            await self._channel.close()

    async def filers(self, *, deadline_s: float | None = None) -> list[str]:
        return await self.nodes("filer", deadline_s=deadline_s)

    async def refresh(self) -> None:
        async def attempt(deadline: Deadline) -> filer_pb2.GetFilerConfigurationResponse:
            with statuses("GetFilerConfiguration", is_change=False):
                answer: filer_pb2.GetFilerConfigurationResponse = (
                    await self._stub.GetFilerConfiguration(
                        filer_pb2.GetFilerConfigurationRequest(), timeout=deadline.left_s()
                    )
                )
                return answer

        deadline_s = self._clock.monotonic_s() + _REFRESH_S
        self.configuration = await self._calls.until_done("configuration", attempt, deadline_s)
        self._take_configuration()
        if self.configuration.cipher:
            check_can_encrypt()

    def forget_places(self) -> None:
        if self._volumes is not None:
            self._volumes.forget_ids()

    async def rules(self) -> tuple[PathRule, ...]:
        rules = read_rules(await self._small_file(RULES_DIRECTORY, RULES_NAME))
        mounted = await self._small_file(MOUNTS_DIRECTORY, MOUNTS_NAME)
        try:
            mapping = remote_pb2.RemoteStorageMapping.FromString(mounted)
        except DecodeError as error:
            raise CorruptionError(
                f"{MOUNTS_DIRECTORY}/{MOUNTS_NAME} cannot be understood: {error}"
            ) from error
        # A mount applies to the directory and everything below it.
        mounts = (PathRule(f"{one.rstrip('/')}/", is_remote=True) for one in mapping.mappings)
        return (*rules, *mounts)

    async def _small_file(self, directory: str, name: str) -> bytes:
        """Return the content of a file, b"" if there is no such file."""
        deadline_s = self._clock.monotonic_s() + _REFRESH_S
        entry = await self.look_up(directory, name, deadline_s=deadline_s)
        if entry is None:
            return b""
        return entry.content or b"".join(
            [
                await self.read_chunk(one, 0, one.size_bytes, deadline_s=deadline_s)
                for one in entry.chunks
            ]
        )

    async def nodes(self, kind: str, *, deadline_s: float | None = None) -> list[str]:
        """Return the addresses of all servers of a kind (`filer`, `broker`) that the masters know.

        Raises FilerError.
        """
        group = self.configuration.filer_group
        filers, wanted = (
            master_pb2.ListClusterNodesRequest(client_type=one, filer_group=group)
            for one in ("filer", kind)
        )

        async def ask(master: master_pb2_grpc.SeaweedStub, deadline: Deadline) -> list[str]:
            answer = await master.ListClusterNodes(filers, timeout=deadline.one_try_s())
            if not answer.cluster_nodes:
                # Each master answers from its own list. All servers, also this filer, are connected
                # to the leading master.
                raise PassingError("a master knows of no filers: it does not lead the others")
            if kind != "filer":
                answer = await master.ListClusterNodes(wanted, timeout=deadline.one_try_s())
            return [node.address for node in answer.cluster_nodes]

        return await self._ask_masters("list_nodes", "ListClusterNodes", ask, deadline_s)

    async def volume_servers(self) -> list[VolumeServer]:
        """Return the volume servers that are connected to the masters. Raises FilerError."""
        request = master_pb2.VolumeListRequest()
        return volume_servers_of(
            await self._ask_masters(
                "list_volumes",
                "VolumeList",
                lambda master, deadline: master.VolumeList(request, timeout=deadline.one_try_s()),
            )
        )

    async def expiries(self) -> dict[int, Expiry | None]:
        return expiries_of(await self.volume_servers())

    async def default_replication(self) -> str:
        """Return the replication of requests that name none. Raises FilerError."""
        if self.configuration.replication:
            return self.configuration.replication
        request = master_pb2.GetMasterConfigurationRequest()
        answer = await self._ask_masters(
            "master_configuration",
            "GetMasterConfiguration",
            lambda master, deadline: master.GetMasterConfiguration(
                request, timeout=deadline.one_try_s()
            ),
        )
        # A master that was started without the option returns "": one copy.
        return answer.default_replication or "000"

    async def _ask_masters(
        self,
        call: str,
        method: str,
        ask: Callable[[master_pb2_grpc.SeaweedStub, Deadline], Awaitable[ResultT]],
        deadline_s: float | None = None,
    ) -> ResultT:
        """Return the answer of the first master that gives one. Raises FilerError."""
        # Ask the master that answered last first, because it leads the others.
        masters = sorted(self.configuration.masters, key=lambda one: one != self._master)

        async def attempt(deadline: Deadline) -> ResultT:
            masters.append(masters.pop(0))
            master = masters[-1]
            if master not in self._masters:
                try:
                    target = grpc_target(master)
                except ValueError as error:
                    problem = f"the filer names a master that cannot be: {error}"
                    raise PassingError(problem) from error
                self._masters[master] = self.connect(target)
            with statuses(f"{method} at {master}", is_change=False):
                answer = await ask(master_pb2_grpc.SeaweedStub(self._masters[master]), deadline)
            self._master = master
            return answer

        return await self._calls.until_done(call, attempt, deadline_s)

    # --- entries ---

    async def look_up(
        self, directory: str, name: str, *, deadline_s: float | None = None
    ) -> FilerEntry | None:
        async def attempt(deadline: Deadline) -> FilerEntry | None:
            try:
                with statuses(f"LookupDirectoryEntry {directory}/{name}", is_change=False):
                    answer = await self._stub.LookupDirectoryEntry(
                        filer_pb2.LookupDirectoryEntryRequest(directory=directory, name=name),
                        timeout=deadline.left_s(),
                    )
            except EntryMissingError:
                return None
            return entry_of(directory, answer.entry) if answer.HasField("entry") else None

        return await self._calls.until_done("look_up", attempt, deadline_s)

    async def list_entries(
        self, directory: str, *, prefix: str = "", after: str = "", chunks: bool = True
    ) -> AsyncIterator[FilerEntry]:
        limit = _PAGE // 8 if chunks else _PAGE

        async def attempt(deadline: Deadline) -> list[FilerEntry]:
            with statuses(f"ListEntries {directory}", is_change=False):
                answers = self._stub.ListEntries(
                    filer_pb2.ListEntriesRequest(
                        directory=directory,
                        prefix=prefix,
                        startFromFileName=after,
                        limit=limit,
                        omit_chunks=not chunks,
                    ),
                    timeout=deadline.left_s(),
                )
                return [entry_of(directory, answer.entry) async for answer in answers]

        # A filer may return fewer entries than requested: only an empty page is the end.
        while page := await self._calls.until_done("list", attempt, None):
            for entry in page:
                yield entry
            after = page[-1].name

    async def create(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        await self._create("create", directory, entry, deadline_s, is_exclusive=True)

    async def put(
        self, directory: str, entry: FilerEntry, *, deadline_s: float | None = None
    ) -> None:
        await self._create("put", directory, entry, deadline_s, is_exclusive=False)

    async def _create(
        self,
        call: str,
        directory: str,
        entry: FilerEntry,
        deadline_s: float | None,
        *,
        is_exclusive: bool,
    ) -> None:
        what = f"CreateEntry {directory}/{entry.name}"
        request = filer_pb2.CreateEntryRequest(
            directory=directory,
            entry=message_of(entry, self._clock.wall_ms() // 1000),
            o_excl=is_exclusive,
        )

        async def attempt(deadline: Deadline) -> None:
            with statuses(what, is_change=True):
                answer = await self._stub.CreateEntry(request, timeout=deadline.left_s())
            error = creation_error(what, answer)
            if error is not None:
                raise error

        await self._calls.once(call, attempt, deadline_s)

    async def update(
        self,
        directory: str,
        entry: FilerEntry,
        expected: Mapping[str, bytes],
        *,
        deadline_s: float | None = None,
    ) -> None:
        if not all(expected.values()):
            raise ValueError(f"an attribute that is absent would pass for an empty one: {expected}")
        request = self._updates.request(directory, entry, expected, self._clock.wall_ms() // 1000)

        async def attempt(deadline: Deadline) -> None:
            with statuses(f"UpdateEntry {directory}/{entry.name}", is_change=True):
                await self._stub.UpdateEntry(request, timeout=deadline.left_s())

        await self._calls.once("update", attempt, deadline_s)

    async def delete(
        self,
        directory: str,
        name: str,
        *,
        is_recursive: bool = False,
        deadline_s: float | None = None,
    ) -> None:
        what = f"DeleteEntry {directory}/{name}"

        async def attempt(deadline: Deadline) -> None:
            with statuses(what, is_change=True):
                answer = await self._stub.DeleteEntry(
                    filer_pb2.DeleteEntryRequest(
                        directory=directory,
                        name=name,
                        is_delete_data=True,
                        is_recursive=is_recursive,
                    ),
                    timeout=deadline.left_s(),
                )
            error = deletion_error(what, answer)
            if error is not None:
                raise error

        await self._calls.once("delete", attempt, deadline_s)

    # --- chunks ---

    async def upload(self, pieces: Sequence[Buffer], *, deadline_s: float | None = None) -> Chunk:
        return await self._open_volumes().upload(pieces, deadline_s)

    async def read_chunk(
        self, chunk: Chunk, start: int, size_bytes: int, *, deadline_s: float | None = None
    ) -> bytes:
        return await self._open_volumes().read(chunk, start, size_bytes, deadline_s)

    async def delete_chunks(self, chunks: Iterable[Chunk]) -> None:
        await self._open_volumes().delete(chunks)

    def _open_volumes(self) -> Volumes:
        if self._volumes is None:
            raise FilerError("the filer is not open")
        return self._volumes
