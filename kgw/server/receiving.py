"""The bytes that arrive at a connection, cut into frames, as fast as it can take them.

What has arrived of a frame that was cut is kept here, and the rest of a read whose turn is over. An
idle connection holds neither.
"""

from __future__ import annotations

from abc import abstractmethod
from asyncio import BufferedProtocol
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from kgw.errors import FrameTooLargeError, ProtocolError
from kgw.protocol.api_keys import MESSAGE_KEYS
from kgw.server.shared import OPEN

if TYPE_CHECKING:
    from asyncio import Transport

    from kgw.metrics import Metrics
    from kgw.server.limits import Limits
    from kgw.server.memory import RequestMemory

_INT32 = Struct(">i")
_INT16 = Struct(">h")
_LENGTH_BYTES = 4
# API key, version, correlation id: every request has them.
_SMALLEST_FRAME_BYTES = 8

# Frames taken from one read before other connections get their turn. One read may hold thousands of
# small requests: answering them all at once would keep everybody else waiting for 100 ms.
FRAMES_PER_TURN = 32

# A frame that was cut gets room for so many times the bytes it has sent, never for what it claims.
GROWTH = 4
FIRST_BUFFER_BYTES = 2048

# Five requests of four batches of 16 KB, as a producer has in flight, and more: one that the end of
# a read cuts costs two more reads, and a copy. What no read has filled takes no memory.
RECEIVE_BUFFER_BYTES = 512 << 10

LOOK_AT_NEXT_SWEEP = 0.0
NEVER = float("inf")


class TurnGiver(Protocol):
    """What a receiver of frames needs of the server."""

    limits: Limits
    memory: RequestMemory
    metrics: Metrics
    receive_buffer: memoryview
    now_s: float
    """Monotonic time of the last sweep: exact enough for deadlines, free to read."""
    sweep_interval_s: float

    def request_turn(self, connection: FrameReceiver, *, is_fetch: bool = False) -> None:
        """Have `take_turn` called once, after those of connections that asked before."""


class FrameReceiver(BufferedProtocol):
    """Reads frames and hands each to `_accept`; stops reading while too much is in hand."""

    __slots__ = (
        "_active_s",
        "_continuing",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_frame_deadline_s",
        "_held_bytes",
        "_leftover",
        "_prefix",
        "_reading_paused",
        "_server",
        "deadline_s",
        "max_frame_bytes",
        "state",
    )

    _transport: Transport

    def __init__(self, server: TurnGiver, max_frame_bytes: int) -> None:
        self._server = server
        self.max_frame_bytes = max_frame_bytes
        self.state = OPEN
        # When the server's sweep has to look at this connection again.
        self.deadline_s = NEVER
        self._active_s = server.now_s
        self._held_bytes = 0
        self._prefix = b""
        self._frame: memoryview | None = None
        self._filled = 0
        self._frame_bytes = 0
        self._frame_deadline_s = NEVER
        self._leftover: memoryview | None = None
        self._reading_paused = False
        self._continuing = False

    # --- what a connection does with frames -------------------------------------------------------

    @property
    @abstractmethod
    def _requests_in_hand(self) -> int:
        """How many requests wait for their turn or their answer."""

    @abstractmethod
    def _accept(self, frame: memoryview) -> None:
        """Take a whole frame."""

    @abstractmethod
    def _refuse(self, error: ProtocolError) -> None:
        """End the connection: the client broke the protocol."""

    @abstractmethod
    def take_turn(self) -> None:
        """Go on with what a turn was requested for, `_continue` among it."""

    @abstractmethod
    def cut(self) -> None:
        """End the connection now."""

    @abstractmethod
    def _write_outgoing(self) -> None:
        """Hand to the transport what the frames of this read were answered with."""

    # --- bytes to frames --------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the rest of a frame that was cut, else the buffer that all connections share.

        Both loops fill it and call `buffer_updated` before anybody else can read.
        """
        if self._frame is not None:
            return self._frame[self._filled :]
        shared = self._server.receive_buffer
        prefix = self._prefix
        if prefix:
            shared[: len(prefix)] = prefix
            return shared[len(prefix) :]
        return shared

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        self._active_s = server.now_s
        server.metrics.bytes_received += nbytes
        if self.state is not OPEN:
            return
        if self._frame is not None:
            self._grow_frame(nbytes)
        else:
            end = len(self._prefix) + nbytes
            self._prefix = b""
            self._take_frames(server.receive_buffer, end)
        self._write_outgoing()

    def _take_frames(self, data: memoryview, end: int) -> None:
        """Accept the whole frames in `data[:end]` and keep what is left of it."""
        limits = self._server.limits
        position = 0
        turn = FRAMES_PER_TURN
        while end - position >= _LENGTH_BYTES:
            (frame_bytes,) = _INT32.unpack_from(data, position)
            if not _SMALLEST_FRAME_BYTES <= frame_bytes <= self.max_frame_bytes:
                self._refuse_length(frame_bytes)
                return
            start = position + _LENGTH_BYTES
            if start + frame_bytes > end:
                self._begin_frame(data[start:end], frame_bytes)
                return
            # Without bytes in hand there is no request in hand either.
            if not turn or (self._held_bytes and self._full(limits)):
                self._keep_leftover(data, position, end)
                return
            turn -= 1
            position = start + frame_bytes
            # A frame must not share its bytes with the next read: its records are stored as they
            # are, long after this call.
            self._accept(memoryview(bytearray(data[start:position])))
            if self.state is not OPEN:
                return
        if position < end:
            self._prefix = bytes(data[position:end])
            self._expect_frame()
        self._pause_if_full()

    def _refuse_length(self, frame_bytes: int) -> None:
        if frame_bytes > self.max_frame_bytes:
            self._refuse(
                FrameTooLargeError(
                    f"a frame of {frame_bytes} bytes: at most {self.max_frame_bytes} are read"
                )
            )
        else:
            self._refuse(ProtocolError(f"a frame of {frame_bytes} bytes"))

    def _begin_frame(self, arrived: memoryview, frame_bytes: int) -> None:
        """Give a frame that was cut a buffer of its own."""
        filled = len(arrived)
        # Garbage whose first bytes happen to be a length ends here, not at the frame's deadline.
        if filled >= _INT16.size and _INT16.unpack_from(arrived)[0] not in MESSAGE_KEYS:
            self._refuse(ProtocolError(f"API key {_INT16.unpack_from(arrived)[0]} does not exist"))
            return
        room = min(frame_bytes, max(FIRST_BUFFER_BYTES, filled * GROWTH))
        frame = memoryview(bytearray(room))
        frame[:filled] = arrived
        self._frame = frame
        self._filled = filled
        self._frame_bytes = frame_bytes
        self._server.memory.partial_bytes += room
        self._expect_frame()
        self._pause_if_full()

    def _grow_frame(self, nbytes: int) -> None:
        """Count bytes that were read into the frame's own buffer; accept it when it is whole."""
        frame = self._frame
        assert frame is not None  # noqa: S101 - the caller looked
        memory = self._server.memory
        filled = self._filled = self._filled + nbytes
        room = len(frame)
        if filled < room:
            return
        if filled == self._frame_bytes:
            self._frame = None
            self._accept(frame)
            memory.give_back(self, partial_bytes=room)
            if self.state is OPEN:
                self._pause_if_full()
            return
        larger = memoryview(bytearray(min(self._frame_bytes, filled * GROWTH)))
        larger[:filled] = frame
        self._frame = larger
        memory.partial_bytes += len(larger) - room
        self._pause_if_full()

    def _expect_frame(self) -> None:
        server = self._server
        # `now_s` may be a sweep old; a client gets the difference as a present.
        self._frame_deadline_s = (
            server.now_s + server.sweep_interval_s + server.limits.frame_timeout_s
        )
        self.deadline_s = LOOK_AT_NEXT_SWEEP

    def _discard_arriving(self) -> None:
        self._prefix = b""
        leftover, self._leftover = self._leftover, None
        frame, self._frame = self._frame, None
        self._server.memory.give_back(
            self,
            partial_bytes=0 if frame is None else len(frame),
            held_bytes=0 if leftover is None else len(leftover),
            leaves=True,
        )

    # --- back pressure ----------------------------------------------------------------------------

    def _full(self, limits: Limits) -> bool:
        """Whether enough is in hand that no more should be read."""
        return (
            self._requests_in_hand >= limits.inflight_requests
            or self._held_bytes >= limits.inflight_bytes
        )

    def _pause_if_full(self) -> None:
        if self._full(self._server.limits) or self._must_wait_for_memory():
            self._pause_reading()

    def _must_wait_for_memory(self) -> bool:
        holds = self._held_bytes or self._frame is not None
        return bool(holds) and self._server.memory.must_wait(self)

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._server.metrics.reading_pauses += 1
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Take up what was left of the last read; when nothing is, read again."""
        if not self._reading_paused or self._full(self._server.limits):
            return
        if self._leftover is not None:
            self._continuing = True
            self._server.request_turn(self)
            return
        if self._must_wait_for_memory():
            return
        self._reading_paused = False
        if self._frame is not None or self._prefix:
            self._expect_frame()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _keep_leftover(self, data: memoryview, position: int, end: int) -> None:
        """Keep whole frames for another turn, or until fewer requests are in hand."""
        rest = data[position:end]
        if data is self._server.receive_buffer:
            rest = memoryview(bytearray(rest))
        self._leftover = rest
        self._server.memory.held_bytes += len(rest)
        self._pause_reading()
        self._read_on()

    def _continue(self) -> None:
        self._continuing = False
        leftover = self._leftover
        if leftover is None or self.state is not OPEN:
            return
        self._leftover = None
        self._server.memory.give_back(self, held_bytes=len(leftover))
        self._take_frames(leftover, len(leftover))
        if self._leftover is None:
            self.memory_available()

    def memory_available(self) -> None:
        """The budget that all connections share has room again."""
        if self.state is OPEN:
            self._read_on()
