"""What may become of a request and its answer between a client and a server.

`Network` draws a fate for each; `Trap` strikes certain requests on purpose. Neither knows what is
in them, or how they are sent.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

AnswerT = TypeVar("AnswerT")

_LEAST_DELAY_S: Final = 0.02
LONGEST_DELAY_S: Final = 1.5


class Fate(StrEnum):
    """What becomes of a request and its answer."""

    PASSED = "passed"
    REQUEST_DROPPED = "request_dropped"
    ANSWER_DROPPED = "answer_dropped"
    REQUEST_DELAYED = "request_delayed"
    ANSWER_DELAYED = "answer_delayed"
    REQUEST_LATE = "request_late"
    """The client is told that its connection has ended, and then the request arrives."""
    DOUBLED = "doubled"
    """It arrives twice at once; the client gets the answer to the second."""
    REPEATED = "repeated"
    """It arrives a second time, when it has been answered."""


FAULTS: Final = tuple(fate for fate in Fate if fate is not Fate.PASSED)


class Network:
    """Draws fates, and has requests suffer them."""

    def __init__(
        self, random: Random, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        """It begins without faults."""
        self.rate = 0.0
        """How many of the fates are faults."""
        self.counts: Counter[str] = Counter()
        """Faults, as "UpdateEntry answer_dropped" and "chunk doubled"."""
        self._random = random
        self._sleep = sleep
        self._late: set[asyncio.Task[None]] = set()

    async def deliver(self, what: str, send: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Send a request and return what its client gets; None when that loses its connection."""
        fate = Fate.PASSED
        if self._random.random() < self.rate:
            fate = self._random.choice(FAULTS)
            self.counts[f"{what} {fate}"] += 1
        return await self.suffer(fate, send)

    async def suffer(self, fate: Fate, send: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Have a request suffer a fate; return as `deliver` does."""
        delay_s = self._random.uniform(_LEAST_DELAY_S, LONGEST_DELAY_S)
        if fate is Fate.REQUEST_DROPPED:
            return None
        if fate is Fate.REQUEST_LATE:
            self._later(delay_s, send)
            return None
        if fate is Fate.REQUEST_DELAYED:
            await self._sleep(delay_s)
        if fate is Fate.DOUBLED:
            _, answer = await asyncio.gather(send(), send())
            return answer
        answer = await send()
        if fate is Fate.REPEATED:
            self._later(delay_s, send)
        if fate is Fate.ANSWER_DELAYED:
            await self._sleep(delay_s)
        return None if fate is Fate.ANSWER_DROPPED else answer

    async def arrived(self) -> None:
        """Wait until everything that is late has arrived."""
        if self._late:
            await asyncio.wait(self._late)

    def _later(self, delay_s: float, send: Callable[[], Awaitable[object]]) -> None:
        async def arrive() -> None:
            await self._sleep(delay_s)
            await send()

        task = asyncio.ensure_future(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)


class Trap(Generic[AnswerT]):
    """Strikes the next change at each of some places, and then keeps the place as that left it.

    `REQUEST_DROPPED`: it never arrives. `ANSWER_DROPPED`: it arrives, its answer does not, and the
    next change that is tried is answered. `REQUEST_LATE`: its client loses the connection, and it
    arrives behind the second change that is made afterwards: behind itself, sent again, and behind
    one that came after it. Nothing that is changed later may hide what that did, so nothing is.
    """

    def __init__(self, fate: Fate, places: int, is_done: Callable[[AnswerT], bool]) -> None:
        """`is_done` says whether an answer is that a change was made."""
        self.sprung = threading.Event()
        """Set when every place has been struck, and what follows has happened."""
        self.late_done = 0
        """Changes that were made although others had overtaken them."""
        self.late_refused = 0
        self._fate = fate
        self._left = places
        self._is_done = is_done
        self._struck: dict[str, Callable[[], Awaitable[AnswerT]]] = {}
        self._overtaken: Counter[str] = Counter()
        self._over: set[str] = set()

    async def deliver(self, place: str, send: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Send a change of a place, or not; None when its client loses its connection."""
        if place in self._over:
            return None
        if place not in self._struck:
            self._struck[place] = send
            if self._fate is Fate.ANSWER_DROPPED:
                await send()
            if self._fate is Fate.REQUEST_DROPPED:
                self._is_over(place)
            return None
        answer = await send()
        if self._fate is Fate.REQUEST_LATE:
            self._overtaken[place] += self._is_done(answer)
            if self._overtaken[place] < 2:
                return answer
            if self._is_done(await self._struck[place]()):
                self.late_done += 1
            else:
                self.late_refused += 1
        self._is_over(place)
        return answer

    def _is_over(self, place: str) -> None:
        self._over.add(place)
        if len(self._over) >= self._left:
            self.sprung.set()
