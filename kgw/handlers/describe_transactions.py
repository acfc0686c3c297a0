"""DescribeTransactions, key 65, version 0: state, producer and partitions of transactional ids.

Behaviour:
- an id that is named twice is described twice; TRANSACTIONAL_ID_NOT_FOUND; INVALID_REQUEST for an
  empty id, NOT_COORDINATOR for an id that another node coordinates;
- the start time of a transaction is listed until the next one begins; -1 before the first;
- deleted topics are left out, and topics that the client may not DESCRIBE.
"""

from __future__ import annotations

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.types import NO_TIMESTAMP_MS


class DescribeTransactions(AnswerByItem):
    response_type = DescribeTransactionsResponse
    rights = Rights(transactional_id=AclOperation.DESCRIBE, topic=AclOperation.DESCRIBE)
    parts = {"transaction_states": "transactional_ids"}
    # Transactional ids and partitions.
    per_turn = 400

    def check_item_rights(self, asked: str) -> None:
        self.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, asked)

    def item(self, asked: str) -> TransactionState:
        if not asked:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        row = self.transactions(asked).describe(asked)
        if row is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        topics: dict[str, list[int]] = {}
        is_open = self.gateway.access is None
        for topic_id, index in sorted(row.places):
            topic = self.gateway.catalog.by_id(topic_id)
            if topic is not None and (is_open or self.may_use_topic(topic.name, quiet=True)):
                topics.setdefault(topic.name, []).append(index)
        started_ms = row.started_ms
        if started_ms != NO_TIMESTAMP_MS:
            started_ms = self.gateway.running_clock.wall_ms_of(started_ms)
        return TransactionState(
            transactional_id=asked,
            transaction_state=row.state.value,
            transaction_timeout_ms=row.timeout_ms,
            transaction_start_time_ms=started_ms,
            producer_id=row.producer.id,
            producer_epoch=row.producer.epoch,
            topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
        )

    def weigh(self, item: TransactionState) -> int:
        return 1 + sum(len(topic.partitions) for topic in item.topics)
