"""The offsets that a request commits: shared by OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.joint_answer import AnswerJointly
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset

if TYPE_CHECKING:
    from kgw.partitions.topics.topic import Topic
    from kgw.types import TopicId


class CommitsOffsets(AnswerJointly):
    """Collects the offsets that a request commits.

    If a partition exists, an error of the group takes precedence over an error for long metadata.
    """

    replaced = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE})
    answers_empty = False
    answers_unknown_once = True
    per_turn = 500
    retention_ms = NO_EXPIRY_MS

    def start(self) -> None:
        self.committed_s = self.gateway.clock.monotonic_s()
        # Whatever a client of OffsetCommit 1 says: its clock is no better than ours.
        self.commit_ms = self.gateway.running_clock.running_ms()
        self.metadata_limit = self.gateway.config.offset_metadata_max_bytes
        self.offsets: dict[TopicId, dict[int, CommittedOffset]] = {}

    def look(self, topic: Topic, index: int, asked: Any) -> ErrorCode:
        metadata = asked.committed_metadata
        if metadata and is_too_large(metadata, self.metadata_limit):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        self.offsets.setdefault(topic.topic_id, {})[index] = CommittedOffset(
            asked.committed_offset,
            asked.committed_leader_epoch,
            metadata or "",
            self.commit_ms,
            self.retention_ms,
            self.committed_s,
        )
        return ErrorCode.NONE


def is_too_large(metadata: str, limit: int) -> bool:
    """Return whether the metadata of a committed offset is longer than the limit.

    As in Java, a character beyond U+FFFF counts as two.
    """
    return len(metadata) * 2 > limit and len(metadata.encode("utf-16-le")) > 2 * limit
