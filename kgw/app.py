"""The process: backend, gateway, sockets, signals; from `kgw serve` to its exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from kgw import logs
from kgw.backend.base import Leadership
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, KgwError, ListenError, ReplacedError, StorageError
from kgw.problems import CONNECTIONS
from kgw.system import HAS_THREAD_CLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket

    from kgw.admin.server import AdminServer
    from kgw.agent.server import AgentServer
    from kgw.backend.base import Backend
    from kgw.clock import Clock, Timer
    from kgw.config import Config, Listener
    from kgw.gateway import Gateway
    from kgw.otel.exporter import Exporter
    from kgw.server.offenders import Offenders
    from kgw.server.server import Server
    from kgw.server.service_manager import Instructions, ServiceManager

_log = logs.EventLogger(__name__)

IMPORTED_SOON = (
    "kgw.groups.coordinator",
    "kgw.handlers.api_versions",
    "kgw.handlers.create_topics",
    "kgw.handlers.fetch",
    "kgw.handlers.find_coordinator",
    "kgw.handlers.heartbeat",
    "kgw.handlers.init_producer_id",
    "kgw.handlers.join_group",
    "kgw.handlers.leave_group",
    "kgw.handlers.list_offsets",
    "kgw.handlers.metadata",
    "kgw.handlers.offset_commit",
    "kgw.handlers.offset_fetch",
    "kgw.handlers.produce",
    "kgw.handlers.sync_group",
    "kgw.protocol.decoding",
    "kgw.protocol.encoding",
)
"""What the first producers and consumers need and no start does: they should not wait for it.

The rest, for operators and transactions, is imported at its first use: an idle server has 0.7 MB
more with it.
"""
IMPORTED_AFTER_S = 0.2

STARTS_WITHIN_S = 0.5
"""A start that lasts longer has much to recover: the admin side does not wait for its end."""

EXIT_SECOND_SIGNAL = 130
_TOLD_BY_A_SERVICE_MANAGER = ("NOTIFY_SOCKET", "LISTEN_FDS")


def run(config: Config, *, is_json: bool = False, takes_over: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, and finish what is in flight.

    Where several servers share a backend it stands by until the one that leads has let go; with
    `takes_over` it leads at once.

    Raises DataDirectoryError when the data directory cannot be used, ListenError when a listener
    cannot be bound, ReplacedError when another server has taken over, ConfigError when nobody can
    be taken over from, or a service manager tells what cannot be understood, StorageError when
    something else of the system's fails.
    """
    logs.configure(config.log_format, config.log_level)
    # Before gRPC is imported, where it is: of processes that are started for compaction, some end
    # with SIGSEGV in what gRPC does in the child of a fork. Nobody forks and calls gRPC there.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    for warning in config.warnings:
        _log.warning(warning)
    clock = SystemClock()
    offenders = _offenders(config, clock)
    told = None
    if any(name in os.environ for name in _TOLD_BY_A_SERVICE_MANAGER):
        from kgw.server.service_manager import take_instructions

        told = take_instructions(os.environ, os.getpid())
    try:
        with asyncio.Runner(loop_factory=_loop_factory(offenders)) as runner:
            process = _Process(
                config, clock, offenders, told, is_json=is_json, takes_over=takes_over
            )
            runner.run(process.serve())
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is not None:
            raise DataDirectoryError(f"{reason}: {error.filename}") from error
        raise StorageError(reason) from error


def _import_soon() -> None:
    """Import what requests need, in a thread: it lets the loop have its turns meanwhile."""
    asyncio.get_running_loop().run_in_executor(None, _import_modules)


def _import_modules() -> None:
    try:
        for name in IMPORTED_SOON:
            import_module(name)
    except OSError as error:
        # For want of descriptors, when clients flood a start: each is imported at its first use.
        _log.warning("what requests need is not imported yet", error=error)
    except Exception as error:  # noqa: BLE001 - else it is not heard of until a request needs it
        _log.error("what requests need cannot be imported", error=error)


def _offenders(config: Config, clock: Clock) -> Offenders | None:
    """Return what reports who holds the loop, where that is asked for."""
    if not config.debug_slow_callback_ms:
        return None
    from kgw.server.offenders import Offenders

    return Offenders(clock, config.debug_slow_callback_ms / 1000)


def _loop_factory(offenders: Offenders | None) -> Callable[[], asyncio.AbstractEventLoop]:
    loop: type[asyncio.AbstractEventLoop]
    try:
        from uvloop import Loop as loop  # noqa: N813 - two classes of one kind
    except ImportError:
        _log.warning("uvloop is not installed; serving with asyncio's own, slower loop")
        loop = asyncio.SelectorEventLoop
    if offenders is None:
        return loop
    from kgw.server.offenders import watched_loop

    return partial(watched_loop, loop, offenders)


class _Process:
    """One run of the server, from opening the backend to closing it."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        offenders: Offenders | None,
        told: Instructions | None,
        *,
        is_json: bool,
        takes_over: bool,
    ) -> None:
        self._config = config
        self._clock = clock
        self._offenders = offenders
        self._told = told
        self._manager: ServiceManager | None = None
        self._given: Mapping[Listener, list[socket]] = {}
        """What the service manager has opened, by listener."""
        self._bound: list[Listener] = []
        self._is_json = is_json
        self._takes_over = takes_over
        self._stop = asyncio.Event()
        self._standby = asyncio.Event()
        self._handover: Timer | None = None
        self._admin: AdminServer | None = None
        self._admin_listeners: list[Listener] = []
        self._agent: Listener | None = None
        self._exporter: Exporter | None = None

    async def serve(self) -> None:
        """Open, serve until a signal comes or another server has taken over, drain, close.

        Raises ReplacedError for the latter.
        """
        from kgw.backend.registry import open_backend
        from kgw.gateway import Gateway
        from kgw.metrics import Metrics

        if self._told is not None:
            await self._take_sockets(self._told)
        metrics = Metrics()
        backend = open_backend(self._config, self._clock, metrics)
        if self._takes_over:
            backend.take_over()
        self._catch_signals(backend)
        gateway = Gateway(self._config, backend, self._clock, metrics=metrics)
        gateway.on_leadership = partial(self._leadership_changed, gateway)
        if self._config.otel_endpoint:
            from kgw.otel.exporter import Exporter

            self._exporter = Exporter(gateway)
            await asyncio.to_thread(self._exporter.read_headers)
        if self._told is not None:
            self._manager = self._tell_manager(self._told, gateway)
        try:
            if await self._start(gateway):
                await self._serve(gateway)
        except KgwError as error:
            if backend.leadership is Leadership.LOST:
                raise _replaced(backend) from error
            raise
        finally:
            if self._admin is not None:
                await self._admin.aclose()
            if self._exporter is not None:
                await self._exporter.aclose()
            if self._manager is not None:
                self._manager.close()
        if backend.leadership is Leadership.LOST:
            raise _replaced(backend)
        _log.info("stopped")

    async def _start(self, gateway: Gateway) -> bool:
        """Open what is kept, standing by for as long as another server leads.

        Returns False when a signal has come meanwhile: nothing is open then.
        """
        starting = asyncio.ensure_future(gateway.start())
        standby = asyncio.ensure_future(self._standby.wait())
        await asyncio.wait(
            (starting, standby), timeout=STARTS_WITHIN_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not starting.done():
            # Probes learn that it lives, and that it is not ready.
            await self._open_admin(gateway)
            if self._admin is not None:
                await self._admin.start()
            if self._exporter is not None:
                self._exporter.start()
            _log.debug(
                "still opening what is kept",
                data=self._config.backend_url,
                admin=",".join(map(str, self._admin_listeners)),
            )
            await asyncio.wait((starting, standby), return_when=asyncio.FIRST_COMPLETED)
        if not standby.done():
            standby.cancel()
        elif not starting.done():
            _log.info(
                "standing by: another server leads, or has not said that it does not",
                data=self._config.backend_url,
                leader=gateway.backend.leader,
                admin=",".join(map(str, self._admin_listeners)),
            )
            if self._given:
                _log.warning(
                    "clients wait at the service manager's sockets until this server leads: they "
                    "would look for another one if it did not listen there"
                )
            if self._manager is not None:
                # Whoever waits for the start of a stand-by, as the system's start may, has it here.
                self._manager.ready()
            stop = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            # Once it leads, a start is not broken off: what follows ends it in order.
            if not starting.done() and gateway.backend.leadership is Leadership.STANDBY:
                starting.cancel()
                await asyncio.wait((starting,))
                return False
        await starting
        return True

    async def _serve(self, gateway: Gateway) -> None:
        from kgw.handlers.dispatch import Dispatcher
        from kgw.server.announcement import advertised, announce
        from kgw.server.limits import limits_from
        from kgw.server.loop_lag import LoopLag
        from kgw.server.server import Server

        config = self._config
        clock = self._clock
        unclaimed = gateway.backend.health.unclaimed_partitions
        if unclaimed:
            # Before clients create the topics again: a name can be had once.
            _log.warning(
                "partitions on disk belong to no topic; `kgw log adopt` brings topics back",
                partitions=unclaimed,
                data=config.backend_url,
            )
        try:
            dispatcher = Dispatcher(gateway)
            if self._offenders is not None:
                from kgw.server.offenders import StackWatch, WatchedDispatcher

                dispatcher = WatchedDispatcher(gateway, self._offenders)
                if HAS_THREAD_CLOCKS:
                    StackWatch(self._offenders).start()
                gc.callbacks.append(self._offenders.collected)
            server = Server(dispatcher, limits_from(config), clock, gateway.metrics)
            server.when_refused = partial(gateway.refusals.note, CONNECTIONS)
            bound = self._bound = await server.open(config.bound_listeners, self._given)
            gateway.advertise(advertised(config, bound))
            await self._open_admin(gateway)
            agent = await self._open_agent(gateway)
            announce(gateway, bound, self._admin_listeners, self._agent, is_json=self._is_json)
            if self._manager is not None:
                self._manager.ready()
            if self._admin is not None:
                await self._admin.start()
            if self._exporter is not None:
                self._exporter.start()
            # What was made at start stays until the end: the collector need not look at it again.
            gc.freeze()
            # Requests that wait are many objects and no cycles: with the default of 700, the search
            # for cycles took 15 % of the time of 1,000 long polls.
            # With 2,000 the requests of 100 connections were searched with each wave, for a sixth
            # of their time. The middle generation often: a search in it holds the loop, 2 ms after
            # 10,000 objects that the cache has taken in, and 4 to 9 after 30,000.
            gc.set_threshold(5_000, 1, 500)
            clock.call_at(clock.monotonic_s() + IMPORTED_AFTER_S, _import_soon)
            loop_lag = LoopLag(clock, gateway.metrics)
            loop_lag.start()
            await self._stop.wait()
            gateway.begin_to_stop()
            ends_s = clock.monotonic_s() + config.shutdown_timeout_ms / 1000
            if self._manager is not None:
                self._manager.stopping()
            await asyncio.gather(self._drain(server), self._drain_agent(agent))
            if self._admin is not None:
                await self._admin.aclose()
            if self._exporter is not None:
                await self._exporter.aclose(flush_s=ends_s - clock.monotonic_s())
            loop_lag.close()
        finally:
            await gateway.aclose()

    async def _open_admin(self, gateway: Gateway) -> None:
        """Bind the admin listeners, if there are any, once. Raises ListenError."""
        listeners = self._config.bound_admin_listeners
        if not listeners or self._admin is not None:
            return
        from kgw.admin.server import AdminServer

        admin = AdminServer(gateway, self._config.admin_connections_max)
        self._admin_listeners = await admin.bind(listeners, self._given)
        self._admin = admin

    # --- the manager of services ------------------------------------------------------------------

    async def _take_sockets(self, told: Instructions) -> None:
        """Take over the sockets that it has opened. Raises ListenError."""
        if not told.socket_names:
            return
        from kgw.server.passed_sockets import adopt, assign

        config = self._config
        listeners = [*config.bound_listeners, *config.bound_admin_listeners]
        passed = adopt(told.socket_names)
        self._given = await assign(passed, listeners, asyncio.get_running_loop())

    def _tell_manager(self, told: Instructions, gateway: Gateway) -> ServiceManager:
        from kgw.server.service_manager import ServiceManager
        from kgw.server.standing import standing

        manager = ServiceManager(told, self._clock, lambda: standing(gateway, self._bound))
        manager.starting()
        return manager

    # --- several servers of one backend -----------------------------------------------------------

    def _leadership_changed(self, gateway: Gateway) -> None:
        backend = gateway.backend
        if backend.leadership is Leadership.STANDBY:
            self._standby.set()
        elif backend.leadership is Leadership.LOST:
            self._hand_over(backend)

    def _hand_over(self, backend: Backend) -> None:
        """Stop in a while, counted anew once clients can be told where to go."""
        handover_s = self._config.handover_ms / 1000
        if self._handover is None:
            _log.error(
                "another server has taken over: this one sends clients there, and stops",
                data=self._config.backend_url,
                leader=backend.leader,
                stops_in_s=handover_s,
            )
        else:
            self._handover.cancel()
            _log.info("clients are sent to the server that has taken over", leader=backend.leader)
        due_s = self._clock.monotonic_s() + handover_s
        self._handover = self._clock.call_at(due_s, self._stop.set)

    async def _open_agent(self, gateway: Gateway) -> AgentServer | None:
        """Serve the agent's API of SeaweedMQ, if that is asked for. Raises ListenError."""
        listener = self._config.bound_agent_listener
        if listener is None:
            return None
        try:
            # In a thread: it takes 0.2 s, and what runs already goes on meanwhile.
            module = await asyncio.to_thread(import_module, "kgw.agent.server")
        except ImportError as error:
            from kgw.version import install_command

            raise ListenError(
                f"kgw.smq.agent.listener needs gRPC: {install_command('seaweedmq')}"
            ) from error
        agent: AgentServer = module.AgentServer(gateway)
        self._agent = await agent.start(listener)
        return agent

    async def _drain_agent(self, agent: AgentServer | None) -> None:
        if agent is not None:
            await agent.aclose(self._config.shutdown_timeout_ms / 1000)

    async def _drain(self, server: Server) -> None:
        timeout_s = self._config.shutdown_timeout_ms / 1000
        _log.info("stopping", connections=len(server.connections), timeout_s=timeout_s)
        cut = await server.drain(timeout_s)
        if cut:
            _log.warning("connections were cut: their time to finish was over", connections=cut)

    # --- signals ----------------------------------------------------------------------------------

    def _catch_signals(self, backend: Backend) -> None:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._on_signal)
        if backend.is_shared:
            loop.add_signal_handler(signal.SIGUSR1, backend.take_over)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            # Whoever asks twice means now. What was acknowledged is durable already.
            os._exit(EXIT_SECOND_SIGNAL)
        self._stop.set()


def _replaced(backend: Backend) -> ReplacedError:
    leader = "another server" if backend.leader is None else str(backend.leader)
    return ReplacedError(f"{leader} has taken over; start this server again to have it stand by")
