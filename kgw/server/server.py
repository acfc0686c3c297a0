"""Accepts connections, enforces their deadlines in a sweep, and drains them at the end."""

from __future__ import annotations

from asyncio import Event, get_running_loop, sleep, timeout
from functools import partial
from heapq import nsmallest
from itertools import islice
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from kgw.errors import ListenError
from kgw.handlers.context import Session
from kgw.handlers.kept_polls import RepeatBudget
from kgw.logs import EventLogger, QuietLog
from kgw.metrics import count
from kgw.security.principal import ANONYMOUS
from kgw.server.connection import KafkaConnection
from kgw.server.descriptors import Descriptors, ignore
from kgw.server.limits import connection_limits
from kgw.server.listeners import bind, bound_listener, limit_sending, plain_host
from kgw.server.memory import RequestMemory

if TYPE_CHECKING:
    from asyncio import AbstractServer, Transport
    from collections.abc import Callable, Mapping, Sequence
    from socket import socket

    from kgw.clock import Clock, Timer
    from kgw.config import Config, Listener
    from kgw.metrics import Metrics
    from kgw.server.connection import Dispatch
    from kgw.server.handshakes import Handshakes
    from kgw.server.limits import Limits
    from kgw.server.listener_security import ListenerSecurity

_log = EventLogger(__name__)

# More than five requests of four batches of 16 KB, which a producer has in flight: a request that
# does not fit one read costs two more reads and a copy. Pages that no read has filled take no
# memory; a bytearray would fill all pages with zeros.
RECEIVE_BUFFER_BYTES = 512 << 10

SWEEP_INTERVAL_S = 1.0
# The time for queued requests before the loop polls other sockets. The last one may exceed it.
TURN_S = 0.005
# How many connections get their answers written before the loop polls other sockets: about 3 ms.
# Also the limit for checks of deadlines, which take less time.
CONNECTIONS_PER_TURN = 256
# After this many bytes of large answers, which take about 4 ms to copy to the kernel, Fetch
# requests and late answers are queued.
SENT_BYTES_PER_TURN = 4 << 20
# Turns of the loop from an accepted socket to its connection.
_ACCEPT_TURNS = 2


_NONE: Mapping[Listener, list[socket]] = MappingProxyType({})
_PLAIN: Mapping[str, ListenerSecurity] = MappingProxyType({})


class Server:
    """The server: the state that all connections share."""

    def __init__(
        self,
        dispatcher: Dispatch,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        connections_per_turn: int = CONNECTIONS_PER_TURN,
    ) -> None:
        self.dispatcher = dispatcher
        self.limits = limits
        self.metrics = metrics
        self.memory = RequestMemory(limits.request_memory_bytes)
        self._repeat_budget = RepeatBudget()
        self.loop = get_running_loop()
        pages = mmap(-1, RECEIVE_BUFFER_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self.receive_buffer = memoryview(pages)
        self.sweep_interval_s = SWEEP_INTERVAL_S
        self.now_s = clock.monotonic_s()
        self.connections: set[KafkaConnection] = set()
        self._connections_per_turn = connections_per_turn
        self._clock = clock
        self._by_host: dict[str, int] = {}
        self._listening: list[tuple[AbstractServer, socket]] = []
        self._security = _PLAIN
        self._handshakes: Handshakes | None = None
        """None as long as no listener has TLS."""
        self._timer: Timer | None = None
        """The next step of the sweep: a timer, or the next turn of the loop in a running sweep."""
        self._due: list[KafkaConnection] = []
        self._quiet = QuietLog(_log)
        self.when_refused: Callable[[str], object] = ignore
        """Called for each refused connection, with the reason."""
        self.descriptors = Descriptors()
        self._answered: dict[KafkaConnection, None] = {}
        self._large_turns: dict[KafkaConnection, None] = {}
        self._fetch_turns: dict[KafkaConnection, None] = {}
        # The queue that was served last is at the end.
        self._turns = [self._large_turns, self._fetch_turns]
        # Connections whose `take_turn` was called, and which now wait for the end of another
        # connection's large answer.
        self._held: dict[KafkaConnection, None] = {}
        self._giving_turns = False
        self.has_sent_much = False
        self._bytes_sent_in_turn = 0
        self._empty = Event()
        self._empty.set()

    # --- listening --------------------------------------------------------------------------------

    async def open(
        self,
        listeners: Sequence[Listener],
        given: Mapping[Listener, list[socket]] = _NONE,
        security: Mapping[str, ListenerSecurity] = _PLAIN,
    ) -> list[Listener]:
        """Bind every listener, then accept at all of them. Return them with their real ports.

        Listeners with sockets in `given` use these. `security` is by listener name; a listener that
        it does not name is plain text without a login. Raises ListenError; then none is open.
        """
        self._security = security
        bound = []
        opened = []
        try:
            for listener in listeners:
                sockets = given.get(listener) or await bind(listener, self.loop)
                opened.append((listener, sockets))
                bound.append(bound_listener(listener, sockets))
        except ListenError:
            for _, sockets in opened:
                for one in sockets:
                    one.close()
            raise
        for listener, sockets in opened:
            limit_sending(sockets, self.limits.send_buffer_bytes)
            secured = security.get(listener.name)
            make = partial(KafkaConnection, self, listener.name)
            for one in sockets:
                if secured is not None and secured.tls is not None:
                    self._tls().listen(one, secured.tls, make, listener.name)
                    continue
                server = await self.loop.create_server(make, sock=one, backlog=self.limits.backlog)
                self._listening.append((server, one))
        self._arm_sweep()
        return bound

    def _tls(self) -> Handshakes:
        """Return the listeners with TLS, and their handshakes."""
        if self._handshakes is None:
            # Imported here: most servers have no listener with TLS.
            from kgw.server.handshakes import Handshakes

            self._handshakes = Handshakes(self, self.loop, self._clock)
        return self._handshakes

    async def _stop_listening(self) -> None:
        """Accept no further connections.

        Connections that were accepted before are open on return; handshakes that have not ended
        are given up.
        """
        if self._handshakes is not None:
            self._handshakes.stop_accepting()
            await self._handshakes.give_up()
        listening, self._listening = self._listening, []
        if not listening:
            return
        try:
            for _, bound in listening:
                self.loop.remove_reader(bound)
            # asyncio makes a connection a few turns of the loop after it has accepted the socket,
            # and loses the socket if the server is closed by then.
            for _ in range(_ACCEPT_TURNS):
                await sleep(0)
        finally:
            for server, _ in listening:
                server.close()
        # uvloop still accepts although its reader was removed, and makes the connection one loop
        # iteration after the listener is closed.
        await sleep(0)

    # --- connections ------------------------------------------------------------------------------

    def admit(self, connection: KafkaConnection, transport: Transport) -> Session | None:
        """Return the session of a new connection. None, counted and logged, refuses it.

        A connection with TLS is counted since its accept. It is also refused if the server has
        given its handshake up.
        """
        secured = self._security.get(connection.listener_name)
        if secured is not None and secured.tls is not None:
            accepted = self._tls().take(connection)
            if accepted is None:
                return None
            host, accepted_s = accepted
        else:
            peer = transport.get_extra_info("peername") or ("", 0)
            host, accepted_s = plain_host(str(peer[0])), self.now_s
            if not self.reserve(host):
                return None
        principal = ANONYMOUS
        if secured is not None:
            try:
                principal = secured.principal(transport, self._clock.wall_ms() / 1000)
            except ValueError as error:
                self.release(host)
                count(self.metrics.connections_dropped, "login")
                fields = {"client": host, "why": str(error)}
                self._quiet.warning("a certificate was refused", "certificate", self.now_s, fields)
                return None
        self.connections.add(connection)
        self._empty.clear()
        self.metrics.connections_accepted += 1
        self.metrics.connections_open += 1
        local = transport.get_extra_info("sockname") or ("", 0)
        return Session(
            client_host=host,
            listener_name=connection.listener_name,
            local_address=(plain_host(str(local[0])), int(local[1])),
            repeat_budget=self._repeat_budget,
            principal=principal,
            login=None if secured is None else secured.login(accepted_s, self.limits),
        )

    def reserve(self, host: str) -> bool:
        """Count a connection from this address. False: a limit refuses it, which is logged."""
        same_host = self._by_host.get(host, 0)
        handshakes = 0 if self._handshakes is None else len(self._handshakes)
        if len(self.connections) + handshakes >= self.limits.connections:
            limit = "connections"
        elif same_host >= self.limits.connections_per_ip:
            limit = "connections_per_ip"
        else:
            self._by_host[host] = same_host + 1
            return True
        count(self.metrics.connections_refused, limit)
        self.when_refused(f"connections were refused: {limit} is reached ({host})")
        fields = {"limit": limit, "client": host}
        self._quiet.warning("connection refused", limit, self.now_s, fields)
        return False

    def release(self, host: str) -> None:
        """Count a connection from this address no more."""
        if self._handshakes is not None:
            self._handshakes.ended_connections += 1
        left = self._by_host.get(host, 1) - 1
        if left:
            self._by_host[host] = left
        else:
            self._by_host.pop(host, None)

    def configure(self, config: Config) -> None:
        """Apply the settings that can change at run time."""
        self.limit_connections(*connection_limits(config))

    def limit_connections(self, connections: int, connections_per_ip: int) -> None:
        """Apply new limits of connections.

        If more connections are open than allowed in total, the least recently used ones are ended,
        as in Kafka. The limit for one address applies to new connections only.
        """
        self.limits = self.limits._replace(
            connections=connections, connections_per_ip=connections_per_ip
        )
        if len(self.connections) > connections:
            self._end_excess()

    def _end_excess(self) -> None:
        """End some of the connections above the limit, and others in later turns of the loop."""
        kept = [one for one in self.connections if one.state == "open"]
        excess = len(kept) - self.limits.connections
        for connection in nsmallest(
            min(excess, self._connections_per_turn), kept, key=attrgetter("active_s")
        ):
            detail = f"max.connections is {self.limits.connections} now"
            self.report_drop(connection, "limit", detail)
            self._guard(connection, connection.finish)
        if excess > self._connections_per_turn:
            self.loop.call_soon(self._end_excess)

    def forget(self, connection: KafkaConnection) -> None:
        self.connections.discard(connection)
        self._answered.pop(connection, None)
        for waiting in self._turns:
            waiting.pop(connection, None)
        self._held.pop(connection, None)
        self.metrics.connections_open -= 1
        self.release(connection.session.client_host)
        if not self.connections:
            self._empty.set()

    def answer_soon(self, connection: KafkaConnection, _: object = None) -> None:
        """Let a connection write its finished answers once in this turn of the loop.

        One flush of the disk answers many requests, several of them on the same connection.
        """
        if not self._answered:
            self.loop.call_soon(self._write_answers)
        self._answered[connection] = None

    def _write_answers(self) -> None:
        answered, self._answered = self._answered, {}
        left = iter(answered)
        for connection in islice(left, self._connections_per_turn):
            try:
                connection.write_answers()
            except Exception as error:  # noqa: BLE001 - as `_guard`, for each request
                self._end_for_bug(connection, error)
            if self.has_sent_much:
                break
        for connection in left:
            self.answer_soon(connection)

    def request_turn(self, connection: KafkaConnection, *, is_fetch: bool = False) -> None:
        """Queue a large request, a read with many requests, or a Fetch.

        Fetch and other requests are served alternately, for a short time in all (TURN_S) before the
        loop polls again.
        """
        (self._fetch_turns if is_fetch else self._large_turns)[connection] = None
        if not self._giving_turns:
            self._giving_turns = True
            self.loop.call_soon(self._give_turns)

    def _give_turns(self) -> None:
        enough_s = self._clock.monotonic_s() + TURN_S
        while True:
            waiting = self._turns[0] or self._turns[1]
            self._turns.reverse()
            if self._held and not self.dispatcher.has_large_work:
                waiting = self._held
            if not waiting:
                break
            connection = next(iter(waiting))
            # Removed first, as it may queue itself again at once for its next request.
            del waiting[connection]
            self._guard(connection, connection.take_turn)
            if self._clock.monotonic_s() >= enough_s:
                break
        if any(self._turns) or self._held:
            self.loop.call_soon(self._give_turns)
        else:
            self._giving_turns = False

    def note_sent(self, size_bytes: int) -> None:
        """Count a large answer that is sent before the loop polls other sockets."""
        if not self._bytes_sent_in_turn:
            self.loop.call_soon(self._forget_sent)
        self._bytes_sent_in_turn += size_bytes
        self.has_sent_much = self._bytes_sent_in_turn >= SENT_BYTES_PER_TURN

    def _forget_sent(self) -> None:
        self._bytes_sent_in_turn = 0
        self.has_sent_much = False

    def hold(self, connection: KafkaConnection) -> None:
        """Called only in `take_turn`. The awaited work keeps the loop running."""
        self._held[connection] = None

    def report_drop(
        self, connection: KafkaConnection, reason: str, detail: str, kind: str = ""
    ) -> None:
        count(self.metrics.connections_dropped, reason)
        session = connection.session
        if reason == "idle":
            _log.debug("idle connection closed", client=session.client_host)
            return
        fields = {
            "reason": reason,
            "detail": detail,
            "client": session.client_host,
            "client_id": session.client_id,
        }
        self._quiet.warning("connection closed", kind or reason, self.now_s, fields)

    def report_handshake(self, host: str, listener_name: str, detail: str) -> None:
        """Count and log a TLS handshake that failed, and why."""
        count(self.metrics.connections_dropped, "tls")
        fields = {"reason": "tls", "detail": detail, "client": host, "listener": listener_name}
        self._quiet.warning("connection closed", f"tls {detail}", self.now_s, fields)

    def report_no_accept(self, error: OSError) -> None:
        """Report that a connection cannot be accepted."""
        if not self.descriptors.tell(error):
            fields = {"why": error.strerror or str(error)}
            self._quiet.warning("no connection can be accepted", "accept", self.now_s, fields)

    def report_bug(self, error: BaseException) -> None:
        self.metrics.internal_errors += 1
        _log.error("a request failed through a bug of kgw", error=error)

    # --- the sweep --------------------------------------------------------------------------------

    def _arm_sweep(self) -> None:
        # Counted from the start of the last sweep, so that `now_s` is at most this old.
        self._timer = self._clock.call_at(self.now_s + self.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        """Check the connections whose next deadline has passed, with one timer for all of them."""
        now_s = self.now_s = self._clock.monotonic_s()
        self.metrics.request_memory_bytes = self.memory.used_bytes
        self.descriptors.look()
        if self._handshakes is not None:
            self._handshakes.go_on()
        self._due = [one for one in self.connections if one.deadline_s <= now_s]
        self._check_due()

    def _check_due(self) -> None:
        """Check some of the connections that the sweep found, and later the others."""
        due = self._due[-self._connections_per_turn :]
        del self._due[-self._connections_per_turn :]
        for connection in due:
            # A connection that is closed already would be counted and reported again.
            if connection in self.connections:
                self._guard(connection, partial(connection.check_deadlines, self.now_s))
        if self._due:
            self._timer = self.loop.call_soon(self._check_due)
        else:
            self._arm_sweep()

    def _guard(self, connection: KafkaConnection, call: Callable[[], None]) -> None:
        """Call a method of a connection. An error ends only this connection."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a bug
            self._end_for_bug(connection, error)

    def _end_for_bug(self, connection: KafkaConnection, error: Exception) -> None:
        self.report_bug(error)
        connection.cut()

    # --- the end ----------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> int:
        """Stop accepting, answer started requests, and close. Return how many connections were cut.

        Long polls end at once; requests that are not started yet are not answered.
        """
        await self._stop_listening()
        for connection in list(self.connections):
            connection.finish()
        try:
            async with timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            pass
        return await self.aclose()

    async def aclose(self) -> int:
        """Close everything now. Return how many connections were still open."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._stop_listening()
        cut = len(self.connections)
        for connection in list(self.connections):
            connection.cut()
        # Each transport reports the end to its connection in the next turn of the loop.
        await self._empty.wait()
        return cut
