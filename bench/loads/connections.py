"""Clients that only wait: connections that idle, and long polls at the end of a partition."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.loads.frames import API_VERSIONS_V0, Address, connect, fetch_frame
from bench.loads.poller import Wire

if TYPE_CHECKING:
    from bench.loads.poller import Poller

AT_A_TIME = 40
"""Kafka's backlog is 50: more at once would wait for a SYN to be sent again."""


def open_idle(address: Address, count: int) -> list[socket.socket]:
    """Connections that have asked ApiVersions once, as a client has that then idles."""
    held: list[socket.socket] = []
    while len(held) < count:
        opened = [connect(address) for _ in range(min(AT_A_TIME, count - len(held)))]
        held += opened
        for connection in opened:
            connection.sendall(API_VERSIONS_V0)
        for connection in opened:
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            assert len(connection.recv(size, socket.MSG_WAITALL)) == size
    return held


class LongPolls:
    """A Fetch on each of some connections, sent again as soon as it is answered.

    They are spread evenly over `wait_ms`: polls that all began at once would stay together, and so
    be cheaper than those of clients that know nothing of each other.
    """

    def __init__(
        self, poller: Poller, topic: str, count: int, wait_ms: int, partitions: int
    ) -> None:
        self.answered = 0
        self._polls = [
            (Wire(poller), fetch_frame(topic, number % partitions, wait_ms))
            for number in range(count)
        ]
        self._answer_bytes = 0
        began_s = time.perf_counter()
        for number, (wire, frame) in enumerate(self._polls):
            wire.on_frame = partial(self._again, wire, frame)
            poller.at(began_s + wait_ms / 1000 * number / count, partial(wire.send, frame))

    def _again(self, wire: Wire, frame: bytearray, answer: bytearray) -> None:
        # All are empty and alike; an error at either level would make one shorter or longer.
        self._answer_bytes = self._answer_bytes or len(answer)
        assert len(answer) == self._answer_bytes, (
            f"{len(answer)} bytes, {self._answer_bytes} before"
        )
        assert answer[8:10] == b"\0\0", f"Fetch was answered with {answer[8:10].hex()}"
        self.answered += 1
        wire.send(frame)
