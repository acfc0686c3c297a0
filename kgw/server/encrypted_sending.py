"""Sends answers to one client over TLS, and counts the bytes that the client has not read.

Imported at the first connection with TLS: most servers have none.
"""

from __future__ import annotations

from asyncio import BufferedProtocol
from collections import deque
from typing import TYPE_CHECKING

from kgw.server.sending import WRITE_BYTES, Sender

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Callable

    from kgw.metrics import Metrics
    from kgw.types import Buffer

# The most bytes that are encrypted at once. No limit counts one such chunk, which waits below the
# TLS layer. A client that takes fewer bytes in `kgw.unsent.timeout.ms` is dropped.
CHUNK_BYTES = 256 << 10


class EncryptedSender(Sender):
    """Passes answers to a TLS transport in chunks, and holds the bytes that find no room.

    A TLS transport passes all encrypted bytes to the transport of the socket until that one has
    too many, and then keeps the others. It counts only those that it keeps. So this sender gives
    it one chunk after another, and stops when the TLS transport has kept one. The bytes that are
    not counted are those in the transport of the socket: one chunk and 64 KB at most.
    """

    __slots__ = ("_has_ended", "_held", "_held_bytes", "_is_blocked", "_limit_bytes")

    def __init__(
        self, transport: Transport, metrics: Metrics, note_sent: Callable[[int], None]
    ) -> None:
        super().__init__(transport, metrics, note_sent)
        self._held: deque[Buffer] = deque()
        self._held_bytes = 0
        self._is_blocked = False
        self._has_ended = False
        self._limit_bytes = 0

    def limit(self, unsent_bytes: int) -> None:
        """Pause at this number of unread bytes, and resume at half of it.

        The transport itself reports each byte that it keeps.
        """
        self._limit_bytes = unsent_bytes
        self._transport.set_write_buffer_limits(high=1, low=0)

    @property
    def holds_answers(self) -> bool:
        return bool(self._held)

    def flush(self) -> None:
        """Pass all buffers to the transport, as long as it has room."""
        if not self.waiting:
            return
        buffers, self.waiting = self.waiting, []
        size, self._waiting_bytes = self._waiting_bytes, 0
        self._sent_bytes += size
        self._metrics.bytes_sent += size
        if self._has_ended or self._transport.is_closing():
            return
        if size < WRITE_BYTES:
            self._held.append(b"".join(buffers))
        else:
            self._held += buffers
        self._held_bytes += size
        self._pass_on()

    def pause(self) -> None:
        """Hold the bytes that follow: the transport has kept some."""
        self._is_blocked = True

    def resume(self) -> None:
        """Pass held bytes to the transport: it has passed on those that it kept."""
        self._is_blocked = False
        self._pass_on()

    def hand_over(self) -> None:
        self.flush()
        if self._held:
            self._transport.writelines(self._held)
        self._has_ended = True
        self._forget_held()

    def discard(self) -> None:
        self._has_ended = True
        self._forget_held()
        self.note_unsent(0)
        # A TLS transport keeps methods of its protocol, which keeps the transport: 50 KB that only
        # a full garbage collection would free.
        self._transport.set_protocol(BufferedProtocol())

    def count_unsent(self) -> None:
        unsent_bytes = self._held_bytes + self._transport.get_write_buffer_size()
        self.note_unsent(unsent_bytes)
        if unsent_bytes >= self._limit_bytes:
            self.is_paused = True
        elif unsent_bytes <= self._limit_bytes // 2:
            self.is_paused = False

    def _pass_on(self) -> None:
        passed_bytes = self._held_bytes
        while self._held and not self._is_blocked:
            self._transport.writelines(self._take_chunk())
        passed_bytes -= self._held_bytes
        if passed_bytes >= WRITE_BYTES:
            self._note_sent(passed_bytes)
        if self._is_blocked or self.unsent_bytes:
            self.count_unsent()

    def _take_chunk(self) -> list[Buffer]:
        """Remove the first held bytes, and return them."""
        chunk: list[Buffer] = []
        room = CHUNK_BYTES
        while self._held and room:
            buffer = self._held.popleft()
            if len(buffer) > room:
                view = memoryview(buffer)
                self._held.appendleft(view[room:])
                buffer = view[:room]
            room -= len(buffer)
            chunk.append(buffer)
        self._held_bytes -= CHUNK_BYTES - room
        return chunk

    def _forget_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0
