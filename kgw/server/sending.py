"""Answers on their way to one client, and how many bytes of them it has not taken yet.

Three things bound them. Once the transport holds `kgw.unsent.bytes.max`, it pauses the connection,
which then starts no request. A client that takes nothing for a while is dropped (`unsent_since`).
And the answer of a Fetch is the smaller, the less all connections together have left of
`kgw.partitions.read.answer_room`, which counts what is not taken yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Callable

    from kgw.metrics import Metrics
    from kgw.types import Buffer

# Answers are written together, up to so many bytes: what is not written yet is memory that no
# limit sees. Below it they are copied into one piece, which costs less than a gather write.
WRITE_BYTES = 64 << 10


class Sender:
    """Hands answers to a transport, those of one turn of the loop together."""

    __slots__ = (
        "_metrics",
        "_note_sent",
        "_progress_s",
        "_sent_bytes",
        "_taken_bytes",
        "_transport",
        "_waiting_bytes",
        "is_paused",
        "unsent_bytes",
        "waiting",
    )

    def __init__(
        self, transport: Transport, metrics: Metrics, note_sent: Callable[[int], None]
    ) -> None:
        """`note_sent` is told of each large write."""
        self.is_paused = False
        """Whether the client has left as much as may be left."""
        self.unsent_bytes = 0
        """What the client had not taken when that was looked at last."""
        self._transport = transport
        self._metrics = metrics
        self._note_sent = note_sent
        self.waiting: list[Buffer] = []
        """What leaves with the next `flush`."""
        self._waiting_bytes = 0
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._progress_s = 0.0

    def add(self, buffers: list[Buffer]) -> None:
        """Take an answer, which leaves with the next `flush` at the latest."""
        for buffer in buffers:
            self._waiting_bytes += len(buffer)
        self.waiting += buffers
        if self._waiting_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the transport."""
        if not self.waiting:
            return
        buffers, self.waiting = self.waiting, []
        size, self._waiting_bytes = self._waiting_bytes, 0
        self._sent_bytes += size
        self._metrics.bytes_sent += size
        transport = self._transport
        if transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif size < WRITE_BYTES:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)
        if size >= WRITE_BYTES:
            self._note_sent(size)
            self.count_unsent()

    def count_unsent(self) -> None:
        """Look at what the client has not taken; it takes more, unnoticed, until the next look."""
        self.note_unsent(self._transport.get_write_buffer_size())

    def note_unsent(self, unsent_bytes: int) -> None:
        """Count so much as not taken, for all connections together."""
        self._metrics.unsent_bytes += unsent_bytes - self.unsent_bytes
        self.unsent_bytes = unsent_bytes

    def unsent_since(self, now_s: float) -> float | None:
        """Return since when the client has taken nothing of what there is; None if it has all."""
        self.count_unsent()
        if not self.unsent_bytes:
            self._progress_s = 0.0
            return None
        taken_bytes = self._sent_bytes - self.unsent_bytes
        if taken_bytes != self._taken_bytes or not self._progress_s:
            self._taken_bytes = taken_bytes
            self._progress_s = now_s
        return self._progress_s
