"""Ready-made frames of the requests that bare sockets send, and what is asked beside them.

Versions are ones that kgw and Apache Kafka 4 both serve.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kgw.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kgw.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kgw.records.builder import BatchBuilder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

    from kgw.protocol.schema import Request, Response


class TlsAddress(NamedTuple):
    """Where a server listens with TLS, and how clients check its certificate."""

    host: str
    port: int
    context: ssl.SSLContext


Address = tuple[str, int] | TlsAddress
ResponseT = TypeVar("ResponseT", bound="Response")

CLIENT_ID = "bench"
DELETE_TOPICS_VERSION = 5
PRODUCE_VERSION, FETCH_VERSION, COMMIT_VERSION, METADATA_VERSION = 9, 11, 8, 12
LIST_OFFSETS_VERSION, CREATE_TOPICS_VERSION, FIND_COORDINATOR_VERSION, HEARTBEAT_VERSION = (
    7,
    7,
    3,
    3,
)
API_VERSIONS_V0 = bytes.fromhex("0000000a0012000000000007ffff")
CORRELATION_ID_AT = 8
"""Size, API key and version come before the correlation id in a request's frame."""
SYNC_LIMIT_S = 180.0
"""Kafka needs 50 s and more for 10,000 partitions on two cores."""
LATEST = -1
NO_LEADER_YET = {3, 5, 6}
"""Unknown topic, no leader, not the leader: a client tries again."""
NO_COORDINATOR = {14, 15, 16}
"""It is still loading, there is none, or it is another."""

_INT32 = struct.Struct(">i")


def frame_of(message: Request, version: int) -> bytearray:
    """A whole frame; its correlation id is 0 and can be written over."""
    return bytearray(b"".join(request_frame(message, version, 0, CLIENT_ID)))


def batch_of(record_count: int, record_bytes: int) -> bytes:
    """A batch of random values, as a producer sends it."""
    builder = BatchBuilder()
    for _ in range(record_count):
        builder.add(value=os.urandom(record_bytes), timestamp_ms=int(time.time() * 1000))
    return bytes(builder.build())


def produce_frame(topic: str, batches: Mapping[int, bytes], acks: int = -1) -> bytearray:
    """A Produce of one batch to each of these partitions."""
    partitions = [
        PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()
    ]
    topic_data = TopicProduceData(name=topic, partition_data=partitions)
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic_data])
    return frame_of(request, PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, wait_ms: int, offset: int = 0) -> bytearray:
    """A long poll on one partition, without a fetch session."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return frame_of(request, FETCH_VERSION)


def commit_frame(group_id: str, topic: str, partitions: Iterable[int], offset: int) -> bytearray:
    """Commit the same offset for some partitions, from outside of any membership."""
    committed = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        for partition in partitions
    ]
    of_topic = OffsetCommitRequestTopic(name=topic, partitions=committed)
    return frame_of(OffsetCommitRequest(group_id=group_id, topics=[of_topic]), COMMIT_VERSION)


def metadata_request(topics: Iterable[str] | None) -> MetadataRequest:
    """Metadata of these topics, or of all."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


# --- one at a time --------------------------------------------------------------------------------


def connect(address: Address) -> socket.socket:
    """A blocking connection without Nagle's delay.

    With TLS a read waits for the rest of a record of which a part has arrived.
    """
    connection = socket.create_connection(address[:2], timeout=SYNC_LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if isinstance(address, TlsAddress):
        return address.context.wrap_socket(connection, server_hostname=address.host)
    return connection


def receive_exactly(connection: socket.socket, size: int) -> bytearray:
    """So many bytes. Raises ConnectionError when the server closes before."""
    received = bytearray(size)
    view = memoryview(received)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the server closed a connection")
        view = view[count:]
    return received


def exchange(connection: socket.socket, frame: bytes | bytearray) -> bytearray:
    """Send a frame and return that of its answer, without the length."""
    connection.sendall(frame)
    return receive_exactly(connection, _INT32.unpack(receive_exactly(connection, 4))[0])


def ask(address: Address, request: Request, kind: type[ResponseT], version: int) -> ResponseT:
    """Ask once, on a connection of its own."""
    with connect(address) as connection:
        answer = exchange(connection, frame_of(request, version))
    response = decode_response(answer, request.api_key, version)[1]
    assert isinstance(response, kind)
    return response


def create_topics(address: Address, topics: Mapping[str, int]) -> None:
    """Create topics of so many partitions each, in one request. Raises RuntimeError."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name, partitions in topics.items()
        ],
        timeout_ms=60_000,
    )
    response = ask(address, request, CreateTopicsResponse, CREATE_TOPICS_VERSION)
    refused = [(one.name, one.error_code) for one in response.topics if one.error_code]
    if refused or len(response.topics) != len(topics):
        raise RuntimeError(f"topics were not created: {refused[:3]}")


def delete_topics(address: Address, names: Iterable[str]) -> None:
    """Delete topics with all that they hold, in one request. Raises RuntimeError."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=60_000)
    response = ask(address, request, DeleteTopicsResponse, DELETE_TOPICS_VERSION)
    if refused := [(one.name, one.error_code) for one in response.responses if one.error_code]:
        raise RuntimeError(f"topics were not deleted: {refused[:3]}")


def wait_for_leaders(address: Address, topics: Mapping[str, int]) -> None:
    """Return once every partition has a leader: in Kafka some time after the topic was created.

    Raises TimeoutError.
    """
    deadline = time.monotonic() + SYNC_LIMIT_S
    while True:
        response = ask(address, metadata_request(topics), MetadataResponse, METADATA_VERSION)
        led = {
            topic.name: sum(one.leader_id >= 0 for one in topic.partitions)
            for topic in response.topics
            if not topic.error_code
        }
        if led == dict(topics):
            return
        if time.monotonic() > deadline:
            raise TimeoutError("not every partition got a leader")
        time.sleep(0.01)


def wait_for_coordinators(address: Address, group_ids: Iterable[str]) -> None:
    """Return once each group has a coordinator that answers for it.

    Kafka makes the topic of groups at first use, and loads its partitions one by one. Raises
    TimeoutError.
    """
    deadline = time.monotonic() + SYNC_LIMIT_S

    def pause() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError("no coordinator of groups was found")
        time.sleep(0.05)

    find = FindCoordinatorRequest(key="any", key_type=0)
    while ask(address, find, FindCoordinatorResponse, FIND_COORDINATOR_VERSION).error_code:
        pause()
    with connect(address) as connection:
        for group_id in group_ids:
            # Of a member that nobody knows: any answer but these comes from the coordinator.
            heartbeat = HeartbeatRequest(group_id=group_id, generation_id=0, member_id="nobody")
            frame = frame_of(heartbeat, HEARTBEAT_VERSION)
            while _heartbeat_error(exchange(connection, frame)) in NO_COORDINATOR:
                pause()


def _heartbeat_error(answer: bytearray) -> int:
    response = decode_response(answer, HeartbeatRequest.api_key, HEARTBEAT_VERSION)[1]
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


def end_offsets(address: Address, topics: Mapping[str, int]) -> int:
    """The sum of the end offsets of all partitions: how many records were ever written.

    Kafka's metadata names leaders that do not know it yet: they are asked again, for some time.
    """
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
                    for partition in range(partitions)
                ],
            )
            for name, partitions in topics.items()
        ],
    )
    deadline = time.monotonic() + SYNC_LIMIT_S
    while True:
        response = ask(address, request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
        found = [one for topic in response.topics for one in topic.partitions]
        errors = {one.error_code for one in found} - {0}
        if not errors:
            return sum(one.offset for one in found)
        assert errors <= NO_LEADER_YET, f"ListOffsets was answered with {errors}"
        assert time.monotonic() < deadline, f"ListOffsets is still answered with {errors}"
        time.sleep(0.02)
