"""One client's connection: bytes to frames, frames to requests, answers back in order.

Shared with every other connection: the receive buffer, the memory budget, the clock's sweep.
Its own: what has arrived of a frame that was cut, requests that wait for their turn (`parked`), and
requests whose answers are due (`started`). An idle connection holds none of them.
"""

from __future__ import annotations

from asyncio import CancelledError, Transport
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from kgw.errors import ProtocolError
from kgw.handlers.context import LARGE_REQUEST_BYTES, DueAnswer
from kgw.server.receiving import LOOK_AT_NEXT_SWEEP, NEVER, FrameReceiver, TurnGiver
from kgw.server.shared import (
    CLOSED,
    FINISHING,
    LINGERING,
    NOT_ADMITTED,
    OPEN,
    REFUSING,
)

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from kgw.handlers.context import Session
    from kgw.server.shared import Dispatch, State
    from kgw.types import Buffer

# A request larger than this takes its turn among those of other connections: decoding and answering
# one may take 30 ms when it is made for that, and fifty may become complete at the same time.
TURN_BYTES = LARGE_REQUEST_BYTES

# How long a client may take to close after a drained server has shut its side.
LINGER_S = 1.0


# Answers are written together, up to so many bytes: what is not written yet is memory that no
# limit sees. Below it they are copied into one piece, which costs less than a gather write.
WRITE_BYTES = 64 << 10


class Shared(TurnGiver, Protocol):
    """What connections have in common: the server, or a test's stand-in for it."""

    @property
    def dispatcher(self) -> Dispatch: ...

    has_sent_much: bool
    """Whether a Fetch has to wait for a turn: so much was sent since the loop looked at others."""

    def admit(self, connection: KafkaConnection, transport: Transport) -> Session | None:
        """Count a new connection in; None refuses it."""

    def hold(self, connection: FrameReceiver) -> None:
        """Have `take_turn` called once the dispatcher has no large work."""

    def answer_soon(self, connection: KafkaConnection) -> None:
        """Have `write_answers` called once, soon: after what else is answered in this turn."""

    def note_sent(self, size_bytes: int) -> None:
        """Count a large answer that was handed to a transport."""

    def forget(self, connection: KafkaConnection) -> None:
        """Count a connection out."""

    def report_drop(self, connection: KafkaConnection, reason: str, detail: str) -> None:
        """Note that the server ended a connection, and why."""

    def report_bug(self, error: BaseException) -> None:
        """Note an error that no handler of errors expected."""


class KafkaConnection(FrameReceiver):
    """Reads frames, starts requests in their order, writes answers in the same order.

    Successive requests that may overlap (Produce) are started while earlier ones wait; any other
    starts when everything before it is answered.
    """

    __slots__ = (
        "_has_turn",
        "_outgoing",
        "_outgoing_bytes",
        "_overlapping",
        "_parked",
        "_progress_s",
        "_queued_bytes",
        "_sent_bytes",
        "_started",
        "_transport",
        "_unsent_bytes",
        "_writing_paused",
        "listener_name",
        "session",
    )

    session: Session

    _server: Shared

    def __init__(self, server: Shared, listener_name: str, max_frame_bytes: int) -> None:
        super().__init__(server, max_frame_bytes)
        self.listener_name = listener_name
        # In hand. Lists, not deques: they are short, and an empty deque takes 700 bytes.
        self._parked: list[memoryview] = []
        # Answers that are due: each the frame's buffers, or what they will come from.
        self._started: list[list[Buffer] | DueAnswer] = []
        self._overlapping = False
        self._has_turn = False
        # Leaving.
        self._outgoing: list[Buffer] = []
        self._outgoing_bytes = 0
        self._writing_paused = False
        self._queued_bytes = 0
        self._sent_bytes = 0
        self._unsent_bytes = 0
        self._progress_s = 0.0

    def __repr__(self) -> str:
        return (
            f"<KafkaConnection {self.state.name} parked={len(self._parked)} "
            f"started={len(self._started)} held_bytes={self._held_bytes}>"
        )

    # --- what the transport says ------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        session = self._server.admit(self, self._transport)
        if session is None:
            self.state = NOT_ADMITTED
            self._transport.abort()
            return
        self.session = session
        unsent_bytes = self._server.limits.unsent_bytes
        self._transport.set_write_buffer_limits(high=unsent_bytes, low=unsent_bytes // 2)
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.state is NOT_ADMITTED:
            return
        self.state = CLOSED
        self._note_unsent(0)
        self._abandon()
        self.session.forget_poll()
        self._discard()
        self._server.forget(self)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._pump()
        self._write_outgoing()

    # --- frames to requests -----------------------------------------------------------------------

    @property
    def _requests_in_hand(self) -> int:
        return len(self._started) + len(self._parked)

    def _accept(self, frame: memoryview) -> None:
        """Start a request, or park it until its turn comes."""
        if self._unsent_bytes:
            # Who asks for more has taken what came before, as a rule.
            self._note_unsent(self._transport.get_write_buffer_size())
        started = self._started
        needs_turn = self._needs_turn(frame)
        if (
            self._parked
            or self._writing_paused
            or needs_turn
            or (started and not (self._overlapping and self._server.dispatcher.may_overlap(frame)))
        ):
            self._parked.append(frame)
            self._hold(len(frame))
            if len(self._parked) == 1 and needs_turn:
                self._pump()
        else:
            self._start(frame)

    def _needs_turn(self, frame: memoryview) -> bool:
        server = self._server
        return len(frame) > TURN_BYTES or (
            server.has_sent_much and server.dispatcher.is_fetch(frame)
        )

    def _start(self, frame: memoryview) -> None:
        """Have a request answered, now or later. What comes before it may still be due."""
        dispatcher = self._server.dispatcher
        try:
            answer = dispatcher.start(frame, self.session)
        except ProtocolError as error:
            self._refuse(error)
            return
        except Exception as error:  # noqa: BLE001 - the dispatcher answers for its handlers
            self._fail(error)
            return
        if answer is None:
            return
        started = self._started
        if isinstance(answer, list):
            if started:
                started.append(answer)
            else:
                self._send(answer)
            return
        if not started:
            self._overlapping = dispatcher.may_overlap(frame)
        answer.frame_bytes = len(frame)
        started.append(answer)
        self._hold(len(frame))
        answer.when_done(self._note_answer)
        submission = answer.submission
        if submission is not None and not submission.is_over:
            self._overlapping = False
            submission.when_over(self._note_submission)

    def _note_submission(self) -> None:
        """Start what has waited for a request that took several turns to submit its changes."""
        if self._started and self.state is OPEN:
            self._overlapping = True
            self._pump()
            self._write_outgoing()

    def _hold(self, frame_bytes: int) -> None:
        self._held_bytes += frame_bytes
        self._server.memory.held_bytes += frame_bytes

    def _let_go(self, frame_bytes: int) -> None:
        self._held_bytes -= frame_bytes
        self._server.memory.give_back(self, held_bytes=frame_bytes)

    def _note_answer(self, _: object) -> None:
        """Have what is answered written, together with what else is answered in this turn."""
        self._server.answer_soon(self)

    def write_answers(self) -> None:
        """Write every answer whose turn it is, in one call, and go on with what waited for it."""
        if self.state is CLOSED:
            return
        failure = self._collect_answers()
        if failure is None:
            self._pump()
        else:
            # An answer that will never come leaves no place for those behind it.
            self._abandon()
            self._fail(failure)
            # Its traceback refers to the request, and back to the error: neither would be freed
            # until the garbage collector runs.
            failure.__traceback__ = None
        self._write_outgoing()

    def _collect_answers(self) -> BaseException | None:
        """Take answers from the front of `started`; return the error of one that has none."""
        frame_bytes = taken = 0
        failure: BaseException | None = None
        for answer in self._started:
            if isinstance(answer, list):
                self._send(answer)
            elif answer.done():
                try:
                    buffers = answer.result()
                except (Exception, CancelledError) as error:  # noqa: BLE001 - it ends the connection
                    failure = error
                    break
                frame_bytes += answer.frame_bytes
                if buffers is not None:
                    self._send(buffers)
            else:
                break
            taken += 1
        if taken:
            del self._started[:taken]
        if frame_bytes:
            self._let_go(frame_bytes)
        return failure

    def _pump(self) -> None:
        """Start what has been waiting, as far as its turn has come, and read on."""
        parked = self._parked
        may_overlap = self._server.dispatcher.may_overlap
        while parked and not self._writing_paused and self.state is OPEN:
            if self._started and not (self._overlapping and may_overlap(parked[0])):
                break
            if self._needs_turn(parked[0]):
                if not self._has_turn:
                    self._server.request_turn(self, is_fetch=len(parked[0]) <= TURN_BYTES)
                    break
                self._has_turn = False
                if (
                    len(parked[0]) > TURN_BYTES
                    and self._server.dispatcher.has_large_work
                    and not may_overlap(parked[0])
                ):
                    self._server.hold(self)
                    break
            frame = parked.pop(0)
            self._let_go(len(frame))
            self._start(frame)
        if self.state is OPEN:
            self._read_on()
        elif not self._started:
            self._end()

    def take_turn(self) -> None:
        """Start the request that waited for a turn, or take up the rest of the read that did."""
        self._has_turn = True
        if self._parked and self.state is OPEN:
            self._pump()
        if self._continuing:
            self._continue()
        self._has_turn = False
        self._write_outgoing()

    # --- answers ----------------------------------------------------------------------------------

    def _send(self, buffers: list[Buffer]) -> None:
        """Add an answer to those that leave together."""
        for buffer in buffers:
            self._outgoing_bytes += len(buffer)
        self._outgoing += buffers
        if self._outgoing_bytes >= WRITE_BYTES:
            self._write_outgoing()

    def _write_outgoing(self) -> None:
        """Hand what is to leave to the transport; whoever the loop calls does so at its end."""
        if not self._outgoing:
            return
        buffers, self._outgoing = self._outgoing, []
        size, self._outgoing_bytes = self._outgoing_bytes, 0
        self._queued_bytes += size
        self._server.metrics.bytes_sent += size
        self.deadline_s = LOOK_AT_NEXT_SWEEP
        transport = self._transport
        if transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif size < WRITE_BYTES:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)
        if size >= WRITE_BYTES:
            self._server.note_sent(size)
            self._note_unsent(transport.get_write_buffer_size())

    def _note_unsent(self, unsent_bytes: int) -> None:
        """Count what the client has not taken; it takes more, unnoticed, until the next sweep."""
        self._server.metrics.unsent_bytes += unsent_bytes - self._unsent_bytes
        self._unsent_bytes = unsent_bytes

    # --- deadlines --------------------------------------------------------------------------------

    def check_deadlines(self, now_s: float) -> None:
        """Drop the connection if one of its deadlines has passed, else name the next one."""
        if self.state is LINGERING:
            if now_s >= self._frame_deadline_s and not self._transport.get_write_buffer_size():
                self._transport.abort()
            return
        limits = self._server.limits
        deadline_s = NEVER
        unsent_bytes = self._transport.get_write_buffer_size()
        self._note_unsent(unsent_bytes)
        if unsent_bytes:
            sent_bytes = self._queued_bytes - unsent_bytes
            if sent_bytes != self._sent_bytes or not self._progress_s:
                self._sent_bytes = sent_bytes
                self._progress_s = now_s
            deadline_s = self._progress_s + limits.unsent_timeout_s
            if now_s >= deadline_s:
                self.drop("unsent", f"{unsent_bytes} bytes of answers were not taken")
                return
            # Whether there is progress shows only to whoever looks again.
            deadline_s = LOOK_AT_NEXT_SWEEP
        else:
            self._progress_s = 0.0
            if (self._frame is not None or self._prefix) and not self._reading_paused:
                deadline_s = self._frame_deadline_s
                if now_s >= deadline_s:
                    detail = f"{self._filled} of {self._frame_bytes} bytes came in time"
                    self.drop("slow_frame", detail)
                    return
            elif limits.idle_timeout_s is not None:
                if self._started or self._parked:
                    self._active_s = now_s
                deadline_s = self._active_s + limits.idle_timeout_s
                if now_s >= deadline_s:
                    self.drop("idle", "")
                    return
        self.deadline_s = deadline_s

    # --- the end ----------------------------------------------------------------------------------

    def drop(self, reason: str, detail: str) -> None:
        """End the connection at once."""
        self._server.report_drop(self, reason, detail)
        self._transport.abort()

    def finish(self) -> None:
        """End the connection once everything that was started is answered.

        A request that only waits for more to come is given up; what was not started never will be.
        """
        if self.state is not OPEN:
            return
        self._stop(FINISHING)
        if all(isinstance(one, DueAnswer) and one.is_abandonable for one in self._started):
            self._abandon()
        if not self._started:
            self._end()

    def cut(self) -> None:
        """End the connection now: its time to finish is over."""
        self._transport.abort()

    def _refuse(self, error: ProtocolError) -> None:
        """The client broke the protocol: answer what came before, then close."""
        if self.state is OPEN:
            self._server.report_drop(self, "protocol", str(error))
            self._stop(REFUSING)
            if self._started:
                self._pause_reading()
            else:
                self._end()

    def _fail(self, error: BaseException) -> None:
        """A request cannot be answered, and so nothing behind it: close."""
        if isinstance(error, (ProtocolError, CancelledError)):
            reason, detail = "protocol", str(error) or "a request was given up"
        else:
            self._server.report_bug(error)
            reason, detail = "bug", type(error).__name__
        if self.state is OPEN:
            self._server.report_drop(self, reason, detail)
            self._stop(REFUSING)
        if not self._started:
            self._end()

    def _stop(self, state: State) -> None:
        """Take no further frame and forget those whose turn has not come."""
        self.state = state
        self._discard()

    def _discard(self) -> None:
        """Forget what has arrived, and requests whose turn has not come."""
        self._discard_arriving()
        self._let_go(sum(map(len, self._parked)))
        self._parked.clear()

    def _end(self) -> None:
        """Nothing is due any more: close, or when the server drains, let the client close.

        Closing a socket that holds unread bytes resets the connection, and answers on their way
        would be lost with it: a producer that keeps on sending would not learn what was stored.
        """
        self._write_outgoing()
        if self.state is REFUSING:
            self._transport.close()
            return
        if self.state is not FINISHING or self._transport.is_closing():
            return
        self.state = LINGERING
        self._frame_deadline_s = self._server.now_s + self._server.sweep_interval_s + LINGER_S
        self.deadline_s = LOOK_AT_NEXT_SWEEP
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        self._transport.write_eof()

    def _abandon(self) -> None:
        """Give up requests whose answers nobody will read, where that harms nothing.

        The others run to their end; until then their bytes are in memory, and counted.
        """
        started, self._started = self._started, []
        for answer in started:
            if isinstance(answer, list):
                continue
            if answer.is_abandonable:
                answer.abandon()
            elif not answer.done():
                answer.when_done(partial(self._note_end, answer.frame_bytes))
                continue
            self._let_go(answer.frame_bytes)

    def _note_end(self, frame_bytes: int, _: object) -> None:
        """Count a request out that has ended behind its connection."""
        self._let_go(frame_bytes)
