"""OffsetCommits that repeat an earlier one but for the offset: a consumer of one partition.

It sends the same bytes each time: header, group, member, generation, topic, index, and behind the
offset the leader epoch and the metadata. They are decoded once; then what they say is known by
them, and the answer too.

Here is only the usual case. Whatever differs from it, a refusal included, is left to
`offset_commit` before anything has happened, so that both ways give the same answers.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.reply import Reply
from kgw.handlers.context import DueAnswer
from kgw.handlers.known_heads import CLIENT_ID_POSITION, KnownHeads
from kgw.handlers.offset_commit import problem
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.placement import CoordinatorKey, CoordinatorType
from kgw.protocol.codec import codec
from kgw.protocol.framing import response_frame
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.gateway import Gateway
    from kgw.handlers.context import Session
    from kgw.partitions.topic import Topic
    from kgw.types import Buffer

FIRST_VERSION: Final = 2
"""The one before lets the client say when it committed; no client of this decade sends it."""
MAX_FRAME_BYTES: Final = 512
_TOPIC_IDS: Final = 10

_OFFSET: Final = Struct(">q")
_CORRELATION_ID: Final = Struct(">i")
_MARK: Final = bytes(range(0x60, 0x68))
"""Stands for the offset when a request is encoded to be remembered."""


class KnownCommit:
    """What requests with the same bytes round the offset commit, and how they are answered."""

    __slots__ = (
        "_after",
        "_size",
        "group",
        "instance",
        "partition",
        "request",
        "retention_ms",
        "topic",
        "trailer",
        "version",
    )

    def __init__(
        self, request: OffsetCommitRequest, topic: Topic, version: int, trailer: bytes
    ) -> None:
        (wanted,) = request.topics
        (self.partition,) = wanted.partitions
        self.request = request
        self.group = CoordinatorKey(CoordinatorType.GROUP, request.group_id)
        self.topic = topic
        self.version = version
        self.trailer = trailer
        """What follows the offset."""
        self.instance = request.group_instance_id if version >= 7 else None
        retention_ms = request.retention_time_ms
        self.retention_ms = retention_ms if retention_ms >= 0 else NO_EXPIRY_MS
        frame = self.frame_of(NO_ERROR, 0)
        self._size, self._after = frame[:4], frame[8:]

    def frame(self, correlation_id: int) -> bytes:
        """Return the answer that all is well."""
        return self._size + _CORRELATION_ID.pack(correlation_id) + self._after

    def frame_of(self, code: ErrorCode, correlation_id: int) -> bytes:
        """Return the answer with any code, encoded."""
        (wanted,) = self.request.topics
        answer = OffsetCommitResponsePartition(
            partition_index=self.partition.partition_index, error_code=code
        )
        topic = OffsetCommitResponseTopic(
            name=wanted.name, topic_id=wanted.topic_id, partitions=[answer]
        )
        response = OffsetCommitResponse(topics=[topic])
        return b"".join(response_frame(response, self.version, correlation_id))


class CommitAnswer(DueAnswer):
    """The answer to a known commit that is on its way to be stored."""

    __slots__ = ("_correlation_id", "_known", "_reply")

    def __init__(self, known: KnownCommit, reply: Reply[ErrorCode], correlation_id: int) -> None:
        self._known = known
        self._reply = reply
        self._correlation_id = correlation_id

    def done(self) -> bool:
        return self._reply.done()

    def when_done(self, callback: Callable[[object], object]) -> None:
        self._reply.when_done(callback)

    def result(self) -> list[Buffer]:
        code = self._reply.result()
        if code is NO_ERROR:
            return [self._known.frame(self._correlation_id)]
        return [self._known.frame_of(code, self._correlation_id)]


class KnownCommits(KnownHeads[KnownCommit]):
    """The commits of one gateway, by version and head: the bytes from the client id to the offset.

    No rights are checked here: whoever adds some must make them part of what is looked up.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    def start(
        self, frame: memoryview, version: int, correlation_id: int, session: Session
    ) -> DueAnswer | None:
        """Begin a request if it repeats an earlier one; None leaves it to `offset_commit`."""
        head_end = session.commit_head_end
        known = self.find(frame, version, head_end)
        if (
            known is None
            or known.topic.is_deleted
            or not self._gateway.placement.owns(known.group)
            or frame[head_end + _OFFSET.size :] != known.trailer
        ):
            return None
        (offset,) = _OFFSET.unpack_from(frame, head_end)
        if offset < 0:
            return None
        request, partition, clock = known.request, known.partition, self._gateway.clock
        committed = CommittedOffset(
            offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            clock.wall_ms(),
            known.retention_ms,
            clock.monotonic_s(),
        )
        reply = self._gateway.groups.commit(
            request.group_id,
            request.member_id,
            known.instance,
            request.generation_id_or_member_epoch,
            {(known.topic.topic_id, partition.partition_index): committed},
        )
        # A code at once is a refusal: nothing has happened yet, and nothing will the second time.
        return CommitAnswer(known, reply, correlation_id) if isinstance(reply, Reply) else None

    def note(
        self, frame: memoryview, version: int, request: OffsetCommitRequest, session: Session
    ) -> None:
        """Remember a request that `start` left to `offset_commit`, if it is usual."""
        if (
            version < FIRST_VERSION
            or len(frame) > MAX_FRAME_BYTES
            or len(request.topics) != 1
            or len(request.topics[0].partitions) != 1
        ):
            return
        (wanted,) = request.topics
        (partition,) = wanted.partitions
        catalog = self._gateway.catalog
        by_id = version >= _TOPIC_IDS
        topic = catalog.by_id(wanted.topic_id) if by_id else catalog.get(wanted.name)
        if (
            topic is None
            or not topic.has_partition(partition.partition_index)
            or problem(partition, self._gateway.config.offset_metadata_max_bytes)
            or not self.has_room()
        ):
            return
        head, trailer = _around_offset(request, version)
        head = session.header.tail + head
        head_end = CLIENT_ID_POSITION + len(head)
        # A client may have put it otherwise: tagged fields, longer integers.
        if (
            frame[CLIENT_ID_POSITION:head_end] == head
            and frame[head_end + _OFFSET.size :] == trailer
        ):
            self.remember(version, head, KnownCommit(request, topic, version, trailer))
            session.commit_head_end = head_end


def _around_offset(request: OffsetCommitRequest, version: int) -> tuple[bytes, bytes]:
    """Return what the body of a request of one partition has before its offset, and behind it."""
    (wanted,) = request.topics
    (partition,) = wanted.partitions
    marked = OffsetCommitRequestPartition(
        partition_index=partition.partition_index,
        committed_offset=_OFFSET.unpack(_MARK)[0],
        committed_leader_epoch=partition.committed_leader_epoch,
        committed_metadata=partition.committed_metadata,
    )
    topic = OffsetCommitRequestTopic(
        name=wanted.name, topic_id=wanted.topic_id, partitions=[marked]
    )
    body = codec(OffsetCommitRequest, version).encode(
        OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=[topic],
        )
    )
    # The last one: a name may look like it, and metadata that does is not remembered.
    head, _, trailer = body.rpartition(_MARK)
    return head, trailer
