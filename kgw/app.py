"""The server process: backend, gateway, sockets and signals, from `kgw serve` to the exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kgw import logs
from kgw.backend.lease import LeaseStatus
from kgw.clock import SystemClock
from kgw.config.listeners import SecurityProtocol
from kgw.errors import DataDirectoryError, KgwError, ListenError, StorageError
from kgw.interrupts import TELLING, release
from kgw.problems import CONNECTIONS, DESCRIPTORS
from kgw.system import HAS_THREAD_CLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from socket import socket

    from kgw.admin.server import AdminServer
    from kgw.agent.server import AgentServer
    from kgw.clock import Clock
    from kgw.config import Config, Listener
    from kgw.gateway import Gateway
    from kgw.handlers.dispatch import Dispatcher
    from kgw.metrics import Metrics
    from kgw.otel.exporter import Exporter
    from kgw.problems import Reason
    from kgw.server.listener_security import ServedSecurity
    from kgw.server.loop_lag import LoopLag
    from kgw.server.server import Server
    from kgw.server.service_manager import Instructions, ServiceManager
    from kgw.server.slow_callbacks import SlowCallbacks

_log = logs.EventLogger(__name__)

IMPORTED_SOON = (
    "kgw.groups.coordinator",
    "kgw.handlers.api_versions",
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
"""Modules that the first producers and consumers need, but not a start; imported soon after it.

Modules for operators and transactions are imported at their first use: they would add 0.7 MB to the
memory of an idle server.
"""
IMPORTED_AFTER_S = 0.2

STARTS_WITHIN_S = 0.5
"""If a start takes longer than this, as it has much to recover, the admin API is opened before its
end."""

NAMES_LEADER_S = 1.0
"""How long a server that stops or is replaced still answers clients with the new leader's name."""

LEADER_KNOWN_S = 5.0
"""How long a server that was replaced waits for the new leader's name.

After that it stops serving without the name.
"""

RETRY_S = 1.0
"""The pause after a failure to stand by again."""

EXIT_SECOND_SIGNAL = 130
_TOLD_BY_A_SERVICE_MANAGER = ("NOTIFY_SOCKET", "LISTEN_FDS")


def run(config: Config, *, is_json: bool = False, takes_over: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in flight.

    If several servers share a backend, this server stands by until the leader has released its
    lease, and again after another server has taken over. With `takes_over` it leads at once.

    Raises DataDirectoryError if the data directory cannot be used, ListenError if a listener cannot
    be bound, ConfigError if `takes_over` is impossible with this backend or the variables of a
    service manager are invalid, StorageError if another system call fails.
    """
    logs.configure(config.log_format, config.log_level)
    logs.set_level("kgw.audit", config.audit_log_level)
    # Set before gRPC may be imported: its fork handlers made some of the processes that are started
    # for compaction end with SIGSEGV. No forked process of kgw calls gRPC.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    if config.has_https:
        # gRPC would write a line of its own for each handshake that a client does not end.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for warning in config.warnings:
        _log.warning(warning)
    clock = SystemClock()
    slow_callbacks = _slow_callbacks(config, clock)
    told = None
    if any(name in os.environ for name in _TOLD_BY_A_SERVICE_MANAGER):
        from kgw.server.service_manager import take_instructions

        told = take_instructions(os.environ, os.getpid())
    try:
        with asyncio.Runner(loop_factory=_loop_factory(slow_callbacks)) as runner:
            from kgw.metrics import Metrics

            process = ServerProcess(
                config,
                clock,
                slow_callbacks,
                told,
                Metrics(),
                is_json=is_json,
                takes_over=takes_over,
            )
            runner.run(process.serve())
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is not None:
            raise DataDirectoryError(f"{reason}: {error.filename}") from error
        raise StorageError(reason) from error


def _import_soon() -> None:
    """Import the modules that requests need, in a thread, so that the loop is not blocked."""
    asyncio.get_running_loop().run_in_executor(None, _import_modules)


def _import_modules() -> None:
    try:
        for name in IMPORTED_SOON:
            import_module(name)
    except OSError as error:
        # No file descriptors are left if very many clients connect during a start. Modules are then
        # imported at their first use.
        _log.warning("what requests need is not imported yet", error=error)
    except Exception as error:  # noqa: BLE001 - else only a request would reveal the error
        _log.error("what requests need cannot be imported", error=error)


def _slow_callbacks(config: Config, clock: Clock) -> SlowCallbacks | None:
    """Return the reporter of callbacks that block the loop; None if it is not configured."""
    if not config.debug_slow_callback_ms:
        return None
    from kgw.server.slow_callbacks import SlowCallbacks

    return SlowCallbacks(clock, config.debug_slow_callback_ms / 1000)


def _loop_factory(slow_callbacks: SlowCallbacks | None) -> Callable[[], asyncio.AbstractEventLoop]:
    loop: type[asyncio.AbstractEventLoop]
    try:
        from uvloop import Loop as loop  # noqa: N813 - two classes of one kind
    except ImportError:
        _log.warning("uvloop is not installed; serving with asyncio's own, slower loop")
        loop = asyncio.SelectorEventLoop
    if slow_callbacks is None:
        return loop
    from kgw.server.slow_callbacks import watched_loop

    return partial(watched_loop, loop, slow_callbacks)


def _security(config: Config, clock: Clock) -> ServedSecurity | None:
    """Return the security of the listeners; None if none has TLS or SASL. Raises ConfigError."""
    if set(config.protocols.values()) == {SecurityProtocol.PLAINTEXT} and not config.has_https:
        return None
    # Imported here: most servers have neither TLS nor logins.
    from kgw.server.listener_security import ServedSecurity

    return ServedSecurity(config, clock)


class ServerProcess:
    """One run of the server, from opening the backend to closing it."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        slow_callbacks: SlowCallbacks | None,
        told: Instructions | None,
        metrics: Metrics,
        *,
        is_json: bool,
        takes_over: bool,
    ) -> None:
        self._config = config
        self._clock = clock
        self._slow_callbacks = slow_callbacks
        self._told = told
        self._manager: ServiceManager | None = None
        self._security = _security(config, clock)
        self._given: Mapping[Listener, list[socket]] = {}
        """The sockets that the service manager has opened, by listener."""
        # Checked before the loop runs, and without pathlib, whose import would slow down a start.
        is_there = os.path.exists(config.data_dir)  # noqa: PTH110
        self._makes_directory = config.backend == "embedded" and not is_there
        self._bound: Sequence[Listener] = ()
        self._is_json = is_json
        self._takes_over = takes_over
        self._metrics = metrics
        self._stop = asyncio.Event()
        self._admin: AdminServer | None = None
        self._admin_listeners: list[Listener] = []
        self._agent: Listener | None = None
        self._exporter: Exporter | None = None
        self._server: Server | None = None
        self._dispatcher: Dispatcher | None = None
        self._loop_lag: LoopLag | None = None
        self._terms = 0
        """How often another server has taken over."""
        self._closing: set[asyncio.Task[None]] = set()
        """The tasks that close replaced gateways."""
        self._gateway: Gateway | None = None
        """The current gateway, which serves or stands by."""

    async def serve(self) -> None:
        """Open, serve until a signal comes, drain connections, close.

        If another server takes over, this one stands by again with the same listeners.
        """
        if self._told is not None:
            await self._take_sockets(self._told)
        if self._security is not None:
            await self._security.load_keys()
        if self._makes_directory:
            await self._check_addresses()
        self._catch_signals()
        try:
            while not await self._serve_once():
                self._terms += 1
        finally:
            if self._server is not None:
                await self._server.aclose()
            if self._security is not None:
                await self._security.aclose()
            if self._dispatcher is not None:
                await self._dispatcher.end_standby()
            if self._closing:
                await asyncio.wait(self._closing)
            if self._loop_lag is not None:
                self._loop_lag.close()
            if self._admin is not None:
                await self._admin.aclose()
            if self._exporter is not None:
                await self._exporter.aclose()
            if self._manager is not None:
                self._manager.close()
        _log.info("stopped")

    async def _make_gateway(self) -> Gateway:
        """Create the next gateway, which is not open yet."""
        from kgw.backend.registry import open_backend
        from kgw.gateway import Gateway

        backend = open_backend(self._config, self._clock, self._metrics)
        if self._takes_over:
            # Only once: two servers with this option would replace each other for ever.
            self._takes_over = False
            backend.lease.take_over()
        self._metrics.when_read.clear()
        self._gateway = gateway = Gateway(self._config, backend, self._clock, metrics=self._metrics)
        gateway.when_configured.append(self._configured)
        if self._config.otel_endpoint and self._exporter is None:
            from kgw.otel.exporter import Exporter

            self._exporter = Exporter(gateway)
            await asyncio.to_thread(self._exporter.read_headers)
        if self._told is not None and self._manager is None:
            self._manager = self._tell_manager(self._told)
        if self._admin is not None:
            self._admin.serve(gateway)
        if self._exporter is not None:
            self._exporter.serve(gateway)
        return gateway

    async def _serve_once(self) -> bool:
        """Stand by while another server leads, then lead. Return whether the process has to end.

        It need not end if another server has taken over.
        """
        gateway = await self._make_gateway()
        if self._server is not None:
            self._advertise(gateway)
            if all(task.done() for task in self._closing):
                # The previous gateway is closed, so it does not direct its clients to another
                # leader any more.
                await self._answer_with(gateway)
        try:
            if not await self._start(gateway):
                return True
            await self._serve(gateway)
        except KgwError as error:
            if self._stop.is_set():
                raise
            if not gateway.node.lost.is_set():
                if not self._terms:
                    raise
                _log.warning("this server cannot stand by: it tries again", why=str(error))
                await self._wait_for_stop(RETRY_S)
        return self._stop.is_set()

    async def _check_addresses(self) -> None:
        """Raise ListenError if another process already listens on an address of this server.

        So a start with a port in use creates no data directory.
        """
        from kgw.server.listeners import bind

        config = self._config
        listeners = [*config.bound_listeners, *config.bound_admin_listeners]
        if config.bound_agent_listener is not None:
            listeners.append(config.bound_agent_listener)
        for listener in listeners:
            if listener not in self._given:
                for one in await bind(listener, asyncio.get_running_loop()):
                    one.close()

    async def _start(self, gateway: Gateway) -> bool:
        """Open the gateway, and stand by as long as another server leads.

        Returns False if a signal came while the server stood by: then nothing is open. If a signal
        comes during the recovery, and that takes longer than a stop may take, the process ends.
        """
        starting = asyncio.ensure_future(gateway.start())
        standby = asyncio.ensure_future(gateway.node.stands_by.wait())
        await asyncio.wait(
            (starting, standby), timeout=STARTS_WITHIN_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not starting.done():
            # Probes get answers: the server is live, and not ready.
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
            await self._until_stop_or(starting, standby)
        if not standby.done():
            standby.cancel()
        elif not starting.done():
            try:
                bound = await self._listen(gateway)
            except BaseException:
                starting.cancel()
                await asyncio.wait((starting,))
                raise
            _log.info(
                "standing by: another server leads, or has not said that it does not",
                data=self._config.backend_url,
                leader=gateway.backend.lease.leader,
                listeners=",".join(map(str, bound)),
                admin=",".join(map(str, self._admin_listeners)),
            )
            if self._manager is not None:
                # For the service manager the start ends here, as a boot must not wait until this
                # standby server leads.
                self._manager.ready()
            await self._until_stop_or(starting)
        if self._stop.is_set() and not starting.done():
            # Only a standby server's start is cancelled. Once the server leads, the start has to
            # complete, and the gateway is closed in the usual way.
            if gateway.backend.lease.status is LeaseStatus.STANDBY:
                starting.cancel()
                await asyncio.wait((starting,))
                return False
            await self._end_with_start(starting)
        await starting
        return True

    async def _listen(self, gateway: Gateway) -> Sequence[Listener]:
        """Accept clients, unless that has begun. Return the listeners. Raises ListenError."""
        if self._server is None:
            from kgw.handlers.dispatch import Dispatcher
            from kgw.server.limits import limits_from
            from kgw.server.loop_lag import LoopLag
            from kgw.server.server import Server

            dispatcher = Dispatcher(gateway)
            if self._slow_callbacks is not None:
                from kgw.server.slow_callbacks import StackWatch, WatchedDispatcher

                dispatcher = WatchedDispatcher(gateway, self._slow_callbacks)
                if HAS_THREAD_CLOCKS:
                    StackWatch(self._slow_callbacks).start()
                gc.callbacks.append(self._slow_callbacks.collected)
            self._dispatcher = dispatcher
            server = Server(dispatcher, limits_from(gateway.config), self._clock, self._metrics)
            server.when_refused = partial(self._note_refused, CONNECTIONS)
            server.descriptors.when_out = partial(self._note_refused, DESCRIPTORS)
            asyncio.get_running_loop().set_exception_handler(server.descriptors.take_loop_error)
            self._bound = await server.open(
                self._config.bound_listeners,
                self._given,
                {} if self._security is None else self._security.listeners,
            )
            if self._security is not None:
                self._security.start(self._metrics)
            self._server = server
            self._loop_lag = LoopLag(self._clock, self._metrics)
            self._loop_lag.start()
        self._advertise(gateway)
        return self._bound

    def _advertise(self, gateway: Gateway) -> None:
        from kgw.server.announcement import advertised

        gateway.advertise(advertised(self._config, self._bound))

    def _note_refused(self, reason: Reason, text: str) -> None:
        if self._gateway is not None:
            self._gateway.refusals.note(reason, text)

    def _configured(self, config: Config) -> None:
        if self._server is not None:
            self._server.configure(config)

    async def _answer_with(self, gateway: Gateway) -> None:
        """Let `gateway` answer the connected clients, unless it already does."""
        if (
            self._dispatcher is not None
            and self._server is not None
            and self._dispatcher.gateway is not gateway
        ):
            await self._dispatcher.serve(gateway)
            for connection in self._server.connections:
                # The last poll refers to partitions of the previous gateway, which is closed.
                connection.session.fetch_decoder.forget()

    async def _end_with_start(self, starting: asyncio.Future[None]) -> None:
        """Wait for a start as long as a stop may take; if it takes longer, end the process.

        The start is not cancelled, as its threads may be in the middle of a recovery. Acknowledged
        records stay durable, as after a kill.
        """
        timeout_s = self._config.shutdown_timeout_ms / 1000
        done, _ = await asyncio.wait((starting,), timeout=timeout_s)
        if not done:
            _log.warning(
                "stopped in the middle of a start: the next one begins it anew",
                data=self._config.backend_url,
                timeout_s=timeout_s,
            )
            os._exit(0)

    async def _serve(self, gateway: Gateway) -> None:
        """Lead until a signal arrives or another server takes over."""
        from kgw.server.announcement import announce

        config = self._config
        clock = self._clock
        unclaimed = gateway.backend.health.unclaimed_partitions
        if unclaimed:
            # Warn before clients can create the topics again, as their names are taken then.
            _log.warning(
                "partitions on disk belong to no topic; `kgw log adopt` brings topics back",
                partitions=unclaimed,
                data=config.backend_url,
            )
        closes = True
        try:
            bound = await self._listen(gateway)
            await self._answer_with(gateway)
            if self._dispatcher is not None:
                await self._dispatcher.end_standby()
            await self._open_admin(gateway)
            agent = await self._open_agent(gateway)
            announce(gateway, bound, self._admin_listeners, self._agent, is_json=self._is_json)
            if self._manager is not None:
                self._manager.ready()
            if self._admin is not None:
                await self._admin.start()
            if self._exporter is not None:
                self._exporter.start()
            # The objects of the start stay until the end, so the garbage collector need not check
            # them.
            gc.freeze()
            # Waiting requests are many objects and no cycles. With the default threshold of 700,
            # collections took 15 % of the time of 1,000 long polls; with 2,000 they took a sixth of
            # the time of 100 connections. The middle generation is collected often, as its
            # collection blocks the loop: for 2 ms after 10,000 new objects in the cache, for 4 to
            # 9 ms after 30,000.
            gc.set_threshold(5_000, 1, 500)
            clock.call_at(clock.monotonic_s() + IMPORTED_AFTER_S, _import_soon)
            lost = asyncio.ensure_future(gateway.node.lost.wait())
            try:
                await self._until_stop_or(lost)
            finally:
                lost.cancel()
            if self._stop.is_set():
                await self._hand_over(gateway)
                await self._end(gateway, agent)
            else:
                closes = False
                self._leave(gateway, agent)
        finally:
            if closes:
                await gateway.aclose()

    async def _end(self, gateway: Gateway, agent: AgentServer | None) -> None:
        """Let clients finish their requests in flight, and close their connections."""
        gateway.begin_to_stop()
        ends_s = self._clock.monotonic_s() + self._config.shutdown_timeout_ms / 1000
        if self._manager is not None:
            self._manager.stopping()
        await asyncio.gather(self._drain(), self._drain_agent(agent))
        if self._admin is not None:
            await self._admin.aclose()
        if self._exporter is not None:
            await self._exporter.aclose(flush_s=ends_s - self._clock.monotonic_s())

    async def _open_admin(self, gateway: Gateway) -> None:
        """Bind the admin listeners, if there are any and they are not bound. Raises ListenError."""
        listeners = self._config.bound_admin_listeners
        if not listeners or self._admin is not None:
            return
        from kgw.admin.server import AdminServer

        admin = AdminServer(
            gateway,
            self._config.admin_connections_max,
            security=None if self._security is None else self._security.https,
        )
        self._admin_listeners = await admin.bind(listeners, self._given)
        self._admin = admin

    # --- the service manager ----------------------------------------------------------------------

    async def _take_sockets(self, told: Instructions) -> None:
        """Use the sockets that the service manager has opened. Raises ListenError."""
        if not told.socket_names:
            return
        from kgw.server.passed_sockets import adopt, assign

        config = self._config
        listeners = [*config.bound_listeners, *config.bound_admin_listeners]
        passed = adopt(told.socket_names)
        self._given = await assign(passed, listeners, asyncio.get_running_loop())

    def _tell_manager(self, told: Instructions) -> ServiceManager:
        from kgw.server.service_manager import ServiceManager
        from kgw.server.status_text import status_text

        def status() -> str:
            return "starting" if self._gateway is None else status_text(self._gateway, self._bound)

        manager = ServiceManager(told, self._clock, status)
        manager.starting()
        return manager

    # --- several servers of one backend -----------------------------------------------------------

    async def _hand_over(self, gateway: Gateway) -> None:
        """Let a standby server take over, and name the new leader to clients for a short time."""
        lease = gateway.backend.lease
        limit_s = self._config.handover_ms / 1000
        if not (lease.standbys and limit_s) or lease.status is not LeaseStatus.LEADING:
            return
        _log.info(
            "stopping: a server that stands by is to take over first",
            standbys=", ".join(map(str, lease.standbys)),
            timeout_s=limit_s,
        )
        gateway.node.hand_over()
        try:
            async with asyncio.timeout(limit_s):
                await gateway.node.replaced.wait()
        except TimeoutError:
            _log.warning("no server that stands by has taken over in time", timeout_s=limit_s)
            return
        _log.info("clients are sent to the server that has taken over", leader=lease.leader)
        # Active clients learn the new leader from an answer; the others find it when they need it.
        await asyncio.sleep(min(NAMES_LEADER_S, limit_s))

    def _leave(self, gateway: Gateway, agent: AgentServer | None) -> None:
        """Start a task that directs clients to the server that has taken over.

        Meanwhile this server can stand by.
        """
        _log.error(
            "another server has taken over: this one sends clients there, and stands by",
            data=self._config.backend_url,
            leader=gateway.backend.lease.leader,
        )
        # The gateway, which will be closed, is among the objects that were frozen.
        gc.unfreeze()
        self._closing = {task for task in self._closing if not task.done()}
        self._closing.add(asyncio.ensure_future(self._close(gateway, agent)))

    async def _close(self, gateway: Gateway, agent: AgentServer | None) -> None:
        """Name the new leader to clients for a short time, then close the gateway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADER_KNOWN_S):
                await gateway.node.replaced.wait()
                await self._wait_for_stop(NAMES_LEADER_S)
        gateway.node.leave()
        if self._gateway is not None:
            await self._answer_with(self._gateway)
        try:
            await self._drain_agent(agent)
            await gateway.aclose()
        except KgwError as error:
            _log.warning("what was served here was not left in order", why=str(error))
        if self._gateway is not None and not self._gateway.is_started:
            self._metrics.forget_gateway()

    async def _open_agent(self, gateway: Gateway) -> AgentServer | None:
        """Serve SeaweedMQ's agent API, if it is configured. Raises ListenError."""
        listener = self._config.bound_agent_listener
        if listener is None:
            return None
        try:
            # In a thread, as the import takes 0.2 s and the loop serves clients already.
            module = await asyncio.to_thread(import_module, "kgw.agent.server")
        except ImportError as error:
            from kgw.version import install_command

            raise ListenError(
                f"kgw.smq.agent.listener needs gRPC: {install_command('seaweedmq')}"
            ) from error
        agent: AgentServer = module.AgentServer(gateway, self._security)
        self._agent = await agent.start(listener)
        return agent

    async def _drain_agent(self, agent: AgentServer | None) -> None:
        if agent is not None:
            await agent.aclose(self._config.shutdown_timeout_ms / 1000)

    async def _drain(self) -> None:
        server = self._server
        if server is None:
            return
        timeout_s = self._config.shutdown_timeout_ms / 1000
        _log.info("stopping", connections=len(server.connections), timeout_s=timeout_s)
        cut = await server.drain(timeout_s)
        if cut:
            _log.warning("connections were cut: their time to finish was over", connections=cut)

    # --- signals ----------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._on_signal)
        # SIGHUP, when the terminal is closed, stops the server, as it stops Kafka's broker. Under
        # `nohup` it is ignored. A server without a terminal reads its certificates again, and the
        # key set of tokens.
        if self._security is not None and self._security.has_files and not os.isatty(0):
            loop.add_signal_handler(signal.SIGHUP, self._security.look_now)
        elif self._told is not None:
            # `systemctl reload` sends it, and must not end the server.
            loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._on_signal)
        for one in TELLING:
            loop.add_signal_handler(one, self._on_telling, one)
        release(TELLING)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            # A second signal ends the process at once. Acknowledged records are durable already.
            os._exit(EXIT_SECOND_SIGNAL)
        self._stop.set()

    def _on_reload(self) -> None:
        _log.info("nothing is read again: no listener has TLS or takes tokens")

    def _on_telling(self, number: signal.Signals) -> None:
        lease = None if self._gateway is None else self._gateway.backend.lease
        if number is not signal.SIGUSR1 or lease is None or not lease.is_shared:
            _log.warning("a signal that asks for nothing here", signal=number.name)
            return
        _log.info("told to take over", signal=number.name)
        if lease.status is LeaseStatus.LOST:
            # The gateway that is created next, to stand by, takes over.
            self._takes_over = True
        else:
            lease.take_over()

    async def _until_stop_or(self, *others: asyncio.Future[Any]) -> None:
        """Wait until the process has to stop, or one of the other futures is done."""
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((stop, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    async def _wait_for_stop(self, limit_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._stop.wait()
