"""OffsetFetch, key 9, versions 0 to 10: the committed offsets of groups.

Behaviour:
- answers with durable offsets only. For an unknown group, or without a committed offset, the answer
  is offset -1 and no error. A topic that was deleted and created again has no committed offsets;
- if topics is null, the answer has all committed offsets in topics that exist, and that the client
  may DESCRIBE;
- with `require_stable`, a partition with an offset in an open transaction gets
  UNSTABLE_OFFSET_COMMIT, after which clients retry. Without it, the previous offset is returned;
- an offset whose stored form is damaged is CORRUPT_MESSAGE, an error that reaches the application:
  after offset -1 the group would begin at its reset offset;
- UNKNOWN_TOPIC_ID for ids.

v0 works like v1, but answers UNKNOWN_TOPIC_OR_PARTITION if there is no offset, as with ZooKeeper.
v2: all topics, an error for the group (KIP-88). v3: throttle time. v5: leader epochs (KIP-320). v6:
flexible (KIP-482). v7: require_stable (KIP-447). v8: several groups (KIP-709). v9: member and epoch
of the consumer protocol (KIP-848), which are ignored for classic groups. v10: topic ids (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.refused import Refusal
from kgw.handlers.rights import Rights
from kgw.offsets.committed import DAMAGED_OFFSET
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import TypeAlias

    from kgw.handlers.context import RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.offsets.committed import CommittedOffset
    from kgw.offsets.pending import PendingTable
    from kgw.offsets.table import OffsetTable
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
    )

    Named: TypeAlias = OffsetFetchRequestTopic | OffsetFetchRequestTopics
    Found: TypeAlias = tuple[Any, Topic | None, Sequence[int], bool]
    """The answer for a topic, the topic, its requested partitions, and whether the client lacks the
    right on it."""

_SEVERAL_GROUPS = 8
_TOPIC_IDS = 10


class OffsetFetch(AnswerByItem):
    response_type = OffsetFetchResponse
    rights = Rights(group=AclOperation.DESCRIBE, topic=AclOperation.DESCRIBE)
    parts = {"groups": "groups", "topics": "topics", "partitions": "partition_indexes"}
    refused_values = {"committed_offset": NO_OFFSET, "metadata": ""}
    # The lookup and encoding of an offset take 2 to 3 us.
    per_turn = 250

    def __init__(self, request: OffsetFetchRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        self._topic_type: Any = OffsetFetchResponseTopics
        self._partition_type: Any = OffsetFetchResponsePartitions
        if self.version < _SEVERAL_GROUPS:
            self.array = "topics"
            self._topic_type = OffsetFetchResponseTopic
            self._partition_type = OffsetFetchResponsePartition

    @classmethod
    def refusal(cls, code: ErrorCode, message: str | None, version: int) -> Refusal:
        # The answer for a refused group has no topics, as in Kafka.
        parts = {"groups": "groups"} if version >= _SEVERAL_GROUPS else cls.parts
        return Refusal(code, message, version, parts, cls.refused_values)

    def check_rights(self) -> None:
        if self.version < _SEVERAL_GROUPS:
            self.check_item_rights(self.request)

    def check_item_rights(self, asked: OffsetFetchRequest | OffsetFetchRequestGroup) -> None:
        self.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id)

    def items(self) -> Iterator[Item]:
        if self.version >= _SEVERAL_GROUPS:
            return super().items()
        return self._topics(self.request)

    def item(self, asked: OffsetFetchRequestGroup) -> Inner:
        answer = OffsetFetchResponseGroup(group_id=asked.group_id)
        return Inner(answer, "topics", self._topics(asked))

    def weigh(self, item: Any) -> int:
        return 2 if isinstance(item, OffsetFetchResponseGroup) else 1

    def _topics(self, asked: OffsetFetchRequest | OffsetFetchRequestGroup) -> Iterator[Item]:
        """Return the answers for the topics of a group. Raises KafkaError."""
        groups = self.groups(asked.group_id)
        table = groups.offsets(asked.group_id)
        pending = groups.unstable_offsets(asked.group_id) if self.request.require_stable else None
        found = self._all(table) if asked.topics is None else self._named(asked.topics)
        return self._described(found, table, pending)

    def _described(
        self, found: Iterator[Found], table: OffsetTable | None, pending: PendingTable | None
    ) -> Iterator[Item]:
        for answer, topic, indexes, is_denied in found:
            if is_denied:
                partitions = self._denied(indexes)
            else:
                partitions = self._partitions(topic, indexes, table, pending)
            yield Inner(answer, "partitions", partitions)
            # A topic takes as long as two partitions.
            yield 1

    def _named(self, topics: Sequence[Named]) -> Iterator[Found]:
        """Yield the topics that the request names."""
        catalog, by_id = self.gateway.catalog, self.version >= _TOPIC_IDS
        has_rules = self.gateway.access is not None
        for named in topics:
            answer = self._topic_type(name=named.name)
            if isinstance(named, OffsetFetchRequestTopics):
                answer.topic_id = named.topic_id
            if has_rules and self._is_denied(named):
                yield answer, None, named.partition_indexes, True
                continue
            if by_id and isinstance(named, OffsetFetchRequestTopics):
                topic = catalog.by_id(named.topic_id)
            else:
                topic = catalog.get(named.name)
            yield answer, topic, named.partition_indexes, False

    def _all(self, table: OffsetTable | None) -> Iterator[Found]:
        """Yield every existing topic in which the group has committed offsets."""
        if table is None:
            return
        has_rules = self.gateway.access is not None
        for topic_id in table.topic_ids():
            topic = self.gateway.catalog.by_id(topic_id)
            if topic is not None and (not has_rules or self.may_use_topic(topic.name, quiet=True)):
                answer = self._topic_type(name=topic.name)
                if self.version >= _SEVERAL_GROUPS:
                    answer.topic_id = topic_id
                indexes = table.topic(topic_id).partitions()
                # A damaged row may have had more partitions than the topic has.
                known = sorted(one for one in indexes if topic.has_partition(one))
                yield answer, topic, known, False

    def _is_denied(self, named: Named) -> bool:
        """Return whether the client may not see a topic. Not asked for an unknown topic id."""
        if self.version >= _TOPIC_IDS and isinstance(named, OffsetFetchRequestTopics):
            topic = self.gateway.catalog.by_id(named.topic_id)
            return topic is not None and not self.may_use_topic(topic.name)
        return not self.may_use_topic(named.name)

    def _denied(self, indexes: Sequence[int]) -> Iterator[Any]:
        """Yield the refusals of partitions of one topic."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in indexes:
            yield self._partition_type(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )

    def _partitions(
        self,
        topic: Topic | None,
        indexes: Sequence[int],
        table: OffsetTable | None,
        pending: PendingTable | None,
    ) -> Iterator[Any]:
        """Yield the answers for partitions of one topic."""
        unstable: Collection[int] = ()
        if pending is not None and topic is not None:
            unstable = pending.partitions(topic.topic_id)
        for index in indexes:
            found = None if table is None or topic is None else table.get(topic.topic_id, index)
            code = self._problem(topic, found, is_stable=index not in unstable)
            if found is None or code is not ErrorCode.NONE:
                yield self._partition_type(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                )
            else:
                yield self._partition_type(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                )

    def _problem(
        self, topic: Topic | None, found: CommittedOffset | None, *, is_stable: bool
    ) -> ErrorCode:
        if topic is None and self.version >= _TOPIC_IDS:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not is_stable:
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        if found is None and self.version == 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is not None and found.offset == DAMAGED_OFFSET:
            return ErrorCode.CORRUPT_MESSAGE
        return ErrorCode.NONE
