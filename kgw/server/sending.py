"""Sends answers to one client, and counts the bytes that the client has not read.

`Sender` is for plain connections, `kgw.server.encrypted_sending` for TLS.

Three limits apply. When the transport has `kgw.unsent.bytes.max` unread bytes, it pauses the
connection, which then starts no request. A client that reads no bytes for a while is dropped
(`unsent_since`). `kgw.partitions.read.answer_room` counts the unread bytes of all connections, and
makes answers to Fetch smaller if there are many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Callable

    from kgw.metrics import Metrics
    from kgw.types import Buffer

# Answers are written together up to this size, as no limit counts unwritten bytes. Smaller answers
# are copied into one buffer, which costs less than a gather write.
WRITE_BYTES = 64 << 10


class Sender:
    """Passes answers to a transport; answers of one turn of the loop together."""

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
        """`note_sent` is called for each large write."""
        self.is_paused = False
        """Whether the client's unread bytes have reached the limit."""
        self.unsent_bytes = 0
        """The number of bytes that the client had not read at the last check."""
        self._transport = transport
        self._metrics = metrics
        self._note_sent = note_sent
        self.waiting: list[Buffer] = []
        """The buffers that the next `flush` sends."""
        self._waiting_bytes = 0
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._progress_s = 0.0

    def limit(self, unsent_bytes: int) -> None:
        """Pause at this number of unread bytes, and resume at half of it."""
        self._transport.set_write_buffer_limits(high=unsent_bytes, low=unsent_bytes // 2)

    @property
    def holds_answers(self) -> bool:
        """Whether answers are left that the transport does not have yet."""
        return False

    def add(self, buffers: list[Buffer]) -> None:
        """Add an answer, which the next `flush` sends at the latest."""
        for buffer in buffers:
            self._waiting_bytes += len(buffer)
        self.waiting += buffers
        if self._waiting_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Pass all buffers to the transport."""
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

    def pause(self) -> None:
        """Note that the transport has reached its limit."""
        self.is_paused = True

    def resume(self) -> None:
        """Note that the transport has room again."""
        self.is_paused = False

    def hand_over(self) -> None:
        """Pass all answers to the transport, whatever its room, as it accepts no others."""
        self.flush()

    def discard(self) -> None:
        """Forget the unread bytes, as the connection is lost."""
        self.note_unsent(0)

    def count_unsent(self) -> None:
        """Update the number of unread bytes.

        Later reads of the client show only at the next update.
        """
        self.note_unsent(self._transport.get_write_buffer_size())

    def note_unsent(self, unsent_bytes: int) -> None:
        """Set the number of unread bytes, here and in the total of all connections."""
        self._metrics.unsent_bytes += unsent_bytes - self.unsent_bytes
        self.unsent_bytes = unsent_bytes

    def unsent_since(self, now_s: float) -> float | None:
        """Return since when the client has read no bytes; None if it has read all."""
        self.count_unsent()
        if not self.unsent_bytes:
            self._progress_s = 0.0
            return None
        taken_bytes = self._sent_bytes - self.unsent_bytes
        if taken_bytes != self._taken_bytes or not self._progress_s:
            self._taken_bytes = taken_bytes
            self._progress_s = now_s
        return self._progress_s
