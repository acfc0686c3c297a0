"""SMQ's broker over gRPC: publish streams for partitions, and records that are not in files yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import gather, timeout
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from grpc.aio import AioRpcError

from kgw.backend.seaweedmq.filer import FilerError
from kgw.backend.seaweedmq.native.messages import FetchedMessage, UnflushedEntry
from kgw.backend.seaweedmq.protos import mq_broker_pb2, mq_broker_pb2_grpc, schema_pb2
from kgw.errors import ErrorCode, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from grpc.aio import Channel, StreamStreamCall

    from kgw.backend.seaweedmq.native.messages import NativeMessage
    from kgw.backend.seaweedmq.native.names import NativeTopic
    from kgw.types import TopicId

_CALL_S: Final = 10.0
_CLOSE_S: Final = 5.0
_PUBLISHER: Final = "kgw"
_FETCH_BYTES: Final = 4 << 20
_FETCH_MESSAGES: Final = 10_000


class BrokerError(StorageError):
    """The broker has refused all records, or they were not sent."""

    # Clients look for the leader again and retry.
    code = ErrorCode.LEADER_NOT_AVAILABLE


class PublishUnknownError(StorageError):
    """It is unknown whether the broker has stored the sent records."""

    # "Written, but to fewer replicas than required": a retry by the client may store the records
    # twice.
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class PublishStream(ABC):
    """The only way to append to a partition in order. One caller at a time."""

    @abstractmethod
    async def publish(self, messages: Sequence[NativeMessage]) -> list[int]:
        """Return the offset of each message, once the broker has all messages in memory.

        Raises PublishUnknownError, after which the stream cannot be used any more.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the stream. After the last stream, the broker writes its records to a file."""


class NativeBroker(ABC):
    """The broker that leads the partitions of topics that kgw does not lead."""

    @abstractmethod
    async def open_stream(self, topic: NativeTopic, partition: int) -> PublishStream:
        """Open a publish stream. Raises BrokerError."""

    @abstractmethod
    async def unflushed(
        self, topic: NativeTopic, partition: int, start_offset: int
    ) -> Sequence[UnflushedEntry]:
        """Return the entries from an offset on that are not in a file yet. Raises BrokerError.

        The first entries after the last file may be missing.
        """

    @abstractmethod
    async def fetch(
        self, topic: NativeTopic, partition: int, start_offset: int
    ) -> Sequence[FetchedMessage]:
        """Return messages from an offset on, up to the size of one answer. Raises BrokerError."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection."""


class BrokerChannel(NativeBroker):
    """The brokers that the masters know."""

    def __init__(
        self, list_brokers: Callable[[], Awaitable[list[str]]], connect: Callable[[str], Channel]
    ) -> None:
        """`list_brokers` raises FilerError; `connect` accepts a broker's address as listed."""
        self._list_brokers = list_brokers
        self._connect = connect
        self._channels: dict[str, Channel] = {}
        self._leaders: dict[tuple[TopicId, int], str] = {}

    async def open_stream(self, topic: NativeTopic, partition: int) -> PublishStream:
        async with self._at_leader(topic, partition) as stub:
            call = stub.PublishMessage()
            try:
                await call.write(
                    mq_broker_pb2.PublishMessageRequest(
                        init=mq_broker_pb2.PublishMessageRequest.InitMessage(
                            topic=_topic(topic),
                            partition=_partition(topic, partition),
                            publisher_name=_PUBLISHER,
                        )
                    )
                )
                hello = await call.read()
            except BaseException:
                call.cancel()
                raise
            if not isinstance(hello, mq_broker_pb2.PublishMessageResponse) or hello.error_code:
                call.cancel()
                why = getattr(hello, "error", "the stream ended")
                raise BrokerError(f"{topic}-{partition}: the broker refuses a publisher: {why}")
            return _GrpcStream(call, f"{topic}-{partition}")
        raise AssertionError("left without an answer")

    async def unflushed(
        self, topic: NativeTopic, partition: int, start_offset: int
    ) -> Sequence[UnflushedEntry]:
        entries: list[UnflushedEntry] = []
        async with self._at_leader(topic, partition) as stub:
            request = mq_broker_pb2.GetUnflushedMessagesRequest(
                topic=_topic(topic),
                partition=_partition(topic, partition),
                start_buffer_offset=start_offset,
            )
            async for answer in stub.GetUnflushedMessages(request, timeout=_CALL_S):
                if answer.error:
                    raise BrokerError(f"{topic}-{partition}: GetUnflushedMessages: {answer.error}")
                if answer.HasField("message"):
                    entries.append(UnflushedEntry(answer.message.offset, answer.message.ts_ns))
        return entries

    async def fetch(
        self, topic: NativeTopic, partition: int, start_offset: int
    ) -> Sequence[FetchedMessage]:
        async with self._at_leader(topic, partition) as stub:
            answer = await stub.FetchMessage(
                mq_broker_pb2.FetchMessageRequest(
                    topic=_topic(topic),
                    partition=_partition(topic, partition),
                    start_offset=start_offset,
                    max_bytes=_FETCH_BYTES,
                    max_messages=_FETCH_MESSAGES,
                    consumer_group=_PUBLISHER,
                    consumer_id=_PUBLISHER,
                ),
                timeout=_CALL_S,
            )
            if answer.error_code or answer.error:
                raise BrokerError(f"{topic}-{partition}: FetchMessage: {answer.error}")
            return [FetchedMessage(one.ts_ns, one.key, one.value) for one in answer.messages]
        raise AssertionError("left without an answer")

    async def aclose(self) -> None:
        channels, self._channels = self._channels, {}
        await gather(*(channel.close() for channel in channels.values()))

    @asynccontextmanager
    async def _at_leader(
        self, topic: NativeTopic, partition: int
    ) -> AsyncIterator[mq_broker_pb2_grpc.SeaweedMessagingStub]:
        """Yield a stub of a partition's leading broker; after an error, forget this broker."""
        place = (topic.topic_id, partition)
        try:
            if place not in self._leaders:
                self._leaders[place] = await self._look_up(topic, partition)
            yield self._stub(self._leaders[place])
        except (AioRpcError, BrokerError, FilerError) as error:
            self._leaders.pop(place, None)
            if isinstance(error, AioRpcError):
                raise BrokerError(
                    f"{topic}-{partition}: {error.code().name}: {error.details()}"
                ) from error
            if isinstance(error, FilerError):
                raise BrokerError(f"{topic}-{partition}: {error}") from error
            raise

    async def _look_up(self, topic: NativeTopic, partition: int) -> str:
        """Return the address of a partition's leader, the only broker that serves the partition."""
        brokers = await self._list_brokers()
        if not brokers:
            raise BrokerError(f"{topic}-{partition}: no broker of SeaweedMQ is registered")
        request = mq_broker_pb2.LookupTopicBrokersRequest(topic=_topic(topic))
        answer = await self._stub(brokers[0]).LookupTopicBrokers(request, timeout=_CALL_S)
        wanted = _partition(topic, partition)
        for assignment in answer.broker_partition_assignments:
            # Range and time must match, because older generations of the partitions may be listed,
            # too.
            if assignment.partition == wanted and assignment.leader_broker:
                return str(assignment.leader_broker)
        raise BrokerError(f"{topic}-{partition}: no broker leads it now")

    def _stub(self, address: str) -> mq_broker_pb2_grpc.SeaweedMessagingStub:
        if address not in self._channels:
            self._channels[address] = self._connect(address)
        return mq_broker_pb2_grpc.SeaweedMessagingStub(self._channels[address])


class _GrpcStream(PublishStream):
    def __init__(
        self,
        call: StreamStreamCall[
            mq_broker_pb2.PublishMessageRequest, mq_broker_pb2.PublishMessageResponse
        ],
        place: str,
    ) -> None:
        self._call = call
        self._place = place

    async def publish(self, messages: Sequence[NativeMessage]) -> list[int]:
        async def write() -> None:
            for message in messages:
                await self._call.write(
                    mq_broker_pb2.PublishMessageRequest(
                        data=mq_broker_pb2.DataMessage(
                            key=bytes(message.key), value=bytes(message.value)
                        )
                    )
                )

        async def read() -> list[int]:
            offsets: list[int] = []
            while len(offsets) < len(messages):
                answer = await self._call.read()
                if not isinstance(answer, mq_broker_pb2.PublishMessageResponse):
                    raise PublishUnknownError(f"{self._place}: the broker has ended the stream")
                if answer.error_code or answer.error:
                    raise PublishUnknownError(f"{self._place}: {answer.error}")
                offsets.append(answer.assigned_offset)
            return offsets

        try:
            _, offsets = await gather(write(), read())
        except AioRpcError as error:
            raise PublishUnknownError(
                f"{self._place}: {error.code().name}: {error.details()}"
            ) from error
        return offsets

    async def aclose(self) -> None:
        try:
            async with timeout(_CLOSE_S):
                await self._call.done_writing()
                while isinstance(await self._call.read(), mq_broker_pb2.PublishMessageResponse):
                    pass
        except (AioRpcError, TimeoutError):
            pass
        finally:
            self._call.cancel()


def _topic(topic: NativeTopic) -> schema_pb2.Topic:
    return schema_pb2.Topic(namespace=topic.namespace, name=topic.name)


def _partition(topic: NativeTopic, partition: int) -> schema_pb2.Partition:
    return schema_pb2.Partition(**topic.partitions[partition]._asdict())
