"""One subscriber: the partitions it reads, the deliveries to it, and its group's offsets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.agent.membership import Membership
from kgw.agent.subscribe_request import later_seek
from kgw.agent.values import as_record_value
from kgw.agent.windows import Acknowledgements, DeliveryWindow
from kgw.backend.seaweedmq.protos.mq_agent_pb2 import SubscribeRecordResponse
from kgw.client.subscription import Delivery, OffsetSubscriber
from kgw.errors import KgwError
from kgw.groups.positions import CommittedPositions
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.partitions.read.reader import PartitionReader
from kgw.partitions.view import Isolation
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kgw.agent.subscribe_request import SubscribeRequest
    from kgw.gateway import Gateway
    from kgw.offsets.reader import ReadRecord
    from kgw.partitions.topics.topic import Topic

TICK_S: Final = 1.0
"""The interval of the group's heartbeats and commits."""
_PAGE_RECORDS: Final = 200
_WAIT_MS: Final = 30_000
_READ_BYTES: Final = 4 << 20
"""How many bytes a stream reads ahead, divided among its partitions."""
_LEAST_READ_BYTES: Final = 64 << 10


class _ReadPartition:
    """A partition that is being read."""

    __slots__ = ("begun", "committed", "freed", "handed", "task", "window")

    def __init__(self, window: DeliveryWindow, committed: int | None) -> None:
        self.window = window
        self.freed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.committed = committed
        """The group's committed offset, as known to this stream; None if there is none."""
        self.begun = self.handed = window.next_offset
        """`begun` is the first offset that was read; `handed` is the end of the sent records at the
        last tick, for clients that do not acknowledge."""


class SubscriptionStream:
    """Delivers records until it is cancelled or an error ends it."""

    def __init__(
        self,
        gateway: Gateway,
        topic: Topic,
        wanted: SubscribeRequest,
        send: Callable[[SubscribeRecordResponse], Awaitable[None]],
        *,
        client_host: str = "",
        waits_for_acks: bool = True,
    ) -> None:
        """`send` sends one record, and waits until the client can receive it.

        If `send` is cancelled, it has not sent the record; once it has sent it, it returns before
        other code runs. Without `waits_for_acks`, or if the client wants no window, a record counts
        as acknowledged one tick after it was sent.
        """
        self._gateway = gateway
        self._topic = topic
        self._wanted = wanted
        self._send = send
        self._member: Membership | None = None
        if wanted.group_id:
            self._member = Membership(
                gateway, wanted.group_id, wanted.instance_id, topic.name, client_host
            )
        self._waits_for_acks = waits_for_acks and wanted.window_size > 0
        self._acks = Acknowledgements()
        self._places: dict[int, _ReadPartition] = {}
        self._tasks = asyncio.TaskGroup()
        self._has_begun = False
        self.delivered = 0

    @property
    def partitions(self) -> list[int]:
        """The partitions that are being read now."""
        return sorted(self._places)

    def acknowledge(self, key: bytes, number: int) -> None:
        """Handle an acknowledgement; ignore it if no unacknowledged record matches."""
        if self._acks.take(key, number):
            for place in self._places.values():
                place.freed.set()

    async def run(self) -> None:
        """Deliver records until an error. Raises the KafkaError or StorageError that stopped it."""
        try:
            async with self._tasks:
                await (self._read_all() if self._member is None else self._read_share(self._member))
        except BaseExceptionGroup as group:
            # If several tasks failed together, raise one of the errors.
            raise group.exceptions[0] from None

    async def aclose(self, *, is_orderly: bool) -> None:
        """Commit the acknowledged records, and leave the group. Call it after `run` has ended.

        A static member stays in the group if its stream broke, as it may return before its session
        times out.
        """
        member = self._member
        if member is None:
            return
        with suppress(KgwError):
            await self._commit(member)
        if is_orderly or self._wanted.instance_id is None:
            with suppress(KgwError):
                await member.leave()

    # --- which partitions ------------------------------------------------------------------------

    async def _read_all(self) -> None:
        """Without a group: read the named partitions, or all, including new ones."""
        known = 0
        while True:
            count = self._topic.partition_count
            if count != known:
                named = sorted(self._wanted.seeks) or list(range(count))
                await self._take(self._wanted.taken(named))
                known = count
            await self._tick()

    async def _read_share(self, member: Membership) -> None:
        """Read the partitions that the group assigns to this member."""
        while True:
            assigned = await member.join()
            await self._give_up_lost(member)
            await self._take(self._wanted.taken(assigned))
            while True:
                await self._tick()
                await self._commit(member)
                if await member.heartbeat():
                    break
            await self._give_up_lost(member)

    async def _give_up_lost(self, member: Membership) -> None:
        """Stop reading all partitions if the group has removed this member."""
        if member.has_lost:
            await self._stop(list(self._places))
            member.has_lost = False

    async def _tick(self) -> None:
        clock = self._gateway.clock
        await clock.sleep_until(clock.monotonic_s() + TICK_S)

    async def _take(self, partitions: list[int]) -> None:
        """Read exactly these partitions; continue in those that are already being read."""
        await self._stop([one for one in self._places if one not in partitions])
        is_first, self._has_begun = not self._has_begun, True
        for partition in partitions:
            if partition not in self._places:
                await self._begin(partition, is_first=is_first)

    async def _begin(self, partition: int, *, is_first: bool) -> None:
        wanted, topic = self._wanted, self._topic
        positions = committed = None
        if wanted.group_id:
            positions = CommittedPositions(
                self._gateway.groups.offsets, wanted.group_id, topic.topic_id
            )
            found = (await positions.committed([partition]))[partition]
            committed = found if isinstance(found, int) else None
        seek = wanted.first_seek(partition)
        if not is_first:
            seek = later_seek(wanted, partition, is_committed=committed is not None)
        reader = PartitionReader(
            topic,
            self._gateway.fetch_deadlines,
            self._gateway.cold_reads,
            isolation=Isolation.READ_COMMITTED,
        )
        read_bytes = max(_LEAST_READ_BYTES, _READ_BYTES // topic.partition_count)
        subscriber = OffsetSubscriber(
            reader,
            self._gateway.clock,
            positions,
            Delivery(read_bytes=read_bytes, limits=topic.config.decompression_limits),
        )
        reading = await subscriber.subscribe({partition: seek})
        window = DeliveryWindow(partition, reading.positions[partition], wanted.window_size)
        place = self._places[partition] = _ReadPartition(window, committed)

        async def deliver() -> None:
            while True:
                for record in await reading.next_page(_PAGE_RECORDS, max_wait_ms=_WAIT_MS):
                    await self._deliver(place, record)
                # There are no more records below this position, e.g. only a transaction marker.
                window.next_offset = reading.positions[partition]

        place.task = self._tasks.create_task(deliver())

    async def _stop(self, partitions: Iterable[int]) -> None:
        """Stop reading some partitions, e.g. because other members have them now."""
        for partition in partitions:
            place = self._places.pop(partition)
            self._acks.forget(place.window)
            if place.task is not None:
                place.task.cancel()
                await asyncio.wait([place.task])

    # --- delivery --------------------------------------------------------------------------------

    async def _deliver(self, place: _ReadPartition, read: ReadRecord) -> None:
        window, record = place.window, read.record
        key = record.key or b""
        if self._waits_for_acks:
            while not window.admits(key):
                place.freed.clear()
                await place.freed.wait()
        answer = SubscribeRecordResponse(ts_ns=read.ts_ns, offset=record.offset)
        if record.key is not None:
            answer.key = record.key
        if record.value is not None:
            answer.value = as_record_value(record.value)
        await self._send(answer)
        self.delivered += 1
        if self._waits_for_acks:
            # Expect an acknowledgement only after `send`: if the partition was revoked meanwhile,
            # the record was not sent.
            self._acks.expect(window, record.offset, read.ts_ns, key)
        else:
            window.next_offset = record.offset + 1

    # --- commits ----------------------------------------------------------------------------------

    async def _commit(self, member: Membership) -> None:
        """Commit the positions that have changed. Raises KafkaError."""
        offsets: dict[int, CommittedOffset] = {}
        clock = self._gateway.running_clock
        for partition, place in self._places.items():
            position = place.window.position
            if not self._waits_for_acks:
                # Commit the position of the last tick: records sent since then may not have
                # arrived.
                position, place.handed = place.handed, place.window.next_offset
            if position not in {place.begun, place.committed}:
                offsets[partition] = CommittedOffset(
                    position,
                    NO_LEADER_EPOCH,
                    "",
                    clock.running_ms(),
                    NO_EXPIRY_MS,
                    clock.monotonic_s(),
                )
        if offsets and await member.commit({self._topic.topic_id: offsets}):
            for partition, one in offsets.items():
                if partition in self._places:
                    self._places[partition].committed = one.offset
