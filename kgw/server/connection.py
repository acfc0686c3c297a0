"""One client's connection: turns bytes into requests, and sends the answers in order.

All connections share the receive buffer, the memory budget, and the sweep. Each connection has a
`FrameReader` for the bytes of an incomplete frame and the remaining bytes of a read whose time
slice is over; requests that are not started yet (`parked`); requests without an answer (`started`);
and a `Sender` for answers. All of them are empty in an idle connection.
"""

from __future__ import annotations

from asyncio import BufferedProtocol, CancelledError, Transport
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from kgw.errors import ProtocolError
from kgw.handlers.context import LARGE_REQUEST_BYTES, Later
from kgw.protocol.api_keys import MESSAGE_KEYS
from kgw.protocol.framing import FrameReader
from kgw.server.sending import Sender

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from kgw.handlers.context import Session
    from kgw.metrics import Metrics
    from kgw.server.limits import Limits
    from kgw.server.memory import RequestMemory
    from kgw.types import Buffer

# A larger request waits in a queue that all connections share: decoding and answering a malicious
# one may take 30 ms, and fifty may become complete at the same time.
TURN_BYTES = LARGE_REQUEST_BYTES

# The most frames taken from one read before other connections are served. One read may hold
# thousands of small requests: answering them all at once would delay other connections by 100 ms.
FRAMES_PER_TURN = 32

# API key, version, correlation id: every request has them.
SMALLEST_FRAME_BYTES = 8

# How long a client may take to close after a drained server has shut its side.
LINGER_S = 1.0

# A token of a login without a request header may have fewer bytes than `SMALLEST_FRAME_BYTES`. An
# empty one is a login that fails, as in Kafka, and no violation of the protocol.
SMALLEST_TOKEN_BYTES = 0

LOOK_AT_NEXT_SWEEP = 0.0
NEVER = float("inf")


State: TypeAlias = Literal[
    "open",
    # The client violated the protocol. Closed when its earlier requests are answered.
    "refusing",
    # The server drains. Shut when the started requests are answered.
    "finishing",
    # Our side is shut (not with TLS); bytes that still arrive are discarded.
    "lingering",
    "closed",
    "not admitted",
]
"""The states of an open connection."""


class Dispatch(Protocol):
    """Answers requests: `kgw.handlers.dispatch.Dispatcher`, or a replacement in tests."""

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | Later | None: ...

    def encode(self, later: Later) -> list[Buffer] | None: ...

    def may_overlap(self, frame: Buffer) -> bool: ...

    def is_fetch(self, frame: Buffer) -> bool: ...

    @property
    def has_large_work(self) -> bool: ...


class Shared(Protocol):
    """The functions that all connections share, from the server or a replacement in tests."""

    limits: Limits
    memory: RequestMemory
    metrics: Metrics
    receive_buffer: memoryview
    now_s: float
    """Monotonic time of the last sweep: exact enough for deadlines, and cheap to read."""
    sweep_interval_s: float
    has_sent_much: bool
    """Whether a Fetch must be queued, as many bytes were sent since the loop last polled the
    sockets."""

    @property
    def dispatcher(self) -> Dispatch: ...

    def admit(self, connection: KafkaConnection, transport: Transport) -> Session | None:
        """Count a new connection. None refuses it."""

    def request_turn(self, connection: KafkaConnection, *, is_fetch: bool = False) -> None:
        """Request one call of `take_turn`, after the connections that requested it before."""

    def hold(self, connection: KafkaConnection) -> None:
        """Request one call of `take_turn` when the dispatcher has no large work."""

    def answer_soon(self, connection: KafkaConnection, _: object = None) -> None:
        """Request one call of `write_answers`, after other answers of this turn of the loop."""

    def note_sent(self, size_bytes: int) -> None:
        """Count a large answer that was handed to a transport."""

    def forget(self, connection: KafkaConnection) -> None:
        """Remove a connection from the counts."""

    def report_drop(
        self, connection: KafkaConnection, reason: str, detail: str, kind: str = ""
    ) -> None:
        """Count and log a connection that the server ended, and why.

        Lines of one kind are logged rarely; "" means the reason.
        """

    def report_bug(self, error: BaseException) -> None:
        """Count and log an unexpected error."""


def _encrypted_sender() -> type[Sender]:
    # Imported here: most servers have no listener with TLS.
    from kgw.server.encrypted_sending import EncryptedSender

    return EncryptedSender


class KafkaConnection(BufferedProtocol):
    """Reads frames, starts requests in order, and writes answers in the same order.

    Successive requests that may overlap (Produce) are started while earlier ones wait; any other
    starts when all earlier ones are answered. Reading stops while too many requests or bytes are
    pending.
    """

    __slots__ = (
        "_counted_held_bytes",
        "_counted_partial_bytes",
        "_frame_deadline_s",
        "_has_turn",
        "_held_bytes",
        "_overlapping",
        "_parked",
        "_reader",
        "_reading_paused",
        "_sender",
        "_server",
        "_started",
        "_transport",
        "active_s",
        "deadline_s",
        "listener_name",
        "session",
        "state",
    )

    session: Session
    _sender: Sender
    _transport: Transport

    def __init__(self, server: Shared, listener_name: str) -> None:
        self._server = server
        self.listener_name = listener_name
        self.state: State = "open"
        # When the server's sweep must check this connection next.
        self.deadline_s = NEVER
        # When bytes were last read from it, at the precision of a sweep.
        self.active_s = server.now_s
        self._reader = FrameReader(server.limits.frame_bytes, SMALLEST_FRAME_BYTES, MESSAGE_KEYS)
        self._reading_paused = False
        self._frame_deadline_s = NEVER
        # Pending requests. Lists, not deques: they are short, and an empty deque takes 700 bytes.
        self._parked: list[memoryview] = []
        # Answers in order, each as buffers or as the object to encode, and the number of bytes of
        # its request.
        self._started: list[tuple[list[Buffer] | Later, int]] = []
        self._held_bytes = 0
        # How many of these bytes, and of the reader's, are counted in the shared budget.
        self._counted_held_bytes = 0
        self._counted_partial_bytes = 0
        self._overlapping = False
        self._has_turn = False

    def __repr__(self) -> str:
        return (
            f"<KafkaConnection {self.state} parked={len(self._parked)} "
            f"started={len(self._started)} held_bytes={self._held_bytes}>"
        )

    # --- callbacks of the transport ---------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        server = self._server
        accepted = cast("Transport", transport)
        session = server.admit(self, accepted)
        if session is None:
            self.state = "not admitted"
            accepted.abort()
            return
        self._transport = accepted
        self.session = session
        if session.login is not None:
            self._reader.allow(server.limits.login_frame_bytes, SMALLEST_TOKEN_BYTES, None)
            session.login.when_open = self._allow_requests
        has_tls = self._transport.get_extra_info("ssl_object") is not None
        sender = _encrypted_sender() if has_tls else Sender
        self._sender = sender(self._transport, server.metrics, server.note_sent)
        self._sender.limit(server.limits.unsent_bytes)
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    def _allow_requests(self) -> None:
        """Accept requests of every size: the client has logged in."""
        self._reader.allow(self._server.limits.frame_bytes, SMALLEST_FRAME_BYTES, MESSAGE_KEYS)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of an incomplete frame's buffer, else the shared receive buffer.

        Both loops fill it and call `buffer_updated` before another connection can read.
        """
        return self._reader.room(self._server.receive_buffer)

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        self.active_s = server.now_s
        server.metrics.bytes_received += nbytes
        if self.state == "open":
            self._receive(nbytes)
            if self._sender.waiting:
                self._sender.flush()
            self.deadline_s = LOOK_AT_NEXT_SWEEP

    def eof_received(self) -> None:
        """The client has shut its side. The loop closes the transport once its bytes are sent."""
        if self.state != "not admitted":
            self._sender.hand_over()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.state == "not admitted":
            return
        self.state = "closed"
        self._sender.discard()
        self._abandon()
        self.session.close()
        self._discard()
        self._server.forget(self)

    def pause_writing(self) -> None:
        self._sender.pause()
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    def resume_writing(self) -> None:
        self._sender.resume()
        self._go_on()

    # --- frames to requests -----------------------------------------------------------------------

    def _receive(self, nbytes: int | None) -> None:
        """Start the requests in the `nbytes` just read; with None, in the bytes left of a read."""
        server = self._server
        if self._sender.unsent_bytes:
            # A client that sends more requests has usually read the earlier answers.
            self._sender.count_unsent()
        in_hand = len(self._started) + len(self._parked)
        most = min(FRAMES_PER_TURN, server.limits.inflight_requests - in_hand)
        try:
            if nbytes is None:
                frames = self._reader.take_rest(most)
            else:
                frames = self._reader.take(server.receive_buffer, nbytes, most)
        except ProtocolError as error:
            sentence = self._explanation()
            if sentence:
                error = ProtocolError(f"{error}. {sentence}")
            self._fail(error, sentence)
            return
        if frames:
            self._frame_deadline_s = NEVER
            self._parked += frames
            self._held_bytes += sum(map(len, frames))
            self._pump()
            if self.state != "open":
                return
        if self._reader.is_within_frame and self._frame_deadline_s == NEVER:
            self._expect_frame()
        if self._held_bytes or self._reader.held_bytes or self._counted_partial_bytes:
            self._count()
            memory = server.memory
            if (
                self._reader.has_rest
                or self._is_full()
                or (memory.is_spent and memory.must_wait(self))
            ):
                self._pause_reading()
                self._read_on()

    def _explanation(self) -> str:
        """Return a sentence about a client that speaks another protocol, by its first bytes."""
        if self.session.client_id is not None:
            return ""
        from kgw.security.tls.peeking import ENOUGH_BYTES, explain

        first = bytes(self._server.receive_buffer[:ENOUGH_BYTES])
        return explain(first) or ""

    def _count(self) -> None:
        """Report this connection's bytes in memory to the shared budget."""
        held_bytes = self._held_bytes - self._counted_held_bytes
        partial_bytes = self._reader.held_bytes - self._counted_partial_bytes
        self._counted_held_bytes += held_bytes
        self._counted_partial_bytes += partial_bytes
        self._server.memory.count(self, held_bytes=held_bytes, partial_bytes=partial_bytes)

    def _pump(self) -> None:
        """Start parked requests, as many as may start now."""
        server = self._server
        dispatcher = server.dispatcher
        parked = self._parked
        while parked and not self._sender.is_paused and self.state == "open":
            frame = parked[0]
            if self._started and not (self._overlapping and dispatcher.may_overlap(frame)):
                break
            is_large = len(frame) > TURN_BYTES
            if is_large or (server.has_sent_much and dispatcher.is_fetch(frame)):
                if not self._has_turn:
                    server.request_turn(self, is_fetch=not is_large)
                    break
                self._has_turn = False
                if is_large and dispatcher.has_large_work and not dispatcher.may_overlap(frame):
                    server.hold(self)
                    break
            del parked[0]
            self._start(frame)

    def _start(self, frame: memoryview) -> None:
        """Start a request; it is answered now or later. Earlier requests may still be pending."""
        server = self._server
        try:
            answer = server.dispatcher.start(frame, self.session)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the connection
            self._held_bytes -= len(frame)
            self._fail(error)
            return
        started = self._started
        if isinstance(answer, Later):
            submission = answer.context.submission
            if submission is not None and not submission.is_done:
                self._overlapping = False
                submission.when_done(self._note_submission)
            elif not started:
                self._overlapping = server.dispatcher.may_overlap(frame)
            if not started:
                answer.due.when_done(partial(server.answer_soon, self))
            started.append((answer, len(frame)))
            return
        self._held_bytes -= len(frame)
        if answer is not None and started:
            started.append((answer, 0))
        elif answer is not None:
            self._sender.add(answer)

    def _note_submission(self, _: object) -> None:
        """Start requests that waited until an earlier one had submitted its changes."""
        if self._started and self.state == "open":
            self._overlapping = True
            self._go_on()

    def _go_on(self) -> None:
        """Start waiting requests, and continue to read.

        End the connection if no answer is pending.
        """
        self._pump()
        self._count()
        if self.state == "open":
            self._read_on()
        elif not self._started:
            self._end()
        self._sender.flush()

    def take_turn(self) -> None:
        """Start the queued request, or process the remaining bytes of the queued read."""
        self._has_turn = True
        self._pump()
        self._count()
        if self.state == "open" and self._reader.has_rest and not self._is_full():
            self._receive(None)
        if self.state == "open":
            self._read_on()
        self._has_turn = False
        self._sender.flush()
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    # --- answers ----------------------------------------------------------------------------------

    def write_answers(self) -> None:
        """Write all finished answers in one call, and start requests that waited."""
        if self.state == "closed":
            return
        taken = 0
        failure: BaseException | None = None
        for answer, held_bytes in self._started:
            buffers: list[Buffer] | None
            if isinstance(answer, Later):
                if not answer.due.is_done:
                    # Only the first pending answer is awaited, as later ones cannot be written
                    # before it.
                    answer.due.when_done(partial(self._server.answer_soon, self))
                    break
                try:
                    buffers = self._server.dispatcher.encode(answer)
                except (Exception, CancelledError) as error:  # noqa: BLE001 - it ends the connection
                    buffers, failure = None, error
            else:
                buffers = answer
            taken += 1
            self._held_bytes -= held_bytes
            if failure is not None:
                break
            if buffers is not None:
                self._sender.add(buffers)
        del self._started[:taken]
        if failure is not None:
            # This answer will never come, so no later answer can be written in order.
            self._abandon()
            self._fail(failure)
            # Its traceback refers to the request, and back to the error: without this, both would
            # stay in memory until the garbage collector runs.
            failure.__traceback__ = None
        elif self._parked or self._reading_paused or self.state != "open":
            self._go_on()
        else:
            self._count()
        self._sender.flush()
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    # --- back pressure ----------------------------------------------------------------------------

    def _is_full(self) -> bool:
        """Return whether reading must pause: too many pending requests, or bytes of them."""
        limits = self._server.limits
        return (
            len(self._started) + len(self._parked) >= limits.inflight_requests
            or self._held_bytes >= limits.inflight_bytes
        )

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._server.metrics.reading_pauses += 1
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Queue the remaining bytes of the last read; if there are none, read again."""
        if not self._reading_paused or self._is_full():
            return
        if self._reader.has_rest:
            self._server.request_turn(self)
            return
        if (self._held_bytes or self._reader.held_bytes) and self._server.memory.must_wait(self):
            return
        self._reading_paused = False
        if self._reader.is_within_frame:
            self._expect_frame()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def memory_available(self) -> None:
        """Read again, as the shared memory budget has room."""
        if self.state == "open":
            self._read_on()

    # --- deadlines --------------------------------------------------------------------------------

    def _expect_frame(self) -> None:
        server = self._server
        # `now_s` may be as old as a sweep interval, so the time limit is longer by that.
        self._frame_deadline_s = (
            server.now_s + server.sweep_interval_s + server.limits.frame_timeout_s
        )
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    def check_deadlines(self, now_s: float) -> None:
        """Drop the connection if one of its deadlines has passed, else set the next one."""
        if self.state == "lingering":
            if self._transport.is_closing():
                return
            if now_s >= self._frame_deadline_s and not self._transport.get_write_buffer_size():
                if self._transport.can_write_eof():
                    self._transport.abort()
                else:
                    self._transport.close()
            return
        limits = self._server.limits
        self.deadline_s = NEVER
        unsent_since_s = self._sender.unsent_since(now_s)
        if unsent_since_s is not None:
            # The client has read bytes only if the next check shows it.
            self.deadline_s = LOOK_AT_NEXT_SWEEP
            if now_s >= unsent_since_s + limits.unsent_timeout_s:
                unsent_bytes = self._sender.unsent_bytes
                self.drop("unsent", f"{unsent_bytes} bytes of answers were not taken")
                return
        elif self._reader.is_within_frame and not self._reading_paused:
            self.deadline_s = self._frame_deadline_s
            if now_s >= self.deadline_s:
                self.drop("slow_frame", f"{self._reader.progress} came in time")
                return
        elif limits.idle_timeout_s is not None:
            if self._started or self._parked:
                self.active_s = now_s
            self.deadline_s = self.active_s + limits.idle_timeout_s
            if now_s >= self.deadline_s:
                self.drop("idle", "")
                return
        login = self.session.login
        if login is not None and login.deadline_s != NEVER:
            self.deadline_s = LOOK_AT_NEXT_SWEEP
            if now_s >= login.deadline_s:
                self.drop("login", "the client has not logged in in time")

    # --- the end ----------------------------------------------------------------------------------

    def drop(self, reason: str, detail: str) -> None:
        """End the connection immediately."""
        self._server.report_drop(self, reason, detail)
        self._transport.abort()

    def finish(self) -> None:
        """End the connection when all started requests are answered.

        A request that only waits for more records is given up. Other requests are not started any
        more.
        """
        if self.state != "open":
            return
        self.state = "finishing"
        self._discard()
        if all(isinstance(one, Later) and one.abandon is not None for one, _ in self._started):
            self._abandon()
        if not self._started:
            self._end()

    def cut(self) -> None:
        """End the connection now, as its time to finish is over."""
        self._transport.abort()

    def _fail(self, error: BaseException, kind: str = "") -> None:
        """End the connection, as a request failed. Earlier requests are still answered."""
        if isinstance(error, (ProtocolError, CancelledError)):
            reason, detail = "protocol", str(error) or "a request was given up"
        else:
            self._server.report_bug(error)
            reason, detail = "bug", type(error).__name__
        if self.state == "open":
            self._server.report_drop(self, reason, detail, kind)
            self.state = "refusing"
            self._discard()
            if self._started:
                self._pause_reading()
        if not self._started:
            self._end()

    def _discard(self) -> None:
        """Drop the bytes that have arrived, and the requests that are not started."""
        self._reader.forget()
        self._held_bytes -= sum(map(len, self._parked))
        self._parked.clear()
        self._server.memory.leave(self)
        self._count()

    def _end(self) -> None:
        """Close when no answer is pending; if the server drains, let the client close.

        Closing a socket with unread bytes resets the connection, and answers that are being sent
        would be lost: a producer that continues to send would not learn which records were stored.
        A client with TLS cannot be told to close: the server closes when `LINGER_S` is over.
        """
        self._sender.flush()
        if self._sender.holds_answers or self._transport.is_closing():
            # `resume_writing` calls this again as long as answers are held. A second close of a TLS
            # transport of asyncio would take the use from its `abort`.
            return
        if self.state == "refusing":
            self._transport.close()
            return
        if self.state != "finishing":
            return
        server = self._server
        can_write_eof = self._transport.can_write_eof()
        if not can_write_eof and server.now_s >= self.active_s + 2 * server.sweep_interval_s:
            # TLS has no half-closed connections. This client has been silent for a second or more.
            self._transport.close()
            return
        self.state = "lingering"
        self._frame_deadline_s = server.now_s + server.sweep_interval_s + LINGER_S
        self.deadline_s = LOOK_AT_NEXT_SWEEP
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        if can_write_eof:
            self._transport.write_eof()

    def _abandon(self) -> None:
        """Cancel requests whose answers will not be read, if that is harmless.

        Other requests run to their end; until then their bytes are in memory, and counted.
        """
        started, self._started = self._started, []
        for answer, held_bytes in started:
            if isinstance(answer, Later) and answer.abandon is None:
                end = partial(self._end_behind, answer, held_bytes)
                if answer.due.is_done:
                    end(None)
                else:
                    answer.due.when_done(end)
                continue
            if isinstance(answer, Later) and answer.abandon is not None:
                answer.abandon()
            self._held_bytes -= held_bytes
        self._count()

    def _end_behind(self, answer: Later, held_bytes: int, _: object) -> None:
        """Stop counting a request that outlived its connection. An error in it is a bug."""
        self._held_bytes -= held_bytes
        self._count()
        try:
            self._server.dispatcher.encode(answer)
        except (ProtocolError, CancelledError):
            # This error would end the connection, which has ended already.
            return
        except Exception as error:  # noqa: BLE001 - a bug
            self._server.report_bug(error)
