"""AddPartitionsToTxn, key 24, versions 0 to 5: add partitions to a transaction.

Behaviour:
- versions 0 to 3 need WRITE on the transactional id and on each topic. Later versions are for other
  brokers, and need CLUSTER_ACTION on the cluster;
- the first partition begins the transaction and starts its timeout. Clients with transaction
  version 2 do not send this request: Produce adds their partitions (KIP-890);
- all partitions of a transaction are added or none: if some do not exist, these are answered with
  UNKNOWN_TOPIC_OR_PARTITION and the others with OPERATION_NOT_ATTEMPTED. An internal topic is
  TOPIC_AUTHORIZATION_FAILED for every client;
- while the producer's previous transaction is ending, the request waits for up to
  add.partitions.to.txn.retry.backoff.max.ms, and then gets CONCURRENT_TRANSACTIONS;
- a partition that is named twice is answered twice, but only once if the partitions have different
  error codes;
- verify_only adds nothing: partitions outside the transaction get TRANSACTION_ABORTABLE;
- INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; COORDINATOR_NOT_AVAILABLE if the partitions could
  not be stored, NOT_COORDINATOR if another process has taken the state over.

v1: throttle time. v2: PRODUCER_FENCED (KIP-588), INVALID_PRODUCER_EPOCH before. v3: flexible
(KIP-482). v4: several transactions, and verify_only: for other brokers (KIP-890). v5:
TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import made
from kgw.handlers.joint_answer import AnswerJointly, completed
from kgw.handlers.parts import AnswerByItem, Repeated
from kgw.handlers.rights import Rights
from kgw.handlers.transactions import for_version
from kgw.partitions.topics.topic import INTERNAL_TOPICS
from kgw.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from kgw.security.acls.terms import CLUSTER_NAME, AclOperation, ResourceType
from kgw.transactions.requests import AddRequest, ProducerIdAndEpoch
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kgw.completion import Completion
    from kgw.handlers.context import Answer
    from kgw.partitions.topics.topic import Topic
    from kgw.transactions.coordinator import TransactionCoordinator

_PRODUCER_FENCED = 2
_BATCHED = 4


class AddPartitionsToTxn(AnswerByItem):
    """Up to version 3 a request has one transaction, and the answer has its partitions only."""

    response_type = AddPartitionsToTxnResponse
    rights = Rights(
        topic=AclOperation.WRITE,
        transactional_id=AclOperation.WRITE,
        others=((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    )
    parts = {
        "results_by_transaction": "transactions",
        "topic_results": "topics",
        "results_by_topic_v3_and_below": "v3_and_below_topics",
        "results_by_partition": "partitions",
    }
    waits = True
    per_turn = 1_000

    def check_rights(self) -> None:
        if self.version >= _BATCHED:
            # For other brokers, which ask clients for their rights.
            self.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        else:
            transactional_id = self.request.v3_and_below_transactional_id
            self.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def check_item_rights(self, asked: AddPartitionsToTxnTransaction) -> None:
        # Nothing else is asked for from version 4 on.
        pass

    def answer(self) -> Answer:
        if self.version < _BATCHED:
            return _Transaction(self.request, self.context).answer()
        return super().answer()

    async def item(self, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=asked.transactional_id,
            v3_and_below_producer_id=asked.producer_id,
            v3_and_below_producer_epoch=asked.producer_epoch,
            v3_and_below_topics=asked.topics,
        )
        transaction = _Transaction(request, self.context)
        transaction.verify_only = asked.verify_only
        response: Any = await made(transaction.answer())
        return AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id,
            topic_results=response.results_by_topic_v3_and_below,
        )


class _Transaction(AnswerJointly):
    """Answers for the partitions of one transaction, in the form of version 3."""

    response_type = AddPartitionsToTxnResponse
    rights = Rights(topic=AclOperation.WRITE)
    parts = {
        "results_by_topic_v3_and_below": "v3_and_below_topics",
        "results_by_partition": "partitions",
    }
    per_turn = 1_000
    verify_only = False
    refuses = False
    """Whether a partition cannot be added, so that no partition is added."""

    def start(self) -> None:
        self.keys: list[PartitionKey] = []
        # As in Kafka: if not all partitions have the same code, each one is answered once.
        self.repeated = Repeated.LAST if self.verify_only or self.refuses else Repeated.ANSWERED
        self.refuses = False

    def look(self, topic: Topic, index: int, asked: int) -> ErrorCode:
        if topic.is_internal:
            return self.missing(topic, topic, index).code
        self.keys.append(PartitionKey(topic.topic_id, index))
        return ErrorCode.NONE

    def is_denied(self, named: Any) -> bool:
        return self.version < _BATCHED and super().is_denied(named)

    def denied(self, named: Any) -> ErrorCode:
        self.refuses = True
        self.again = self.repeated is Repeated.ANSWERED
        return super().denied(named)

    def missing(self, topic: Topic | None, named: Any, index: int) -> KafkaError:
        self.refuses = True
        self.again = self.repeated is Repeated.ANSWERED
        if named.name in INTERNAL_TOPICS:
            # This partition accepts no records, so no transaction marker could be written either.
            # As in Kafka, nobody has the right, also without access rules.
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return super().missing(topic, named, index)

    def act(self) -> Completion[ErrorCode] | Awaitable[ErrorCode]:
        request = self.request
        if self.refuses:
            return completed(ErrorCode.OPERATION_NOT_ATTEMPTED)
        transactional_id = request.v3_and_below_transactional_id
        producer = ProducerIdAndEpoch(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        try:
            coordinator = self.transactions(transactional_id)
        except KafkaError as error:
            # The other transactions of the request are still handled.
            return completed(error.code)
        if self.verify_only:
            return self._verify(coordinator, producer)
        return coordinator.ask(transactional_id, AddRequest(producer, frozenset(self.keys)))

    async def _verify(
        self, coordinator: TransactionCoordinator, producer: ProducerIdAndEpoch
    ) -> ErrorCode:
        """Check for each partition whether it is in the transaction."""
        answers = [one for topic in self._answers for one in topic.results_by_partition]
        for answer, key in zip(answers, self.keys, strict=True):
            asked = AddRequest(producer, frozenset((key,)), verify_only=True)
            transactional_id = self.request.v3_and_below_transactional_id
            answer.partition_error_code = await coordinator.ask(transactional_id, asked)
        return ErrorCode.NONE

    def in_words_of_version(self, code: ErrorCode) -> ErrorCode:
        return for_version(code, self.context, _PRODUCER_FENCED)
