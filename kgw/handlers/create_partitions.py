"""CreatePartitions, key 37, versions 0 to 3: add partitions to topics.

Behaviour:
- `count` is the new number of partitions; INVALID_PARTITIONS if it is not higher than the old one.
  The limits for new topics apply;
- assignments may name the only node, once for each new partition; others are
  INVALID_REPLICA_ASSIGNMENT;
- REQUEST_TIMED_OUT after the timeout (5 s if the request has none); the partitions are still
  created;
- a topic that is named twice is INVALID_REQUEST; `validate_only` changes nothing.

v0: KIP-195. v2: flexible (KIP-482). v3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.create_topics import check_assignment
from kgw.handlers.parts import AnswerByItem, Repeated
from kgw.handlers.rights import Rights
from kgw.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.protocol.messages.create_partitions import CreatePartitionsTopic


class CreatePartitions(AnswerByItem):
    response_type = CreatePartitionsResponse
    rights = Rights(topic=AclOperation.ALTER)
    parts = {"results": "topics"}
    repeated = Repeated.REFUSED
    waits = True
    per_turn = 200

    async def item(self, asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        manager = self.gateway.topic_manager
        topic = self.gateway.catalog.get(asked.name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {asked.name!r} does not exist"
            )
        manager.check_growth(topic, asked.count)
        if asked.assignments is not None:
            added = asked.count - topic.partition_count
            if len(asked.assignments) != added:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(asked.assignments)} assignments for {added} new partitions",
                )
            for assignment in asked.assignments:
                check_assignment(assignment.broker_ids, self.context)
        if not self.request.validate_only:
            await manager.add_partitions(topic, asked.count)
        return CreatePartitionsTopicResult(name=asked.name)
