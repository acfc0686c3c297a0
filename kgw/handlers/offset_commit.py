"""OffsetCommit, key 8, versions 0 to 10: store how far a group has read.

Behaviour:
- durable before it is answered; commits of many groups at the same time share a flush. Commits
  count in the order in which they arrive, even overlapping commits of one member;
- members commit in their generation: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, and
  REBALANCE_IN_PROGRESS while the generation waits for its assignment. Any client may commit without
  a generation as long as the group has no members; this creates the group. A member of a group that
  does not exist gets ILLEGAL_GENERATION, from v9 on GROUP_ID_NOT_FOUND;
- offsets belong to a topic's id: they end with the topic. UNKNOWN_TOPIC_OR_PARTITION,
  UNKNOWN_TOPIC_ID; OFFSET_METADATA_TOO_LARGE. A negative offset is stored and returned like any
  other; clients take it for no offset, and kafkajs commits -1 and -2 to begin at either end of the
  log;
- the retention time of v2 to v4 is kept to; otherwise offsets expire when the group has been empty
  for `offsets.retention.minutes`;
- COORDINATOR_NOT_AVAILABLE when nothing can be stored, NOT_COORDINATOR when another process has
  taken the state over: nothing of the request was stored, or all of it.

v0 is served as v1, without membership: there is no ZooKeeper. v1: membership. v2: retention time.
v3: throttle time. v5: no retention time (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible (KIP-482). v9: KIP-848. v10: topic ids (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import CommitRequest
from kgw.handlers.commits import CommitsOffsets
from kgw.protocol.messages.offset_commit import OffsetCommitResponse

if TYPE_CHECKING:
    from kgw.completion import Completion
    from kgw.handlers.joint_answer import Whole
    from kgw.handlers.packed_commit import PackedTopics
    from kgw.offsets.topic_offsets import OffsetChanges
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.packed import PackedItems

_STATIC_MEMBERS = 7
_GROUP_ID_NOT_FOUND = 9


class OffsetCommit(CommitsOffsets):
    response_type = OffsetCommitResponse
    topic_ids_since = 10

    def start(self) -> None:
        super().start()
        self._packed: PackedTopics | None = None
        if self.request.retention_time_ms >= 0:
            self.retention_ms = self.request.retention_time_ms

    def look_at_packed(self, topic: Topic, items: PackedItems) -> Whole | None:
        if self._packed is None:
            # Not at the top: most requests name a few partitions.
            from kgw.handlers.packed_commit import PackedTopics

            self._packed = PackedTopics(self)
        return self._packed.take(topic, items)

    def act(self) -> Completion[ErrorCode]:
        request = self.request
        offsets: OffsetChanges = self.offsets
        if self._packed is not None:
            offsets = self._packed.offsets()
        return self.groups(request.group_id).commit(
            request.group_id,
            CommitRequest(
                request.member_id,
                request.group_instance_id if self.version >= _STATIC_MEMBERS else None,
                request.generation_id_or_member_epoch,
                offsets,
            ),
        )

    def in_words_of_version(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.version < _GROUP_ID_NOT_FOUND:
            return ErrorCode.ILLEGAL_GENERATION
        return code
