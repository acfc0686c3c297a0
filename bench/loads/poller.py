"""Many connections that wait for answers and for times: one thread, one epoll, one heap of timers.

Times are perf_counter seconds, taken before a frame is sent and after it was read: what they say of
a server has the kernel's and the generator's own part in it.
"""

from __future__ import annotations

import heapq
import resource
import select
import struct
import time
from typing import TYPE_CHECKING, Self

from bench.loads.frames import API_VERSIONS_V0, CORRELATION_ID_AT, Address, connect, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

STUCK_S = 60.0

_INT32 = struct.Struct(">i")


def allow_connections(count: int) -> None:
    """Let this process hold so many. Raises RuntimeError where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 100:
        raise RuntimeError(f"{count} connections are wanted and only {hard} descriptors allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1_000)), hard))


class Wire:
    """A connection that is read when the poller says so."""

    def __init__(self, poller: Poller) -> None:
        self.socket = connect(poller.address)
        # As clients do; and a server that accepts slowly (Kafka's backlog is 50) drops no SYN.
        exchange(self.socket, API_VERSIONS_V0)
        self.received = bytearray()
        self.on_frame: Callable[[bytearray], None] = lambda _: None
        poller.add(self)

    def send(self, frame: bytearray, correlation_id: int = 0) -> None:
        """Send one frame; a request is never larger than what the kernel takes."""
        _INT32.pack_into(frame, CORRELATION_ID_AT, correlation_id)
        self.socket.sendall(frame)

    def read(self) -> None:
        """Read what has come and hand over the frames, without their length."""
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise ConnectionError("the server closed a connection")
        received = self.received
        received += chunk
        while len(received) >= _INT32.size:
            end = _INT32.size + _INT32.unpack_from(received)[0]
            if len(received) < end:
                break
            frame = received[_INT32.size : end]
            del received[:end]
            self.on_frame(frame)


class Poller:
    """All connections of one load, and what is to be done at which time."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._epoll = select.epoll()
        self._wires: dict[int, Wire] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0

    def add(self, wire: Wire) -> None:
        """Read this connection from now on."""
        self._wires[wire.socket.fileno()] = wire
        self._epoll.register(wire.socket, select.EPOLLIN)

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        """Call something at a time of perf_counter."""
        self._timer_count += 1
        heapq.heappush(self._timers, (when_s, self._timer_count, call))

    def run(self, is_done: Callable[[], bool]) -> None:
        """Read and call until it is done. Raises TimeoutError when nothing comes any more."""
        heard_s = time.perf_counter()
        while not is_done():
            now_s = time.perf_counter()
            while self._timers and self._timers[0][0] <= now_s:
                heapq.heappop(self._timers)[2]()
            wait_s = max(0.0, self._timers[0][0] - now_s) if self._timers else 1.0
            ready = self._epoll.poll(min(wait_s, 1.0))
            for descriptor, _ in ready:
                self._wires[descriptor].read()
            if ready:
                heard_s = time.perf_counter()
            elif time.perf_counter() - heard_s > STUCK_S:
                raise TimeoutError("the server answers no more")

    def run_until(self, end_s: float) -> None:
        """Read and call until a time of perf_counter."""
        self.at(end_s, lambda: None)
        self.run(lambda: time.perf_counter() >= end_s)

    def close(self) -> None:
        """Close every connection."""
        for wire in self._wires.values():
            wire.socket.close()
        self._epoll.close()
        self._wires.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
