"""A client of SMQ's agent, made from nothing but field numbers: no message of kgw's is in it.

Its messages are in a descriptor pool of their own, with the types that SMQ's protocol has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGES: Final[Mapping[str, str]] = {
    "schema_pb.Topic": "1 namespace string, 2 name string",
    "schema_pb.Partition": (
        "1 ring_size int32, 2 range_start int32, 3 range_stop int32, 4 unix_time_ns int64"
    ),
    "schema_pb.PartitionOffset": (
        "1 partition schema_pb.Partition, 2 start_ts_ns int64, 3 start_offset int64"
    ),
    "schema_pb.Type": "1 scalar_type int32",
    "schema_pb.Field": "1 name string, 2 field_index int32, 3 type schema_pb.Type",
    "schema_pb.RecordType": "1 fields *schema_pb.Field",
    "schema_pb.Value": "1 bool_value bool, 3 int64_value int64, 6 bytes_value bytes, "
    "7 string_value string, 15 record_value schema_pb.RecordValue",
    "schema_pb.FieldsEntry": "1 key string, 2 value schema_pb.Value",
    # A map is on the wire what its entries are.
    "schema_pb.RecordValue": "1 fields *schema_pb.FieldsEntry",
    "messaging_pb.StartPublishSessionRequest": "1 topic schema_pb.Topic, 2 partition_count int32, "
    "3 record_type schema_pb.RecordType, 4 publisher_name string",
    "messaging_pb.StartPublishSessionResponse": "1 error string, 2 session_id int64",
    "messaging_pb.ClosePublishSessionRequest": "1 session_id int64",
    "messaging_pb.ClosePublishSessionResponse": "1 error string",
    "messaging_pb.PublishRecordRequest": (
        "1 session_id int64, 2 key bytes, 3 value schema_pb.RecordValue"
    ),
    "messaging_pb.PublishRecordResponse": (
        "1 ack_sequence int64, 2 error string, 3 base_offset int64, 4 last_offset int64"
    ),
    "messaging_pb.Init": "1 consumer_group string, 2 consumer_group_instance_id string, "
    "4 topic schema_pb.Topic, 5 partition_offsets *schema_pb.PartitionOffset, 6 offset_type int32, "
    "7 offset_ts_ns int64, 10 filter string, 11 max_subscribed_partitions int32, "
    "12 sliding_window_size int32",
    "messaging_pb.SubscribeRecordRequest": (
        "1 init messaging_pb.Init, 2 ack_sequence int64, 3 ack_key bytes"
    ),
    "messaging_pb.SubscribeRecordResponse": "2 key bytes, 3 value schema_pb.RecordValue, "
    "4 ts_ns int64, 5 error string, 6 is_end_of_stream bool, 7 is_end_of_topic bool, "
    "8 offset int64",
}

RESUME_OR_EARLIEST = 0
RESET_TO_EARLIEST = 5
EXACT_TS_NS = 10
RESET_TO_LATEST = 15
RESUME_OR_LATEST = 20
EXACT_OFFSET = 25
RESET_TO_OFFSET = 30

RING = 2520


def _classes() -> dict[str, Any]:
    """Return the classes of the messages by their names without packages."""
    pool = descriptor_pool.DescriptorPool()
    kinds = descriptor_pb2.FieldDescriptorProto
    for package in ("schema_pb", "messaging_pb"):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax="proto3"
        )
        if package == "messaging_pb":
            file.dependency.append("schema_pb.proto")
        for name, fields in _MESSAGES.items():
            if not name.startswith(package):
                continue
            message = file.message_type.add(name=name.partition(".")[2])
            is_choice = name == "schema_pb.Value"
            if is_choice:
                message.oneof_decl.add(name="kind")
            for text in fields.split(", "):
                number, field_name, type_ = text.split()
                field = message.field.add(name=field_name, number=int(number))
                field.label = kinds.LABEL_REPEATED if type_[0] == "*" else kinds.LABEL_OPTIONAL
                type_ = type_.lstrip("*")
                if is_choice:
                    field.oneof_index = 0
                if "." in type_:
                    field.type = kinds.TYPE_MESSAGE
                    field.type_name = f".{type_}"
                else:
                    field.type = kinds.Type.Value(f"TYPE_{type_.upper()}")
        pool.Add(file)
    return {
        name.partition(".")[2]: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in _MESSAGES
    }


M: Final = _classes()
_SERVICE = "/messaging_pb.SeaweedMessagingAgent/"


def value_of(**fields: bytes | str | int) -> Any:
    """Return a RecordValue."""
    value = M["RecordValue"]()
    for name, one in fields.items():
        entry = value.fields.add(key=name)
        if isinstance(one, bytes):
            entry.value.bytes_value = one
        elif isinstance(one, str):
            entry.value.string_value = one
        else:
            entry.value.int64_value = one
    return value


def field_of(value: Any, name: str = "v") -> Any:
    """Return what a RecordValue has under a name."""
    found: list[Any] = [one.value for one in value.fields if one.key == name]
    (only,) = found
    ((_, content),) = only.ListFields()
    return content


def partition(index: int, count: int) -> Any:
    """Return the range of a partition as SMQ divides the ring."""
    size = RING // count
    stop = RING if index == count - 1 else (index + 1) * size
    return M["Partition"](ring_size=RING, range_start=index * size, range_stop=stop)


class AgentClient:
    """A channel to an agent, with its four methods."""

    def __init__(
        self,
        port: int,
        *,
        reads_ahead: bool = True,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Without `reads_ahead` nothing of a large message is taken before it is asked for.

        With `credentials` the channel has TLS. Each call sends `metadata`.
        """
        self.metadata = metadata
        options = [("grpc.use_local_subchannel_pool", 1)]
        if not reads_ahead:
            options += [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16 << 10)]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        else:
            address = f"localhost:{port}"
            self.channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._streams: list[Any] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.cancel()
        await self.channel.close()

    async def start_session(
        self, topic: str = "orders", *, namespace: str = "kafka", **fields: Any
    ) -> Any:
        """Return the answer to StartPublishSession."""
        fields["topic"] = M["Topic"](namespace=namespace, name=topic)
        return await self._unary("StartPublishSession", **fields)

    async def close_session(self, session_id: int) -> Any:
        """Return the answer to ClosePublishSession."""
        return await self._unary("ClosePublishSession", session_id=session_id)

    def publish(self) -> Any:
        """Begin a PublishRecord stream."""
        return self._stream("PublishRecord")

    async def publisher(self, topic: str = "orders", **fields: Any) -> Publisher:
        """Start a session and its stream."""
        started = await self.start_session(topic, **fields)
        assert not started.error
        return Publisher(self.publish(), started.session_id)

    async def subscribe(
        self, topic: str = "orders", *, namespace: str = "kafka", **fields: Any
    ) -> Subscriber:
        """Begin a SubscribeRecord stream, and send its init."""
        stream = self._stream("SubscribeRecord")
        fields["topic"] = M["Topic"](namespace=namespace, name=topic)
        await stream.write(M["SubscribeRecordRequest"](init=M["Init"](**fields)))
        return Subscriber(stream)

    def subscription(self) -> Any:
        """Begin a SubscribeRecord stream without an init."""
        return self._stream("SubscribeRecord")

    async def _unary(self, method: str, **fields: Any) -> Any:
        request = M[f"{method}Request"](**fields)
        call = self.channel.unary_unary(
            _SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=M[f"{method}Response"].FromString,
        )
        return await call(request, metadata=self.metadata)

    def _stream(self, method: str) -> Any:
        call = self.channel.stream_stream(
            _SERVICE + method,
            # Bytes are sent as they are: for what is no message.
            request_serializer=lambda one: (
                one if isinstance(one, bytes) else one.SerializeToString()
            ),
            response_deserializer=M[f"{method}Response"].FromString,
        )(metadata=self.metadata)
        self._streams.append(call)
        return call


class Publisher:
    """A PublishRecord stream of a session."""

    def __init__(self, stream: Any, session_id: int) -> None:
        self.stream = stream
        self.session_id = session_id

    async def send(self, key: bytes = b"", value: Any = None, **fields: Any) -> None:
        """Send a record; its value's fields are given by name, or as a RecordValue."""
        request = M["PublishRecordRequest"](session_id=self.session_id, key=key)
        if value is not None or fields:
            request.value.CopyFrom(value_of(**fields) if value is None else value)
        await self.stream.write(request)

    async def answer(self) -> Any:
        """Return the next answer."""
        return await self.stream.read()

    async def offset(self) -> int:
        """Return the offset in the next answer, which is no refusal."""
        answer = await self.answer()
        assert not answer.error
        assert answer.base_offset == answer.last_offset
        return int(answer.base_offset)

    async def close(self) -> grpc.StatusCode:
        """End the stream, and return its status."""
        await self.stream.done_writing()
        return await ended(self.stream)


class Subscriber:
    """A SubscribeRecord stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def next(self) -> Any:
        """Return the next record."""
        return await self.stream.read()

    async def take(self, count: int) -> list[Any]:
        """Return so many records."""
        return [await self.next() for _ in range(count)]

    async def acknowledge(self, record: Any, *, by_time: bool = False) -> None:
        """Acknowledge a record, by its offset or by its time."""
        number = record.ts_ns if by_time else record.offset
        await self.stream.write(
            M["SubscribeRecordRequest"](ack_sequence=number, ack_key=record.key)
        )

    async def close(self) -> grpc.StatusCode:
        """End the stream, and return its status."""
        await self.stream.done_writing()
        return await ended(self.stream)


async def ended(stream: Any) -> grpc.StatusCode:
    """Read a stream to its end, and return its status."""
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError:
        pass
    code: grpc.StatusCode = await stream.code()
    return code


async def turns(condition: Any) -> None:
    """Let the loop turn until something holds; pytest's limit ends one that never does."""
    while not condition():  # noqa: ASYNC110 - what is waited for announces nothing
        await asyncio.sleep(0)
