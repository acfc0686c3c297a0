"""The gateways of one process, one after the other, over the connections that clients hold."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING, Self

import pytest

from kgw import app
from kgw.backend.lease import LeaseStatus
from kgw.backend.memory import MemoryBackend
from kgw.client.connection import Connection
from kgw.clock import SystemClock
from kgw.config import Config, Listener, Node
from kgw.errors import ErrorCode, StorageError
from kgw.metrics import Metrics
from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests import patience
from tests.leases import lease_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.timeout(60)


class TermBackend(MemoryBackend):
    """A backend that leads at once, or stands by until a test lets its start go on or fail."""

    def __init__(self, status: LeaseStatus) -> None:
        super().__init__()
        self.said = lease_of(self, status)
        self.opens: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if status is LeaseStatus.LEADING:
            self.opens.set_result(None)

    async def open(self) -> None:
        await self.opens
        await super().open()


class Terms:
    """A process whose backends lead or stand by as a test tells them, and one connection to it."""

    connection: Connection

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backends: list[TermBackend] = []
        self._made = asyncio.Event()
        self._ready = asyncio.Event()
        self._bound: Sequence[Listener] = ()
        for limit in ("NAMES_LEADER_S", "RETRY_S"):
            monkeypatch.setattr(app, limit, 0.0)
        monkeypatch.setattr("kgw.backend.registry.open_backend", self._open_backend)
        monkeypatch.setattr("kgw.server.announcement.announce", self._announce)
        self._process = app.ServerProcess(
            Config.of(listeners=("127.0.0.1:0",), node_id=2, backend="memory"),
            SystemClock(),
            None,
            None,
            Metrics(),
            is_json=False,
            takes_over=False,
        )

    def _open_backend(self, *_: object) -> TermBackend:
        status = LeaseStatus.STANDBY if self.backends else LeaseStatus.LEADING
        self.backends.append(TermBackend(status))
        self._made.set()
        return self.backends[-1]

    def _announce(self, _: object, bound: Sequence[Listener], *__: object, **___: object) -> None:
        self._bound = bound
        self._ready.set()

    async def __aenter__(self) -> Self:
        self._serving = asyncio.ensure_future(self._process.serve())
        await self._ready.wait()
        self.connection = await Connection.open(self._bound[0].host, self._bound[0].port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.aclose()
        signal.raise_signal(signal.SIGTERM)
        await self._serving

    async def until_made(self, count: int) -> TermBackend:
        """Return the backend of a term, counted from 1."""
        while len(self.backends) < count:
            self._made.clear()
            await self._made.wait()
        return self.backends[count - 1]

    async def until_coordinator(self, code: ErrorCode, port: int) -> None:
        """Ask for the coordinator of a group until the answer has this error code and port."""
        limit = patience.Limit(20)
        while True:
            answer = await self.connection.ask(
                FindCoordinatorRequest(key="group"), FindCoordinatorResponse, version=3
            )
            if (answer.error_code, answer.port) == (code, port):
                return
            assert not limit.is_over, answer
            await asyncio.sleep(0.01)


@pytest.fixture
def terms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terms]:
    """Terms whose process leaves Python's garbage collector as it was."""
    threshold = gc.get_threshold()
    yield Terms(monkeypatch)
    gc.unfreeze()
    gc.set_threshold(*threshold)


def leader(port: int) -> Node:
    """Return another node that leads."""
    return Node(7, {"PLAINTEXT": Listener("PLAINTEXT", "127.0.0.1", port)})


async def test_a_gateway_whose_start_failed_answers_no_longer(terms: Terms) -> None:
    """The next one, which stands by, answers over the connections that are open.

    Before it has looked at the lease, it answers nothing as a coordinator: an offset of -1 would
    send a consumer back to the beginning of its partition.
    """
    async with terms:
        terms.backends[0].said.become(LeaseStatus.LOST, leader(1))
        second = await terms.until_made(2)
        await terms.until_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        answer = await terms.connection.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)]),
            OffsetFetchResponse,
            version=8,
        )
        assert [ErrorCode.NOT_COORDINATOR] == [group.error_code for group in answer.groups]

        second.said.become(LeaseStatus.LEADING)
        second.opens.set_exception(StorageError("the filer is gone"))
        third = await terms.until_made(3)
        third.said.become(LeaseStatus.STANDBY, leader(2))
        await terms.until_coordinator(ErrorCode.NONE, 2)

        # It leads in its turn, and names itself.
        third.said.become(LeaseStatus.LEADING)
        third.opens.set_result(None)
        await terms.until_coordinator(ErrorCode.NONE, terms.connection.port)
