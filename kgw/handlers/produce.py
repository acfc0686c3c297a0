"""Produce, key 0, versions 0 to 13: append record batches.

Behaviour:
- one batch of format 2 for each partition; its header and CRC are checked, and its offset and
  leader epoch are set. The records are stored unchanged, unless the topic's compression.type is
  another codec: then they are compressed again, after which the batch may be MESSAGE_TOO_LARGE;
- a small request submits its appends, in its order, before the next Produce of the connection
  begins, which does not wait for the answer. A request of many partitions submits its appends in
  several turns of the event loop; the next Produce begins after the last append;
- answered when every batch is durable, with acks=1 and acks=all. With acks=0 there is no answer; if
  a batch is refused, the connection is closed, as in Kafka;
- a topic that is named twice is answered once, a topic without partitions is not answered; two
  batches for one partition are both stored, in their order (Kafka drops the first one silently);
- idempotence (KIP-98): a duplicate batch is answered with its original offset; a gap in the
  sequence is OUT_OF_ORDER_SEQUENCE_NUMBER;
- a record without a key is refused by a compacted topic with INVALID_RECORD, which names each such
  record (KIP-467). Records are read for that check, for message.timestamp.before.max.ms if a topic
  sets it, with kgw.validation=records, and if they are compressed again;
- missing topics are not created here, only by Metadata: UNKNOWN_TOPIC_OR_PARTITION, or
  UNKNOWN_TOPIC_ID from v13 on; NOT_LEADER_OR_FOLLOWER for a partition of another node; from v10 on
  the answer names that node;
- before v3 a request has message sets of format 0 or 1, with any codec of these formats: each set
  becomes one batch with the same codec, and the same rules apply to it. Wrong sizes, CRCs and
  compressed bytes are CORRUPT_MESSAGE; other breaches of the format (a compressed message that is
  not alone, or has another one inside) are INVALID_RECORD; negative timestamps and the timestamp
  type "log append time" are INVALID_TIMESTAMP. As in Kafka, format 2 is accepted, too, and an empty
  set is answered with offset -1;
- a transactional batch needs the request's transactional id: without it,
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The first batch of a transaction in a partition waits for
  the coordinator: up to v11 the coordinator confirms that the partition is in the transaction; from
  v12 on it adds the partition, with others of the request (KIP-890). It may refuse:
  INVALID_TXN_STATE (TRANSACTION_ABORTABLE from v11 on) if the partition was not added,
  INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING; CONCURRENT_TRANSACTIONS while the previous
  transaction is ending. Before v12 clients do not expect this code and get NOT_ENOUGH_REPLICAS, as
  they do if the coordinator is not available;
- while a topic is being loaded (kgw.loading), all producers but the one that loads it get
  NOT_ENOUGH_REPLICAS, after which clients retry; with kgw.loading.offsets=original a batch keeps
  its offsets, and a batch that does not begin at the end of the partition is OFFSET_OUT_OF_RANGE;
- if the disk fails or is full, the answer is KAFKA_STORAGE_ERROR, after which clients retry;
- a batch that is not durable within the timeout (5 s if the request has none) gets
  REQUEST_TIMED_OUT. The append continues and may succeed; an idempotent producer that sends the
  batch again learns the outcome. If too many bytes wait after their timeout, further batches get
  KAFKA_STORAGE_ERROR.

v1: throttle time. v2: log append time (KIP-32). v3: format 2, transactional id (KIP-98). v5: log
start offset (KIP-107). v7: zstd (KIP-110). v8: messages of errors (KIP-467). v9: flexible
(KIP-482). v10: new leaders in errors (KIP-951). v11, v12: errors of transactions (KIP-890). v13:
topic ids (KIP-516).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from kgw.completion import Completion, until_done
from kgw.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kgw.handlers.context import Later
from kgw.handlers.leaders import name_leader
from kgw.handlers.parts import AnswerByPartition
from kgw.handlers.rights import Rights, denial
from kgw.handlers.within import Within
from kgw.metrics import count
from kgw.partitions.append.validation import UnfitRecordsError, read_produced_batch
from kgw.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kgw.records.batch import TRANSACTIONAL_FLAG
from kgw.records.errors import RecordError
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.transactions.requests import AddRequest, ProducerIdAndEpoch
from kgw.types import NO_OFFSET, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kgw.backend.append import Append
    from kgw.completion import AnyCompletion
    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.append.appending import QueuedAppend
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from kgw.protocol.schema import Response
    from kgw.records.batch import RecordBatch
    from kgw.turns import Turns
    from kgw.types import Buffer

_ACKS = frozenset({-1, 0, 1})
_NO_TRANSACTIONAL_ID = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "a transactional batch needs a transactional id",
)
_BATCHES = 3
_ZSTD = 7
_NEW_LEADERS = 10
PARTITIONS_PER_TURN = 150
"""Appending a batch takes 6 to 9 us, twice as long if its memory is touched for the first time."""
_ABORTABLE = 11
_ADDS = 12

# Byte positions in a batch of format 2, and the magic number of this format.
_MAGIC = 16
_FORMAT_2 = 2
_ATTRIBUTES = 22

_OF_COORDINATORS = {
    # Producers know this error code.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
    # After this code producers retry, and do not look for another leader.
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""The codes for producers that replace a transaction coordinator's codes."""

_TELL_NO_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""With any other code, the answer for a refused batch has the log start offset, as in Kafka."""


_Adding: TypeAlias = "dict[ProducerIdAndEpoch, tuple[list[PartitionKey], Completion[ErrorCode]]]"
"""By producer: the partitions to add to its transaction, and the outcome."""


class _Submitted(NamedTuple):
    """A batch whose append was submitted."""

    answer: PartitionProduceResponse
    partition: Partition
    result: Append
    is_undecided: bool
    """Whether the result is a QueuedAppend, which can still be refused because of its records."""


class Produce(AnswerByPartition):
    response_type = ProduceResponse
    rights = Rights(topic=AclOperation.WRITE, transactional_id=AclOperation.WRITE)
    parts = {"responses": "topic_data", "partition_responses": "partition_data"}
    refused_values = {"base_offset": NO_OFFSET}
    waits = True
    per_turn = PARTITIONS_PER_TURN
    merges_topics = True
    frees_request = True
    topic_ids_since = 13

    _adding: _Adding | None = None

    @classmethod
    def refuse(
        cls, request: ProduceRequest, code: ErrorCode, message: str | None, context: RequestContext
    ) -> Response | None:
        # As in Kafka, a topic without partitions is not answered.
        request.topic_data = [one for one in request.topic_data if one.partition_data]
        response = super().refuse(request, code, message, context)
        if request.acks == 0 and response is not None:
            context.count_error_codes(response)
            raise ProtocolError(f"acks=0, {code.name}: {message}")
        return response

    def check_rights(self) -> None:
        transactional_id = self.request.transactional_id
        # Without a transactional id, `_append` refuses transactional batches.
        if transactional_id is not None and self._is_transactional():
            self.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def _is_transactional(self) -> bool:
        """Return whether a batch of the request is transactional."""
        return any(
            _is_transactional(cast("Buffer | None", data.records))
            for topic in self.request.topic_data
            for data in topic.partition_data
        )

    def answer_many(self, begun: Turns[None]) -> Answer:
        # The next Produce of the connection must be appended after all batches of this one.
        self.context.submission = self.context.submission or Completion()
        return super().answer_many(begun)

    # --- submitting ------------------------------------------------------------------------------

    def begin_topic(self, topics: list[Any], named: TopicProduceData, start: int, end: int) -> None:
        if not named.partition_data:  # Kafka does not answer such a topic
            return
        if not start:
            topics.append(TopicProduceResponse(name=named.name, topic_id=named.topic_id))
        answers = topics[-1].partition_responses
        key = named.topic_id if self.version >= self.topic_ids_since else named.name
        if self.gateway.access is not None and self.is_denied(named):
            error = denial(ResourceType.TOPIC)
            for data in named.partition_data[start:end]:
                answers.append(PartitionProduceResponse(index=data.index))
                _refuse(answers[-1], error.code, error.message)
            return
        find = self.gateway.catalog.find
        for data in named.partition_data[start:end]:
            answer = PartitionProduceResponse(index=data.index)
            answers.append(answer)
            partition, code = find(key, data.index)
            if self.request.acks not in _ACKS:
                self._refuse_acks(answer, data, code if partition is None else None)
            elif partition is not None:
                self._append(answer, partition, data)
            else:
                _refuse(answer, _unreadable(data) or code, None)
                if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.version >= _NEW_LEADERS:
                    self._name_leader(named, answer)

    def _append(
        self, answer: PartitionProduceResponse, partition: Partition, data: PartitionProduceData
    ) -> None:
        """Submit one partition's batch, or write the error that refuses it."""
        # A decoded request has a memoryview there; only a request to encode has lists of buffers.
        records = cast("Buffer | None", data.records)
        version, transactional_id = self.version, self.request.transactional_id
        verify = None if transactional_id is None else partial(self._verify, partition)
        # This runs for each batch: testing the flag first mostly saves the call.
        if (
            transactional_id is None
            and records is not None
            and len(records) > _ATTRIBUTES
            and records[_ATTRIBUTES] & TRANSACTIONAL_FLAG
            and _is_transactional(records)
        ):
            _refuse(answer, *_NO_TRANSACTIONAL_ID)
            return
        try:
            if self.gateway.late_append_bytes:
                self._check_late(partition, records)
            if version >= _BATCHES:
                appended = partition.admission.append(
                    records,
                    zstd_allowed=version >= _ZSTD,
                    verify=verify,
                    transactional_id=transactional_id,
                )
            else:
                appended = partition.admission.append_message_set(records)
        except KafkaError as error:
            self._count_refusal(error, partition)
            self._refuse_append(answer, partition, data, error)
            return
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        if appended.result is None:
            answer.base_offset = appended.base_offset
        else:
            self.pending.append(
                _Submitted(answer, partition, appended.result, appended.is_undecided)
            )

    def _refuse_acks(
        self,
        answer: PartitionProduceResponse,
        data: PartitionProduceData,
        missing: ErrorCode | None,
    ) -> None:
        """Refuse an unknown acks; if Kafka would find another error first, with that error."""
        records = cast("Buffer | None", data.records)
        code: ErrorCode = ErrorCode.INVALID_REQUIRED_ACKS
        if self.request.transactional_id is None and _is_transactional(records):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif missing is not None:
            code = _unreadable(data) or missing
        else:
            try:
                read_produced_batch(records)
            except KafkaError as error:
                code = error.code
        _refuse(answer, code, f"acks must be -1, 0 or 1, not {self.request.acks}")

    def _refuse_append(
        self,
        answer: PartitionProduceResponse,
        partition: Partition,
        data: PartitionProduceData,
        error: KafkaError,
    ) -> None:
        """Write the error of a partition whose batch is refused."""
        if isinstance(error, UnfitRecordsError):
            _refuse_records(answer, partition, error)
            return
        _refuse(answer, _for_version(error.code, self.version), error.message)
        batch = _batch_of(data)
        if batch is None:
            return  # Kafka has not looked up the partition then
        _tell_start(answer, partition)
        if error.code is ErrorCode.INVALID_TIMESTAMP and batch.record_count == 1:
            # In a batch of several records it is not known which record is invalid, as only the
            # header was read. If no record is named, clients fail all records of the batch; if the
            # first were named, only that one (KIP-467).
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message=error.message)
            ]

    def _name_leader(self, named: TopicProduceData, answer: PartitionProduceResponse) -> None:
        """Add the node that leads a partition to the answer."""
        catalog = self.gateway.catalog
        topic = catalog.by_id(named.topic_id) or catalog.get(named.name)
        if topic is not None:
            endpoints = self.response.node_endpoints
            name_leader(topic, answer.index, answer, endpoints, NodeEndpoint, self.context)

    def _check_late(self, partition: Partition, records: Buffer | None) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR if too many bytes wait for the storage.

        Only batches of requests that were answered after their timeout count: they are still in
        memory.
        """
        # Imported here, as it is rarely needed.
        from kgw.config.memory import request_memory_bytes

        gateway = self.gateway
        if gateway.late_append_bytes > request_memory_bytes(gateway.config) // 2:
            if self.version >= _BATCHES:
                partition.admission.turn_away(records)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{gateway.late_append_bytes} bytes, whose requests are over, wait for the storage",
            )

    def _count_refusal(self, error: KafkaError | StorageError, partition: Partition) -> None:
        if error.code is ErrorCode.NOT_ENOUGH_REPLICAS and partition.topic.config.loading:
            self.gateway.metrics.loading_refusals += 1

    # --- transactions ----------------------------------------------------------------------------

    def _verify(self, partition: Partition, batch: RecordBatch) -> Completion[ErrorCode]:
        """Add a partition to the batch's transaction, or check for older clients that it was added.

        The partitions of one turn of the loop are added together. Otherwise each would write a row
        with all partitions added so far: 5,000 partitions took 600 MB and two seconds.
        """
        producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        place = PartitionKey(partition.topic.topic_id, partition.index)
        topics = self.request.topic_data
        if self.version < _ADDS or (len(topics) == 1 and len(topics[0].partition_data) == 1):
            return self._ask(producer, (place,))
        if self._adding is None:
            self._adding = {}
        places, waiter = self._adding.setdefault(producer, ([], Completion()))
        places.append(place)
        return waiter

    def _ask(
        self, producer: ProducerIdAndEpoch, places: Iterable[PartitionKey]
    ) -> Completion[ErrorCode]:
        """Ask the coordinator to add or check partitions, see `_verify`."""
        transactional_id = self.request.transactional_id
        try:
            coordinator = self.transactions(transactional_id)
        except KafkaError as error:
            elsewhere: Completion[ErrorCode] = Completion()
            elsewhere.set_result(error.code)
            return elsewhere
        verify_only = self.version < _ADDS
        adding = AddRequest(producer, frozenset(places), verify_only=verify_only)
        return coordinator.ask(transactional_id, adding)

    def end_turn(self) -> None:
        adding, self._adding = self._adding, None
        for producer, (places, waiter) in (adding or {}).items():
            try:
                asked = self._ask(producer, places)
            except Exception as error:  # noqa: BLE001 - batches wait, and all of a partition's
                waiter.error = error
                waiter.finish()
                continue
            asked.then(waiter.finish_as)

    # --- answering -------------------------------------------------------------------------------

    def all_begun(self) -> None:
        if self._adding:
            self.end_turn()
        if self.version < _BATCHES and self.request.acks in _ACKS:
            count(self.gateway.metrics.converted_requests, "PRODUCE")
        submission = self.context.submission
        if submission is not None and not submission.is_done:
            submission.finish()

    def answer_pending(self) -> Answer:
        if self.request.acks == 0:
            self._leave_decided()
        due = []
        for one in self.pending:
            if not one.result.is_done:
                due.append(one.result)  # noqa: PERF401 - a comprehension is one more call
        if not due:
            return self._settled()
        every: AnyCompletion = due[0] if len(due) == 1 else _all_of(due)
        if self.request.acks != 0:
            every = Within(every, self.context)
        return Later(every, self._settled)

    def _settled(self) -> Response | None:
        """Write the outcome of all batches, and return the response; None for acks=0."""
        for one in self.pending:
            if not one.result.is_done:
                self._count_late()
                break
        for one in self.pending:
            self.fill_in(one)
        if self.request.acks == 0:
            self._close_on_refusal()
            return None
        response: Response = self.response
        return response

    async def settle_all(self) -> None:
        if self.request.acks == 0:
            self._leave_decided()
        for one in self.pending:
            # Nearly all are done when one is, so wait one by one: callbacks for 10,000 took 4 ms.
            if one.result.is_done:
                continue
            if self.request.acks == 0:
                await until_done(one.result)
                continue
            within = Within(one.result, self.context)
            await until_done(within)
            if within.is_late:
                break

    def finished(self) -> Response | None:
        if self.request.acks == 0:
            return self._settled()
        self._count_late()
        response: Response = self.response
        return response

    def fill_in(self, submitted: _Submitted) -> None:
        """Write the outcome of a submitted batch into the answer."""
        answer, partition, result, is_undecided = submitted
        if not result.is_done:
            _refuse(
                answer, ErrorCode.REQUEST_TIMED_OUT, "not durable yet: it may be stored, or not"
            )
            return
        error = result.error
        if error is None:
            answer.base_offset = result.result.base_offset
            if is_undecided:
                answer.log_append_time_ms = cast("QueuedAppend", result).log_append_time_ms
        elif partition.topic.is_deleted:
            _refuse(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has been deleted")
        elif isinstance(error, UnfitRecordsError):
            _refuse_records(answer, partition, error)
        elif isinstance(error, KafkaError | StorageError):
            self._count_refusal(error, partition)
            _refuse(answer, _for_version(error.code, self.version), error.message)
            _tell_start(answer, partition)
        else:
            # A bug of kgw: the batch may be stored or not. A retry finds out (`bug_code`,
            # table.py).
            self.gateway.report_internal_error("PRODUCE", error)
            _refuse(answer, ErrorCode.REQUEST_TIMED_OUT, None)

    def _count_late(self) -> None:
        """Count the bytes of a request that is answered too early, until its batches are done."""
        late = [one.result for one in self.pending if not one.result.is_done]
        if not late:
            return
        gateway = self.gateway
        size_bytes = sum(
            len(cast("Buffer | None", data.records) or b"")
            for topic in self.request.topic_data
            for data in topic.partition_data
        )
        gateway.late_append_bytes += size_bytes

        def settled(_: object) -> None:
            gateway.late_append_bytes -= size_bytes
            for result in late:
                if not isinstance(result.error, KafkaError | StorageError | None):
                    gateway.report_internal_error("PRODUCE", result.error)

        _all_of(late).when_done(settled)

    # --- acks=0 ----------------------------------------------------------------------------------

    def _leave_decided(self) -> None:
        """Keep only the pending batches that can still be refused because of their records.

        Raises ProtocolError if one is refused already.
        """
        self._close_on_refusal()
        self.pending = [one for one in self.pending if one.is_undecided]

    def _close_on_refusal(self) -> None:
        """Raise ProtocolError, which closes the connection, if a batch is refused."""
        for topic in self.response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    # As in Kafka, although the answer is not sent.
                    self.context.count_error_codes(self.response)
                    raise ProtocolError(
                        f"acks=0, {ErrorCode(answer.error_code).name} for "
                        f"{topic.name!r}-{answer.index}: {answer.error_message}"
                    )


def _is_transactional(records: Buffer | None) -> bool:
    """Return whether bytes begin like a transactional batch of format 2."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES
        and records[_MAGIC] == _FORMAT_2
        and records[_ATTRIBUTES] & TRANSACTIONAL_FLAG != 0
    )


def _unreadable(data: PartitionProduceData) -> ErrorCode | None:
    """Return why bytes are no batch of any format.

    Kafka checks this before it looks up the topic.
    """
    try:
        read_produced_batch(cast("Buffer | None", data.records))
    except RecordError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            return error.code
    except KafkaError:
        pass
    return None


def _batch_of(data: PartitionProduceData) -> RecordBatch | None:
    """Return the batch in a partition's data, with its header read; None if it is not one batch."""
    try:
        return read_produced_batch(cast("Buffer | None", data.records))
    except KafkaError:
        return None


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code for producers that replaces a transaction coordinator's code."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _ADDS:
        return code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version >= _ABORTABLE:
        return code
    return _OF_COORDINATORS.get(code, code)


def _tell_start(answer: PartitionProduceResponse, partition: Partition) -> None:
    """Set the log start offset of a partition whose batch is refused."""
    if answer.error_code not in _TELL_NO_START:
        answer.log_start_offset = partition.log.log_start_offset


def _refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str | None) -> None:
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = NO_OFFSET
    answer.log_append_time_ms = -1
    answer.log_start_offset = NO_OFFSET


def _refuse_records(
    answer: PartitionProduceResponse, partition: Partition, error: UnfitRecordsError
) -> None:
    _refuse(answer, error.code, error.message)
    _tell_start(answer, partition)
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in error.records
    ]


def _all_of(appends: list[Append]) -> Completion[None]:
    """Return a completion that is done when all `appends` are. No append is done yet."""
    all_done: Completion[None] = Completion()
    left = len(appends)

    def count(_: Append) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set_result(None)

    for append in appends:
        append.when_done(count)
    return all_done
