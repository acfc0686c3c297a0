"""A TCP proxy that is a bad network: it cuts, delays, drips, half-closes and resets.

It runs in a thread of its own. What holds for all connections holds for those to come, too.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Result = TypeVar("_Result")

_READ_BYTES = 65_536
_LINGER_NOT = struct.pack("ii", 1, 0)
_CALL_S = 30.0


class Way(NamedTuple):
    """What becomes of the bytes that go in one direction."""

    is_cut: bool = False
    """Nothing passes. It is not lost: it comes when the way is whole again, as TCP does it."""
    delay_s: float = 0.0
    """So much later, and up to twice that for what comes meanwhile."""
    piece_bytes: int = 0
    """Only so many at a time, each delayed; 0 for all that there is."""


class Rule(NamedTuple):
    """Both directions of a connection."""

    to_server: Way = Way()
    to_client: Way = Way()


HEALTHY = Rule()


class Link:
    """One connection through the proxy. For the proxy's thread alone."""

    def __init__(
        self,
        number: int,
        rule: Rule,
        counts: Counter[str],
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.number = number
        self._rule = rule
        self._counts = counts
        self._changed = asyncio.Event()
        self._writers = {"to_server": server[1], "to_client": client[1]}
        self._pumps = {
            "to_server": asyncio.ensure_future(self._pump(client[0], "to_server")),
            "to_client": asyncio.ensure_future(self._pump(server[0], "to_client")),
        }

    async def run(self) -> None:
        """Return when both directions have ended."""
        await asyncio.wait(self._pumps.values())
        for writer in self._writers.values():
            writer.close()

    def set_rule(self, rule: Rule) -> None:
        """Have another rule hold from now on."""
        self._rule = rule
        self._changed.set()
        self._changed = asyncio.Event()

    def reset(self) -> bool:
        """End it at once on both sides, with a reset; whether one of them was open."""
        is_open = False
        for way, writer in self._writers.items():
            self._pumps[way].cancel()
            if not writer.transport.is_closing():
                is_open = True
                plain = writer.get_extra_info("socket")
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                writer.transport.abort()
        return is_open

    def half_close(self, way: str) -> bool:
        """End one direction, so that its reader is told of an end; whether it was open."""
        self._pumps[way].cancel()
        is_open = not self._writers[way].transport.is_closing()
        if is_open:
            self._writers[way].write_eof()
        return is_open

    async def _pump(self, reader: asyncio.StreamReader, way: str) -> None:
        writer = self._writers[way]
        try:
            while data := await reader.read(_READ_BYTES):
                await self._delay(way)
                while data:
                    if self._way(way).is_cut:
                        self._counts["cut"] += 1
                    await self._uncut(way)
                    size_bytes = self._way(way).piece_bytes or len(data)
                    piece, data = data[:size_bytes], data[size_bytes:]
                    writer.write(piece)
                    await writer.drain()
                    if data:
                        await self._delay(way)
            await self._uncut(way)
            writer.write_eof()
        except OSError:
            self.reset()

    def _way(self, name: str) -> Way:
        return self._rule.to_server if name == "to_server" else self._rule.to_client

    async def _delay(self, way: str) -> None:
        delay_s = self._way(way).delay_s
        if delay_s:
            self._counts["delay"] += 1
        await asyncio.sleep(delay_s)

    async def _uncut(self, way: str) -> None:
        while self._way(way).is_cut:
            await self._changed.wait()


class Proxy:
    """Listens on a port of its own, and connects to `target` for each who connects."""

    def __init__(self, target: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.target = target
        self.host = "127.0.0.1"
        self.port = 0
        self.accepted = 0
        self.counts: Counter[str] = Counter()
        """How often bytes met a "cut" or a "delay", and how many open connections a "reset"."""
        self._rule = HEALTHY
        self._links: dict[int, Link] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def links(self) -> list[int]:
        """The numbers of the connections that are there, oldest first."""
        return self._call(lambda: list(self._links))

    def set_rule(self, rule: Rule, links: Iterable[int] | None = None) -> None:
        """Have a rule hold for some connections, or for all and those to come."""

        def change() -> None:
            if links is None:
                self._rule = rule
            for link in self._some(links):
                link.set_rule(rule)

        self._call(change)

    def heal(self) -> None:
        """Be a good network again."""
        self.set_rule(HEALTHY)

    def reset(self, links: Iterable[int] | None = None) -> int:
        """Reset some connections, or all; returns how many."""

        def change() -> int:
            some = self._some(links)
            return self._ended([link.reset() for link in some])

        return self._call(change)

    def half_close(self, way: str, links: Iterable[int] | None = None) -> int:
        """End one direction, "to_server" or "to_client", of some or all; returns of how many."""

        def change() -> int:
            some = self._some(links)
            return self._ended([link.half_close(way) for link in some])

        return self._call(change)

    def _ended(self, were_open: list[bool]) -> int:
        self.counts["reset"] += sum(were_open)
        return sum(were_open)

    def _some(self, links: Iterable[int] | None) -> list[Link]:
        numbers = list(self._links) if links is None else links
        return [self._links[number] for number in numbers if number in self._links]

    def _call(self, function: Callable[[], _Result]) -> _Result:
        """Do something in the proxy's thread."""

        async def run() -> _Result:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(patience.seconds(_CALL_S))

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self.accepted += 1
        link = Link(self.accepted, self._rule, self.counts, (reader, writer), server)
        self._links[link.number] = link
        try:
            await link.run()
        finally:
            del self._links[link.number]

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._take, self.host, 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(
            patience.seconds(_CALL_S)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(patience.seconds(_CALL_S))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience.seconds(_CALL_S))
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for link in self._links.values():
            link.reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_CALL_S)
