"""What the clients of D10 may know of a crash."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.fetch import FetchResponse
from kgw.protocol.messages.init_producer_id import InitProducerIdResponse
from kgw.protocol.messages.produce import ProduceResponse
from kgw.testing.batches import StoredRecord, make_batch, read_stored
from kgw.testing.gateway import InProcessGateway
from tests.campaigns.retries import Failpoint, KeptState
from tests.campaigns.retry_clients import Batch, Clients, Crash, Life
from tests.campaigns.support import Report
from tests.findings import findings_of, unplanted
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from kgw.protocol.schema import Request
    from kgw.testing.gateway import PendingResponse


def test_nobody_goes_on_while_the_picture_is_taken() -> None:
    """A crash has come when what the clients knew is copied, not when the disk has been, too."""
    seen: list[bool] = []

    class WatchedFs(SimulatedFs):
        def clone(self) -> SimulatedFs:
            seen.append(crash.has_come)
            return super().clone()

    random = Random(1)
    crash = Failpoint(random, Clients(random), WatchedFs(), KeptState(), is_kill=True)
    crash.come()
    assert [True] == seen


def test_a_batch_that_nobody_has_answered_is_a_finding() -> None:
    """The end of a life names the batch whose answer never came."""
    clients = Clients(Random(1))
    batch = Batch(7, 0, 3, (b"1.",))
    clients.sent[7, 0] = [batch]
    assert ["UNANSWERED: producer 7 partition 0 sequence 3"] == list(clients.check({0: []}))


# --- each kind of finding, alone ------------------------------------------------------------------

FIRST, SECOND = Batch(7, 0, 0, (b"1.", b"2.")), Batch(7, 0, 2, (b"3.",))
OTHER = Batch(8, 1, 0, (b"4.",))
ANSWERED = {FIRST: 0, SECOND: 2, OTHER: 0}
STORED = {0: [(0, b"1."), (1, b"2."), (2, b"3.")], 1: [(0, b"4.")]}


class Case(NamedTuple):
    """What is stored in the partitions, and what is said of it."""

    stored: dict[int, list[tuple[int, bytes]]]
    said: list[str]
    answered: dict[Batch, int] = ANSWERED


WRONG = {
    "stored again": Case(
        {**STORED, 1: [(0, b"4."), (1, b"4.")]},
        [
            "DUPLICATE: b'4.' is stored 2 times",
            "MOVED: producer 8 partition 1 sequence 0 is at 1, answered 0",
        ],
    ),
    "stored before": Case(
        {**STORED, 1: [(0, b"4."), (1, b"4.")]},
        ["DUPLICATE: b'4.' is stored 2 times"],
        {**ANSWERED, OTHER: 1},
    ),
    "never answered": Case(
        STORED,
        ["UNANSWERED: producer 8 partition 1 sequence 0", "PHANTOM: b'4.', which nobody has sent"],
        {FIRST: 0, SECOND: 2},
    ),
    "lost": Case(
        {**STORED, 1: []}, ["LOST: producer 8 partition 1 sequence 0 was answered with 0"]
    ),
    "the last record of a batch is lost": Case(
        {**STORED, 0: [(0, b"1."), (2, b"3.")]},
        ["LOST: producer 7 partition 0 sequence 0 was answered with 1"],
    ),
    "moved": Case(
        {**STORED, 1: [(3, b"4.")]},
        ["MOVED: producer 8 partition 1 sequence 0 is at 3, answered 0"],
    ),
    "in another order than it was sent": Case(
        {**STORED, 0: [(0, b"3."), (1, b"1."), (2, b"2.")]},
        ["OUT OF ORDER: producer 7 partition 0 sequence 2 is at 0, after 2"],
        {**ANSWERED, FIRST: 1, SECOND: 0},
    ),
    "sent by nobody": Case(
        {**STORED, 1: [(0, b"4."), (1, b"x")]}, ["PHANTOM: b'x', which nobody has sent"]
    ),
}
FINE = {
    "all of it": Case(STORED, []),
    "offsets are left out": Case(
        {**STORED, 0: [(0, b"1."), (1, b"2."), (9, b"3.")]}, [], {**ANSWERED, SECOND: 9}
    ),
}


@pytest.mark.parametrize("what", [*FINE, *WRONG])
def test_what_is_wrong_with_a_log_is_found_by_its_name(what: str) -> None:
    """Each thing alone; and nothing is said where everything is as it was answered."""
    stored, said, answered = (FINE | WRONG)[what]
    clients = Clients(Random(1))
    clients.sent = {(7, 0): [FIRST, SECOND], (8, 1): [OTHER]}
    clients.answered = dict(answered)
    found = {
        number: [_record(offset, value) for offset, value in records]
        for number, records in stored.items()
    }
    assert said == list(clients.check(found))


def _record(offset: int, value: bytes) -> StoredRecord:
    (record,) = read_stored([bytes(make_batch([value]).buffer)])
    return record._replace(offset=offset)


class _TakenAtTheEnd(Crash):
    """Comes when the life is over."""

    has_come = False
    came_at = ""

    def arm(self) -> str:
        return "nowhere"

    def answer(self) -> None:
        pass

    def come(self) -> None:
        self.has_come = True


class AlteredLife(Life):
    """Lives of one gateway that nothing befalls, of which one kind of answer is altered."""

    def __init__(self, report: Report) -> None:
        random = Random(3)
        super().__init__(report, random, Clients(random), is_relaxed=False)
        self.gateway = InProcessGateway()
        self.altered = ""

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self._crash = _TakenAtTheEnd()
        yield

    def _start(self, request: Request, version: int) -> Awaitable[Any]:
        return self._answer_to(self.gateway.start(request, version))

    async def _answer_to(self, pending: PendingResponse) -> Any:
        response: Any = await pending.response()
        match self.altered, response:
            case "id", InitProducerIdResponse():
                response.producer_id = 5
            case "offset", ProduceResponse():
                response.responses[0].partition_responses[0].base_offset += 1
            case "produce", ProduceResponse():
                refused = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                response.responses[0].partition_responses[0].error_code = refused
            case "fetch", FetchResponse():
                broken = ErrorCode.KAFKA_STORAGE_ERROR
                response.responses[0].partitions[0].error_code = broken
        return response

    async def _checkpoint(self) -> None:
        pass


ALTERED = {
    "id": r"producer id 5 was HANDED OUT TWICE",
    "offset": r"MOVED: producer \d+ partition . sequence \d+ was stored at (\d+), now answered \d+",
    "produce": r"OUT_OF_ORDER_SEQUENCE_NUMBER for producer \d+ partition . sequence \d+",
    "fetch": r"KAFKA_STORAGE_ERROR for a fetch at \d+",
}


@pytest.mark.slow
@pytest.mark.parametrize("altered", ["", *ALTERED])
async def test_what_clients_are_told_is_judged(altered: str) -> None:
    """What a gateway answers otherwise from some life on is the first thing that is found."""
    report = Report("retries", 1)
    life = AlteredLife(report)
    async with life.gateway:
        await life.run(is_first=True)
        assert [] == report.failures
        life.altered = altered
        for _ in range(8):
            await life.run(is_first=False)
    report.require("retries_of_answered_batches", 1)
    if not altered:
        report.conclude()
    else:
        assert re.fullmatch(ALTERED[altered], report.failures[0])


def test_everything_that_is_said_of_retries_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    examples = [said for case in WRONG.values() for said in case.said]
    assert [] == unplanted([Clients.check], examples)
    texts = [one.text for one in findings_of(Life)]
    assert {text.strip("… ").partition(" …")[0] for text in texts} == {
        "producer id",
        "MOVED:",
        "for",
        "for a fetch at",
    }
    assert len(ALTERED) == len(texts)
