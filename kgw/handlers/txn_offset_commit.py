"""TxnOffsetCommit, key 28, versions 0 to 6: commit offsets of a group in a transaction.

Behaviour:
- the offsets are durable before the answer, and take effect when the transaction is committed:
  until then the group keeps its former offsets. An abort drops the new ones. OffsetFetch can
  request stable offsets only;
- if several commits have the same partition, the one that arrived last counts, whether it is
  transactional or not, and whenever the transactions end;
- the transaction must be open and include the group: from v5 on this request adds the group, and in
  older versions the producer has sent AddOffsetsToTxn. A fenced producer is INVALID_PRODUCER_EPOCH
  in every version, and a producer without such an id INVALID_PRODUCER_ID_MAPPING;
  INVALID_TXN_STATE, from v4 on TRANSACTION_ABORTABLE (KIP-890), if there is no transaction or it
  does not include the group. If the transaction is about to end, the answer is
  CONCURRENT_TRANSACTIONS from v5 on, and before that COORDINATOR_LOAD_IN_PROGRESS, after which old
  clients try again;
- a request that names a member or a generation is checked against the group: UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID, ILLEGAL_GENERATION, the last also if the group does not exist (KIP-447). A
  request with neither is accepted even if the group has members, and creates the group if there is
  none. No commit extends a member's session;
- UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; OFFSET_METADATA_TOO_LARGE; an empty group id is
  INVALID_GROUP_ID;
- COORDINATOR_NOT_AVAILABLE if the offsets cannot be stored, NOT_COORDINATOR if another process has
  taken over the state: all offsets of the request were stored, or none. v0 and v1 also get
  COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS, which crashed clients of their
  time (KAFKA-7296).

v2: leader epochs (KIP-320). v3: membership (KIP-447), flexible (KIP-482). v4: TRANSACTION_ABORTABLE
(KIP-890). v5: adds the group to the transaction (KIP-890). v6: topic ids (KIP-1319).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.completion import Completion
from kgw.errors import ErrorCode, KafkaError
from kgw.groups.requests import TxnCommitRequest
from kgw.handlers.commits import CommitsOffsets
from kgw.handlers.joint_answer import completed
from kgw.handlers.rights import Rights
from kgw.offsets.pending import PendingCommit
from kgw.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from kgw.security.acls.terms import AclOperation
from kgw.transactions.requests import AddRequest, ProducerIdAndEpoch

if TYPE_CHECKING:
    from kgw.partitions.topics.topic import Topic

_LOAD_IN_PROGRESS_IS_KNOWN = 2
_TRANSACTION_ABORTABLE = 4
_ADDS_THE_GROUP = 5


class TxnOffsetCommit(CommitsOffsets):
    response_type = TxnOffsetCommitResponse
    rights = Rights(
        transactional_id=AclOperation.WRITE, group=AclOperation.READ, topic=AclOperation.READ
    )
    topic_ids_since = 6

    def start(self) -> None:
        super().start()
        self._names_any = False
        """Whether the request has a partition that exists."""

    def look(self, topic: Topic, index: int, asked: Any) -> ErrorCode:
        self._names_any = True
        return super().look(topic, index, asked)

    def act(self) -> Completion[ErrorCode]:
        """Check that the transaction is open, and commit."""
        request = self.request
        if not request.group_id:
            return completed(ErrorCode.INVALID_GROUP_ID)
        if not self._names_any:
            return completed(ErrorCode.NONE)
        # Checked before the request to the transaction's coordinator, which may add the group.
        self.groups(request.group_id)
        commit = TxnCommitRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            PendingCommit(request.producer_id, request.producer_epoch, self.offsets),
        )
        committing: Completion[ErrorCode] = Completion()

        def go_on(asked: Completion[ErrorCode]) -> None:
            # Runs in the same turn of the loop as the check, so that the transaction cannot end in
            # between.
            if asked.error is not None or asked.result is not ErrorCode.NONE:
                committing.finish_as(asked)
                return
            if not all(map(self.gateway.catalog.by_id, self.offsets)):
                # The topic was deleted meanwhile: the producer retries.
                committing.set_result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return
            try:
                # Looked up again, as the group may have moved meanwhile.
                groups = self.groups(request.group_id)
                reply = groups.commit_in_transaction(request.group_id, commit)
            except Exception as error:  # noqa: BLE001 - who waits must be answered
                committing.error = error
                committing.finish()
                return
            reply.then(committing.finish_as)

        try:
            transactions = self.transactions(request.transactional_id)
        except KafkaError:
            # Only the transaction's coordinator can check the transaction. After NOT_COORDINATOR
            # the client would look for the group's coordinator, which is this node.
            return completed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        adding = AddRequest(
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            groups=frozenset((request.group_id,)),
            verify_only=self.version < _ADDS_THE_GROUP,
        )
        transactions.ask(request.transactional_id, adding).then(go_on)
        return committing

    def in_words_of_version(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.version < _TRANSACTION_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and self.version < _ADDS_THE_GROUP:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if (
            code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and self.version < _LOAD_IN_PROGRESS_IS_KNOWN
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code
