"""A transport, a dispatcher and a server's shared part, all run by hand."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any

from kgw.completion import Completion
from kgw.errors import ProtocolError
from kgw.handlers.context import Later, RequestContext, Session
from kgw.metrics import Metrics
from kgw.server.connection import KafkaConnection
from kgw.server.limits import Limits
from kgw.server.memory import RequestMemory
from kgw.server.server import RECEIVE_BUFFER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.types import Buffer

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18

_HEADER = Struct(">hhi")
_ANSWER = Struct(">ii")


def request(api_key: int, correlation_id: int, payload: bytes = b"") -> bytes:
    """Return a frame with its length: a header and anything."""
    body = _HEADER.pack(api_key, 0, correlation_id) + payload
    return len(body).to_bytes(4, "big") + body


def answer(correlation_id: int, payload: bytes = b"") -> list[Buffer]:
    """Return what a dispatcher answers to a request."""
    return [_ANSWER.pack(4 + len(payload), correlation_id) + payload]


class FakeContext(RequestContext):
    """What a connection looks at of a request."""

    def __init__(self, submission: Completion[None] | None) -> None:
        self.submission = submission


class FakeAnswer(Later):
    """An answer that comes when the test says so."""

    def __init__(self, *, is_abandonable: bool = False) -> None:
        self.completion: Completion[None] = Completion()
        super().__init__(self.completion, lambda: None, self.give_up if is_abandonable else None)
        self.is_abandoned = False
        self.outcome: list[Buffer] | BaseException | None = None

    def give_up(self) -> None:
        self.is_abandoned = True
        self.finish(asyncio.CancelledError())

    def finish(self, outcome: list[Buffer] | BaseException) -> None:
        self.outcome = outcome
        self.completion.set_result(None)


class FakeDispatcher:
    """Answers ApiVersions, and the ids in `immediate`, at once; the rest waits until told.

    A negative correlation id breaks the protocol; `bug` is raised instead of an answer.
    """

    def __init__(self) -> None:
        self.started: list[int] = []
        self.payloads: list[bytes] = []
        self.frames: list[memoryview] = []
        self.immediate: set[int] = set()
        self.submissions: dict[int, Completion[None]] = {}
        self.waiting: dict[int, FakeAnswer] = {}
        self.bug: Exception | None = None
        self.answer_bytes = 0
        self.has_large_work = False

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | Later | None:
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        assert not frame.readonly
        if self.bug is not None:
            raise self.bug
        if correlation_id < 0:
            raise ProtocolError("broken")
        self.started.append(correlation_id)
        self.frames.append(frame)
        self.payloads.append(bytes(frame[_HEADER.size :]))
        if version:
            return None
        if api_key == API_VERSIONS or correlation_id in self.immediate:
            return answer(correlation_id, bytes(self.answer_bytes))
        waiting = FakeAnswer(is_abandonable=api_key == FETCH)
        waiting.context = FakeContext(self.submissions.get(correlation_id))
        self.waiting[correlation_id] = waiting
        return waiting

    def encode(self, later: Later) -> list[Buffer] | None:
        assert isinstance(later, FakeAnswer)
        if isinstance(later.outcome, BaseException):
            raise later.outcome
        return later.outcome

    def may_overlap(self, frame: Buffer) -> bool:
        return frame[:2] == bytes(2)

    def is_fetch(self, frame: Buffer) -> bool:
        return frame[:2] == FETCH.to_bytes(2, "big")

    def finish(self, correlation_id: int, payload: bytes = b"") -> None:
        """Answer a request that waits."""
        self.waiting.pop(correlation_id).finish(answer(correlation_id, payload))


class FakeTransport(asyncio.Transport):
    """Remembers what was done to it. `unsent` bytes stay in it when `stuck`."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self._reading = True
        self._closing = False
        self._aborted = False
        self._ended = False
        self.can_end = True
        self.unsent = 0
        self.limits: tuple[int | None, int | None] = (None, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (low, high)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: Any) -> None:
        self.writes += 1
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.writes += 1
        for one in list_of_data:
            self.written += one

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = self._aborted = True

    def can_write_eof(self) -> bool:
        return self.can_end

    def write_eof(self) -> None:
        self._ended = True

    def is_reading(self) -> bool:
        return self._reading

    def is_aborted(self) -> bool:
        return self._aborted

    def is_ended(self) -> bool:
        return self._ended

    def answers(self) -> list[int]:
        """Return the correlation ids of what was written, in order."""
        found = []
        position = 0
        while position < len(self.written):
            size, correlation_id = _ANSWER.unpack_from(self.written, position)
            found.append(correlation_id)
            position += 4 + size
        return found


class FakeServer:
    """What connections share, with a clock that stands still."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.dispatcher = FakeDispatcher()
        self.limits = limits or Limits()
        self.memory = RequestMemory(self.limits.request_memory_bytes)
        self.metrics = Metrics()
        self.loop = asyncio.get_running_loop()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.now_s = 1000.0
        self.sweep_interval_s = 1.0
        self.full = False
        self.drops: list[str] = []
        self.details: list[str] = []
        self.bugs: list[BaseException] = []
        self.forgotten = 0
        self.answered: list[KafkaConnection] = []
        self.turns: list[KafkaConnection] = []
        self.held: list[KafkaConnection] = []
        self.fetch_turns = 0
        self.gives_turns = True
        self.has_sent_much = False
        self.sent: list[int] = []

    def admit(self, connection: KafkaConnection, transport: asyncio.Transport) -> Session | None:
        return None if self.full else Session(client_host="192.0.2.1")

    def request_turn(self, connection: KafkaConnection, *, is_fetch: bool = False) -> None:
        self.turns.append(connection)
        self.fetch_turns += is_fetch
        if self.gives_turns:
            self.loop.call_soon(connection.take_turn)

    def hold(self, connection: KafkaConnection) -> None:
        self.held.append(connection)

    def answer_soon(self, connection: KafkaConnection, _: object = None) -> None:
        if connection not in self.answered:
            self.answered.append(connection)
            self.loop.call_soon(self._write_answers)

    def _write_answers(self) -> None:
        answered, self.answered = self.answered, []
        for connection in answered:
            connection.write_answers()

    def note_sent(self, size_bytes: int) -> None:
        self.sent.append(size_bytes)

    def forget(self, connection: KafkaConnection) -> None:
        self.forgotten += 1

    def report_drop(
        self, connection: KafkaConnection, reason: str, detail: str, kind: str = ""
    ) -> None:
        self.drops.append(reason)
        self.details.append(detail)

    def report_bug(self, error: BaseException) -> None:
        self.bugs.append(error)


class Peer:
    """One connection and the client at its other end."""

    def __init__(self, server: FakeServer | None = None, limits: Limits | None = None) -> None:
        self.server = server or FakeServer(limits)
        self.dispatcher = self.server.dispatcher
        self.transport = FakeTransport()
        self.connection = KafkaConnection(self.server, "PLAINTEXT")
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> int:
        """Deliver bytes as a loop does, as long as the connection reads. Returns how many."""
        position = 0
        while (
            position < len(data) and self.transport.is_reading() and not self.transport.is_closing()
        ):
            buffer = self.connection.get_buffer(-1)
            part = data[position : position + len(buffer)]
            buffer[: len(part)] = part
            self.connection.buffer_updated(len(part))
            position += len(part)
        return position

    def finish(self, correlation_id: int, payload: bytes = b"") -> None:
        self.dispatcher.finish(correlation_id, payload)

    def at(self, now_s: float) -> None:
        """Let the sweep see the connection at this time after the start, if it is due."""
        self.server.now_s = 1000.0 + now_s
        if self.connection.deadline_s <= self.server.now_s:
            self.connection.check_deadlines(self.server.now_s)

    def lose(self) -> None:
        """The transport says that it is closed."""
        self.transport.close()
        self.connection.connection_lost(None)


async def settle(turns: int = 3) -> None:
    """Let callbacks run that are due."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds; the test's time limit ends a vain wait."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
        await asyncio.sleep(0)
