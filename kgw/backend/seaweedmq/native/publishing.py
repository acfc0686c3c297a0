"""Appends to a partition that SMQ's broker leads, through one publish stream.

When the broker answers, it has the records only in memory: they are lost if its process ends. With
`acks=filer` an append is done once each of its records has been read in a log file, at the offset
that the broker gave it.
"""

from __future__ import annotations

from asyncio import CancelledError, ensure_future, timeout
from collections import deque
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kgw.backend.append import Append, AppendResult, refused_append
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.native.broker import BrokerError, PublishUnknownError
from kgw.backend.seaweedmq.native.entries import LEADER_EPOCH
from kgw.backend.seaweedmq.native.messages import NativeMessage
from kgw.records.reader import unpack, walk
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Iterable, Sequence

    from kgw.backend.seaweedmq.entries.log_entries import LogEntry
    from kgw.backend.seaweedmq.native.broker import NativeBroker, PublishStream
    from kgw.backend.seaweedmq.native.names import NativeTopic
    from kgw.backend.seaweedmq.shell import Shell
    from kgw.records.batch import RecordBatch

WAITING_BYTES: Final = 64 << 20
"""Limit for the bytes of a partition's appends that wait for the broker or the log file."""
PUBLISH_S: Final = 30.0
"""How long the broker may take to answer a batch."""
CHECKPOINT: Final = "checkpoint.offset"
_NUMBER_BYTES: Final = 8


class NativeAppend(Append):
    """An append that is not stored or refused yet."""

    __slots__ = ("batches", "deadline_s", "left", "messages", "size_bytes")

    def __init__(self, batches: Sequence[RecordBatch]) -> None:
        super().__init__()
        self.batches = batches
        self.size_bytes = sum(batch.size_bytes for batch in batches)
        self.messages: list[NativeMessage] = []
        self.left = 0
        """The number of the append's records that have not been read from a log file yet."""
        self.deadline_s = 0.0

    def fail(self, error: Exception) -> None:
        """Finish the append with an error, unless it is done."""
        if not self.is_done:
            self.error = error
            self.finish()


class Publisher:
    """Sends one partition's appends to its broker. Used in the event loop."""

    def __init__(
        self,
        topic: NativeTopic,
        partition: int,
        broker: NativeBroker,
        shell: Shell,
        *,
        waits_for_file: bool,
        confirm_s: float,
    ) -> None:
        """An append that is not in a log file after `confirm_s` fails, with an unknown outcome."""
        self._topic = topic
        self._partition = partition
        self._broker = broker
        self._shell = shell
        self._waits_for_file = waits_for_file
        self._confirm_s = confirm_s
        self._queue: deque[NativeAppend] = deque()
        self._sending: Task[None] | None = None
        self._stream: PublishStream | None = None
        self._unconfirmed: dict[int, tuple[NativeAppend, NativeMessage]] = {}
        self._waiting_bytes = 0
        self.end_offset = 0
        """The known end of the log. A broker must not assign an offset below it."""

    def __repr__(self) -> str:
        return f"<Publisher {self._topic}-{self._partition}>"

    @property
    def is_waiting(self) -> bool:
        """Whether the log files must be searched for records of this publisher."""
        return bool(self._unconfirmed)

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        """Queue batches; the result has their offsets, -1 if other records are between them."""
        size_bytes = sum(batch.size_bytes for batch in batches)
        if self._waiting_bytes and self._waiting_bytes + size_bytes > WAITING_BYTES:
            return refused_append(
                BrokerError(f"{self._topic}-{self._partition}: too much waits for the broker")
            )
        if not self._shell.append_room.take(size_bytes):
            return refused_append(BrokerError(self._shell.too_much_waits))
        publication = NativeAppend(batches)
        self._waiting_bytes += size_bytes
        publication.when_done(self._forget)
        self._queue.append(publication)
        if self._sending is None:
            self._sending = ensure_future(self._send())
        return publication

    def _forget(self, publication: NativeAppend) -> None:
        self._waiting_bytes -= publication.size_bytes
        self._shell.append_room.give_back(publication.size_bytes)

    async def _send(self) -> None:
        """Publish the queued appends, one after the other."""
        try:
            while self._queue:
                publication = self._queue.popleft()
                try:
                    await self._publish(publication)
                except CancelledError:
                    publication.fail(PublishUnknownError(f"{self._topic}: the server has stopped"))
                    raise
                except Exception as error:  # noqa: BLE001 - whoever waits for an append is told
                    publication.fail(error)
        finally:
            self._sending = None

    async def _publish(self, publication: NativeAppend) -> None:
        batches = publication.batches
        if publication.size_bytes > self._shell.options.decoded_on_loop_bytes:
            messages = await self._shell.run(lambda: messages_of(batches))
        else:
            messages = messages_of(batches)
        publication.batches = ()
        stream = self._stream
        if stream is None:
            await self._raise_checkpoint()
            stream = self._stream = await self._broker.open_stream(self._topic, self._partition)
        try:
            async with timeout(PUBLISH_S):
                offsets = await stream.publish(messages)
        except BaseException as error:
            self._stream = None
            await stream.aclose()
            if isinstance(error, TimeoutError):
                raise PublishUnknownError(
                    f"{self._topic}-{self._partition}: no answer of the broker in {PUBLISH_S:g} s"
                ) from error
            raise
        is_in_one_piece = all(after == before + 1 for before, after in pairwise(offsets))
        publication.result = AppendResult(
            offsets[0] if is_in_one_piece else NO_OFFSET, offsets[-1], LEADER_EPOCH
        )
        if not self._waits_for_file:
            publication.finish()
            return
        publication.left = len(offsets)
        publication.deadline_s = self._shell.clock.monotonic_s() + self._confirm_s
        for offset, message in zip(offsets, messages, strict=True):
            other = self._unconfirmed.pop(offset, None)
            if other is not None:
                other[0].fail(self._lost(offset))
            self._unconfirmed[offset] = publication, message

    async def _raise_checkpoint(self) -> None:
        """Let a newly leading broker assign offsets after the last offset in the log.

        Such a broker takes its next offset from this entry. After a crash the entry may be older
        than the log, and the broker would assign offsets again. A broker that leads already does
        not read the entry.
        """
        filer, directory = self._shell.filer, self._topic.directory(self._partition)
        last_offset = self.end_offset - 1
        found = await filer.look_up(directory, CHECKPOINT)
        noted = -1 if found is None else int.from_bytes(found.content[:_NUMBER_BYTES], "big")
        if noted < last_offset:
            content = last_offset.to_bytes(_NUMBER_BYTES, "big")
            await filer.put(directory, FilerEntry(CHECKPOINT, content=content))

    # --- the log files ---------------------------------------------------------------------------

    def confirm(self, entries: Iterable[LogEntry]) -> None:
        """Process entries that have been read from a log file."""
        if not self._unconfirmed:
            return
        for entry in entries:
            publication, message = self._unconfirmed.pop(entry.offset, (None, None))
            if publication is None or message is None or publication.is_done:
                continue
            if (entry.key, entry.data) != (message.key, message.value):
                publication.fail(self._lost(entry.offset))
                continue
            publication.left -= 1
            if not publication.left:
                publication.finish()

    def expire(self) -> None:
        """Fail the appends that should have been in a log file by now."""
        now_s = self._shell.clock.monotonic_s()
        for offset, (publication, _) in list(self._unconfirmed.items()):
            if publication.is_done:
                del self._unconfirmed[offset]
            elif now_s >= publication.deadline_s:
                del self._unconfirmed[offset]
                publication.fail(
                    PublishUnknownError(
                        f"{self._topic}-{self._partition}: offset {offset} is not in a log file "
                        f"{self._confirm_s:g} s after the broker took it"
                    )
                )

    def _lost(self, offset: int) -> PublishUnknownError:
        return PublishUnknownError(
            f"{self._topic}-{self._partition}: the broker has given offset {offset} to another "
            "record: this one is lost"
        )

    async def aclose(self) -> None:
        """Stop, and fail the appends that were not confirmed."""
        sending, stream, self._stream = self._sending, self._stream, None
        if sending is not None:
            sending.cancel()
            with suppress(CancelledError):
                await sending
        error = PublishUnknownError(f"{self._topic}-{self._partition}: the server has stopped")
        for publication in [*self._queue, *(one for one, _ in self._unconfirmed.values())]:
            publication.fail(error)
        self._queue.clear()
        self._unconfirmed.clear()
        if stream is not None:
            await stream.aclose()


def messages_of(batches: Iterable[RecordBatch]) -> list[NativeMessage]:
    """Return the records of batches as the broker takes them. Raises RecordError."""
    messages: list[NativeMessage] = []
    for batch in batches:
        payload = memoryview(unpack(batch))
        messages += (
            NativeMessage(
                payload[one.key_start : one.key_start + max(one.key_length, 0)],
                payload[one.value_start : one.value_start + max(one.value_length, 0)],
            )
            for one in walk(bytes(payload), batch)
        )
    return messages
