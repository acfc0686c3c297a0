"""A gateway without sockets: handles requests in the test's event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar, cast

from kgw.backend.memory import MemoryBackend
from kgw.completion import until_done
from kgw.config import Config, Listener
from kgw.gateway import Gateway
from kgw.handlers.context import Later, Session
from kgw.handlers.dispatch import Dispatcher
from kgw.protocol.framing import decode_response, request_frame
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from kgw.backend.base import Backend
    from kgw.clock import Clock
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.lag.monitor import LagMonitor
    from kgw.ownership.placement import Placement
    from kgw.partitions.read.answer_room import AnswerRoom
    from kgw.partitions.read.cold_reads import ColdReads
    from kgw.problems import Problem
    from kgw.protocol.schema import Request, Response
    from kgw.transactions.coordinator import TransactionCoordinator
    from kgw.types import Buffer

ResponseT = TypeVar("ResponseT", bound="Response")

_LENGTH_BYTES = 4


class PendingResponse:
    """A started request; await it to get the response."""

    __slots__ = ("_answer", "_api_key", "_dispatcher", "_version")

    def __init__(
        self,
        answer: list[Buffer] | Later | None,
        dispatcher: Dispatcher,
        api_key: int,
        version: int,
    ) -> None:
        self._answer = answer
        self._dispatcher = dispatcher
        self._api_key = api_key
        self._version = version

    @property
    def done(self) -> bool:
        """Whether there is a response, or certainly will be none."""
        return not isinstance(self._answer, Later) or self._answer.due.is_done

    @property
    def is_abandonable(self) -> bool:
        """Whether the request may be cancelled when its client disconnects."""
        return isinstance(self._answer, Later) and self._answer.abandon is not None

    @property
    def is_submitted(self) -> bool:
        """Whether a later, conflicting request may start, as this one's changes are submitted."""
        if not isinstance(self._answer, Later) or self._answer.context.submission is None:
            return True
        return self._answer.context.submission.is_done

    def cancel(self) -> None:
        """Cancel the request, as when its connection closes."""
        if isinstance(self._answer, Later) and self._answer.abandon is not None:
            self._answer.abandon()

    async def response(self) -> Response | None:
        """Wait for the response; None if there is none (acks=0)."""
        answer = self._answer
        if isinstance(answer, Later):
            await until_done(answer.due)
            buffers = self._dispatcher.encode(answer)
        else:
            buffers = answer
        if buffers is None:
            return None
        frame = b"".join(buffers)
        size = int.from_bytes(frame[:_LENGTH_BYTES], "big")
        if size != len(frame) - _LENGTH_BYTES:
            raise AssertionError(f"a frame of {len(frame) - _LENGTH_BYTES} bytes says {size}")
        return decode_response(frame[_LENGTH_BYTES:], self._api_key, self._version)[1]


class InProcessGateway:
    """A gateway and its dispatcher, over a memory backend by default; a context manager.

    Requests and responses are encoded and decoded, so that each response is valid in its version.
    """

    def __init__(
        self,
        config: Config | None = None,
        backend: Backend | None = None,
        clock: Clock | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.clock = ManualClock() if clock is None else clock
        self.gateway = Gateway(
            Config() if config is None else config,
            MemoryBackend() if backend is None else backend,
            self.clock,
            placement,
        )
        self.backend = self.gateway.backend
        """The storage backend."""
        self.placement = self.gateway.placement
        """Says which node has which partitions and coordinators."""
        self.catalog = self.gateway.catalog
        """The topics."""
        self.topic_manager = self.gateway.topic_manager
        """Creates, changes and deletes topics."""
        self.log_manager = self.gateway.log_manager
        """Applies retention and compaction."""
        self.fetch_sessions = self.gateway.fetch_sessions
        """The fetch sessions of all clients."""
        self.metrics = self.gateway.metrics
        """The counters and gauges."""
        self.internal_errors = self.gateway.internal_errors
        """The requests that failed because of bugs in kgw, by API."""
        self.placement.advertise({"PLAINTEXT": Listener("PLAINTEXT", "kgw.example", 9092)})
        self.dispatcher = Dispatcher(self.gateway)
        self.session = Session(client_host="192.0.2.1")
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Start the gateway. Raises the errors of `Gateway.start`."""
        await self.gateway.start()

    async def aclose(self) -> None:
        """Stop the gateway in order."""
        await self.gateway.aclose()

    def begin_to_stop(self) -> None:
        """Answer requests that wait for other clients, as a process does before it stops."""
        self.gateway.begin_to_stop()

    async def checkpoint(self) -> None:
        """Write a checkpoint, so that the next start has less work. Raises StorageError."""
        await self.gateway.checkpoint()

    async def sample_metrics(self, limit_s: float) -> None:
        """Update the sampled metrics, within `limit_s`."""
        await self.gateway.sample_metrics(limit_s)

    async def configure_broker(self, **configs: str | None) -> None:
        """Change settings durably while running; names have underscores instead of dots.

        Raises ConfigError, StorageError.
        """
        changed = {name.replace("_", "."): text for name, text in configs.items()}
        await self.gateway.configure_broker(lambda _: changed)

    @property
    def config(self) -> Config:
        """The present configuration."""
        return self.gateway.config

    @property
    def groups(self) -> GroupCoordinator:
        """The consumer groups."""
        return self.gateway.placement.ownerships[0].groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator."""
        return self.gateway.placement.ownerships[0].transactions

    @property
    def lag(self) -> LagMonitor:
        """Measures the lag of groups."""
        return self.gateway.lag

    @property
    def cold_reads(self) -> ColdReads:
        """Reads from the storage, for all Fetch requests."""
        return self.gateway.cold_reads

    @cold_reads.setter
    def cold_reads(self, cold_reads: ColdReads) -> None:
        self.gateway.cold_reads = cold_reads

    @property
    def answer_room(self) -> AnswerRoom:
        """The memory budget for Fetch responses."""
        return self.gateway.answer_room

    @answer_room.setter
    def answer_room(self, answer_room: AnswerRoom) -> None:
        self.gateway.answer_room = answer_room

    @property
    def problems(self) -> list[Problem]:
        """The problems that `/health/ready` reports."""
        return self.gateway.problems

    @property
    def manual_clock(self) -> ManualClock:
        """The manual clock, if no other clock was given."""
        return cast("ManualClock", self.clock)

    def start(
        self, message: Request, version: int, *, session: Session | None = None
    ) -> PendingResponse:
        """Start a request; do not wait for the response."""
        self._correlation_id += 1
        parts = request_frame(message, version, self._correlation_id, "in-process")
        frame = memoryview(bytearray(b"".join(parts)))[_LENGTH_BYTES:]
        answer = self.dispatcher.start(frame, session or self.session)
        return PendingResponse(answer, self.dispatcher, message.api_key, version)

    async def request(
        self, message: Request, version: int, *, session: Session | None = None
    ) -> Response:
        """Send a request, and return its response. Raises ProtocolError, like the dispatcher."""
        response = await self.start(message, version, session=session).response()
        if response is None:
            raise AssertionError(f"no response to {type(message).__name__} v{version}")
        return response

    async def ask(
        self, message: Request, version: int, response_type: type[ResponseT]
    ) -> ResponseT:
        """Like `request`, with the expected type of the response."""
        response = await self.request(message, version)
        if not isinstance(response, response_type):
            raise AssertionError(  # noqa: TRY004 - a test has failed, nobody passed a wrong type
                f"{type(response).__name__} instead of {response_type.__name__}"
            )
        return response

    def raw(self, frame: bytes) -> list[Buffer] | Later | None:
        """Give the dispatcher the bytes of a frame, without its length."""
        return self.dispatcher.start(memoryview(bytearray(frame)), self.session)
