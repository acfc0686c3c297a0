"""What becomes of requests on a bad network, and what a trap strikes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.campaigns.request_fates import FAULTS, Fate, Network, Trap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PLACE = "/topics/kafka/t/v/0000-0031/file"


class Server:
    """Numbers the requests that arrive, and answers with the number."""

    def __init__(self) -> None:
        self.arrived: list[str] = []

    def request(self, name: str = "r") -> Callable[[], Awaitable[str]]:
        """Return what sends a request."""

        async def send() -> str:
            self.arrived.append(name)
            return f"{name}{len(self.arrived)}"

        return send


@pytest.fixture
def server() -> Server:
    """A server that nothing has reached."""
    return Server()


async def _no_sleep(_: float) -> None:
    """Time passes at once."""


@pytest.fixture
def network() -> Network:
    """A network on which every delay is over at once."""
    return Network(Random(1), _no_sleep)


@pytest.mark.parametrize(
    ("fate", "answer", "arrivals"),
    [
        (Fate.PASSED, "r1", 1),
        (Fate.REQUEST_DROPPED, None, 0),
        (Fate.ANSWER_DROPPED, None, 1),
        (Fate.REQUEST_DELAYED, "r1", 1),
        (Fate.ANSWER_DELAYED, "r1", 1),
        (Fate.REQUEST_LATE, None, 1),
        (Fate.DOUBLED, "r2", 2),
        (Fate.REPEATED, "r1", 2),
    ],
)
async def test_each_fate(
    network: Network, server: Server, fate: Fate, answer: str | None, arrivals: int
) -> None:
    """A fate decides what the client gets and how often the request arrives."""
    assert answer == await network.suffer(fate, server.request())
    await network.arrived()
    assert arrivals == len(server.arrived)


async def test_no_faults_at_first(network: Network, server: Server) -> None:
    """Everything passes until a rate is set."""
    for _ in range(100):
        assert await network.deliver("look_up", server.request()) is not None
    assert not network.counts


async def test_faults_are_counted(network: Network, server: Server) -> None:
    """At a rate of 1 each request has a fault, counted by what was asked."""
    network.rate = 1.0
    for _ in range(200):
        await network.deliver("UpdateEntry", server.request())
    assert {f"UpdateEntry {fate}" for fate in FAULTS} == set(network.counts)
    assert 200 == network.counts.total()
    await network.arrived()


def _is_done(answer: str) -> bool:
    return "refused" not in answer


async def test_a_late_change_comes_behind_the_next_but_one(server: Server) -> None:
    """It is held until it was sent again and another was made, then delivered; no more passes."""
    trap = Trap(Fate.REQUEST_LATE, 1, _is_done)
    assert await trap.deliver(PLACE, server.request("first")) is None
    assert [] == server.arrived
    assert await trap.deliver(PLACE, server.request("again")) is not None
    assert not trap.sprung.is_set()
    assert await trap.deliver(PLACE, server.request("second")) is not None
    assert ["again", "second", "first"] == server.arrived
    assert trap.sprung.is_set()
    assert (1, 0) == (trap.late_done, trap.late_refused)
    assert await trap.deliver(PLACE, server.request("third")) is None
    assert 3 == len(server.arrived)


async def test_refused_changes_overtake_nothing(server: Server) -> None:
    """What a server refuses is no change that a late one comes behind."""
    trap = Trap(Fate.REQUEST_LATE, 1, _is_done)
    await trap.deliver(PLACE, server.request("refused"))
    for _ in range(3):
        await trap.deliver(PLACE, server.request("refused"))
    assert not trap.sprung.is_set()
    await trap.deliver(PLACE, server.request("a"))
    await trap.deliver(PLACE, server.request("b"))
    assert trap.sprung.is_set()
    assert (0, 1) == (trap.late_done, trap.late_refused)


async def test_an_answer_that_is_dropped(server: Server) -> None:
    """The change is made, its client does not know, and the next one is answered."""
    trap = Trap(Fate.ANSWER_DROPPED, 1, _is_done)
    assert await trap.deliver(PLACE, server.request("first")) is None
    assert ["first"] == server.arrived
    assert await trap.deliver(PLACE, server.request("second")) is not None
    assert trap.sprung.is_set()
    assert await trap.deliver(PLACE, server.request("third")) is None
    assert ["first", "second"] == server.arrived


async def test_a_request_that_is_dropped(server: Server) -> None:
    """Nothing arrives at the place from then on; the trap waits for all its places."""
    trap = Trap(Fate.REQUEST_DROPPED, 2, _is_done)
    assert await trap.deliver(PLACE, server.request()) is None
    assert not trap.sprung.is_set()
    assert await trap.deliver("elsewhere", server.request()) is None
    assert trap.sprung.is_set()
    assert [] == server.arrived
