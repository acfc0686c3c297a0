"""Produce, key 0, versions 0 to 13: append record batches.

Behaviour:
- one batch of format 2 a partition; its header and CRC are checked, and offset and leader epoch
  are written into it; its payload is stored as it came, unless the topic's compression.type is
  another codec: then it is compressed anew, and may become MESSAGE_TOO_LARGE by that;
- appends are submitted, in the request's order, before `handle` returns: the server starts the next
  Produce of the connection meanwhile. Those of many partitions are submitted a part at a time, the
  loop turning in between; the next Produce of the connection begins behind the last of them;
- answered when every batch is durable, for acks=1 as for acks=all; acks=0 is not answered, and a
  refusal closes the connection, as in Kafka: there is no other way to tell;
- a topic that is named twice is answered once, one without partitions not at all; of two batches
  for one partition both are stored, in their order (Kafka drops the first, and says nothing);
- idempotence (KIP-98): a duplicate gets its first offset, a gap OUT_OF_ORDER_SEQUENCE_NUMBER;
- a compacted topic takes no record without a key: INVALID_RECORD, each of them named (KIP-467);
  records are read for that, for message.timestamp.before.max.ms where a topic sets it, with
  kgw.validation=records, and where they are compressed anew;
- missing topics are not created here, only by Metadata: UNKNOWN_TOPIC_OR_PARTITION, or
  UNKNOWN_TOPIC_ID from v13 on; NOT_LEADER_OR_FOLLOWER for a partition of another node, which is
  named from v10 on;
- before v3 message sets of format 0 or 1, of any codec that these have: one batch of the same codec
  is made of each, under the same rules. Sizes, CRCs and compressed bytes that are wrong are
  CORRUPT_MESSAGE; what the formats do not allow (a compressed message that is not alone, or has
  another one inside) is INVALID_RECORD; negative times and log append time are INVALID_TIMESTAMP.
  As in Kafka, format 2 is taken, too, and an empty set is answered with offset -1;
- a transactional batch needs the request's transactional id: without it,
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The first one of a transaction in a partition waits until
  its coordinator has said that the partition is in the transaction, up to v11, or has taken it in,
  from v12 on (KIP-890), with the others of the request. Where that is refused: INVALID_TXN_STATE
  (TRANSACTION_ABORTABLE from v11 on) when the partition was not added, INVALID_PRODUCER_EPOCH,
  INVALID_PRODUCER_ID_MAPPING; CONCURRENT_TRANSACTIONS while the transaction before ends, and before
  v12, where clients do not expect that, NOT_ENOUGH_REPLICAS, as when the coordinator is not
  available;
- while a topic is being loaded (kgw.loading) every producer but the one that loads is told
  NOT_ENOUGH_REPLICAS, which clients retry; with kgw.loading.offsets=original a batch keeps its
  offsets, and one that does not begin at the end of the partition is OFFSET_OUT_OF_RANGE;
- a failing or full disk is KAFKA_STORAGE_ERROR, which clients retry;
- what is not durable when the request's time is over (5 s where it says none) is REQUEST_TIMED_OUT:
  the append goes on, may succeed, and an idempotent producer that sends the batch again is told
  what has become of it. Where too much waits like that nothing more is taken: KAFKA_STORAGE_ERROR.

v1: throttle time. v2: log append time (KIP-32). v3: format 2, transactional id (KIP-98). v5: log
start offset (KIP-107). v7: zstd (KIP-110). v8: messages of errors (KIP-467). v9: flexible
(KIP-482). v10: new leaders in errors (KIP-951). v11, v12: errors of transactions (KIP-890). v13:
topic ids (KIP-516).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from kgw.completion import Completion, until_done
from kgw.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kgw.handlers.answer_errors import count_error_codes
from kgw.handlers.context import Later, transactions
from kgw.handlers.encoding_turns import encode_topics
from kgw.handlers.leaders import name_leader
from kgw.handlers.within import Within
from kgw.metrics import count
from kgw.partitions.append.validation import UnfitRecordsError, read_produced_batch
from kgw.partitions.waits import storage_limit_s
from kgw.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kgw.records.batch import TRANSACTIONAL_FLAG
from kgw.records.errors import RecordError
from kgw.turns import Share, finish, in_turns, shares
from kgw.types import NO_OFFSET, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.append import Append
    from kgw.completion import Due
    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.append.appending import QueuedAppend
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from kgw.records.batch import RecordBatch
    from kgw.turns import Rest, Turns
    from kgw.types import Buffer

_ACKS = frozenset({-1, 0, 1})
_BATCHES = 3
_NEW_LEADERS = 10
_TOPIC_IDS = 13
PARTITIONS_PER_TURN = 150
"""To take a batch in takes 6 to 9 us, twice that where memory is touched first."""
_ABORTABLE = 11
_ADDS = 12

# Of a batch in format 2.
_MAGIC = 16
_FORMAT_2 = 2
_ATTRIBUTES = 22

_OF_COORDINATORS = {
    # Producers know this one.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
    # They try again, and do not look for another leader.
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What producers are told in place of what coordinators say."""

_TELL_NO_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Beside any other refusal of a batch its partition's log start is told, as in Kafka."""


_Pending: TypeAlias = "tuple[PartitionProduceResponse, Partition, Append, bool]"
"""A batch on its way to the disk: the answer that waits for it, the partition, what becomes of it;
last, whether it is a QueuedAppend, which may still be refused for what its records are."""


def handle(request: ProduceRequest, context: RequestContext) -> Answer:
    if len(request.topic_data) > 1:
        _name_topics_once(request, context)
    if request.acks not in _ACKS:
        return _refuse_acks(request, context)
    if context.api_version < _BATCHES:
        count(context.gateway.metrics.converted_requests, "PRODUCE")
    pending: list[_Pending] = []
    response = ProduceResponse()
    parts = 0
    for topic_data in request.topic_data:
        parts += len(topic_data.partition_data) or 1
    if parts > PARTITIONS_PER_TURN:
        submitting = in_turns(
            _submit_in_turns(request, context, response, pending), context.gateway.answer_turns
        )
        context.submission = context.submission or Completion()
        return _answer_in_turns(submitting, request, context, response, pending)
    adding = _adding(request, context)
    try:
        for topic_data in request.topic_data:
            size = len(topic_data.partition_data)
            _submit(topic_data, 0, size, context, response, pending, adding)
    finally:
        if adding is not None:
            adding.ask()
    if context.submission is not None:
        context.submission.finish()
    if request.acks == 0:
        pending = _undecided(response, pending, context)
    due = [result for _, _, result, _ in pending if not result.is_done]
    if not due:
        return _answer(request, context, response, pending)
    answer = partial(_answer, request, context, response, pending)
    every = due[0] if len(due) == 1 else _all_of(due)
    if request.acks == 0:
        return Later(every, answer)
    return Later(_in_time(every, request, context), answer)


def _in_time(due: Due, request: ProduceRequest, context: RequestContext) -> Within:
    """Return what is done with something, or once the request's time is over."""
    deadline_s = context.received_s + storage_limit_s(request.timeout_ms)
    return Within(due, context.gateway.request_deadlines, deadline_s)


def _check_late(partition: Partition, records: Buffer | None, context: RequestContext) -> None:
    """Raise KafkaError KAFKA_STORAGE_ERROR when too much waits for a storage that hangs.

    What was answered is not counted among the requests any more, and is in memory all the same.
    """
    # Not at the top: it is hardly ever needed.
    from kgw.config.memory import request_memory_bytes

    gateway = context.gateway
    if gateway.late_append_bytes > request_memory_bytes(gateway.config) // 2:
        if context.api_version >= _BATCHES:
            partition.turn_away(records)
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{gateway.late_append_bytes} bytes, whose requests are over, wait for the storage",
        )


def _count_late(
    request: ProduceRequest, pending: Sequence[_Pending], context: RequestContext
) -> None:
    """Count what is answered before it is settled, until it is."""
    late = [result for _, _, result, _ in pending if not result.is_done]
    if not late:
        return
    gateway = context.gateway
    size_bytes = sum(
        len(cast("Buffer | None", data.records) or b"")
        for topic_data in request.topic_data
        for data in topic_data.partition_data
    )
    gateway.late_append_bytes += size_bytes

    def settled(_: object) -> None:
        gateway.late_append_bytes -= size_bytes
        for result in late:
            if not isinstance(result.error, KafkaError | StorageError | None):
                gateway.report_internal_error("PRODUCE", result.error)

    _all_of(late).when_done(settled)


def _answer(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    pending: list[_Pending],
) -> ProduceResponse | None:
    """Fill in what became of all batches; return the answer, which acks=0 has none of."""
    _count_late(request, pending, context)
    for one in pending:
        _fill_in(one, context)
    if request.acks != 0:
        return response
    _close_on_refusal(response, context)
    return None


def _name_topics_once(request: ProduceRequest, context: RequestContext) -> None:
    """Make one of the mentions of each topic: it is answered once."""
    by_id = context.api_version >= _TOPIC_IDS
    topics: dict[bytes | str, TopicProduceData] = {}
    for topic_data in request.topic_data:
        known = topics.setdefault(topic_data.topic_id if by_id else topic_data.name, topic_data)
        if known is not topic_data:
            known.partition_data.extend(topic_data.partition_data)
    if len(topics) < len(request.topic_data):
        request.topic_data = [*topics.values()]


def _submit_in_turns(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    pending: list[_Pending],
) -> Turns[None]:
    """Submit the batches of many partitions, some at a time."""
    lengths = [len(topic_data.partition_data) for topic_data in request.topic_data]
    for turn in shares(lengths, PARTITIONS_PER_TURN):
        adding = _adding(request, context)
        try:
            for number, start, end in turn:
                _submit(request.topic_data[number], start, end, context, response, pending, adding)
        finally:
            if adding is not None:
                adding.ask()
        yield


def _submit(
    topic_data: TopicProduceData,
    start: int,
    end: int,
    context: RequestContext,
    response: ProduceResponse,
    pending: list[_Pending],
    adding: _Adding | None,
) -> None:
    """Submit some batches of a topic; put in `pending` what is due, and an answer for each."""
    if not end:  # it has none: Kafka says nothing of it
        return
    version = context.api_version
    transactional_id = context.request.transactional_id
    key = topic_data.topic_id if version >= _TOPIC_IDS else topic_data.name
    if not start:
        response.responses.append(
            TopicProduceResponse(name=topic_data.name, topic_id=topic_data.topic_id)
        )
    answers = response.responses[-1].partition_responses
    for data in topic_data.partition_data[start:end]:
        answer = PartitionProduceResponse(index=data.index)
        answers.append(answer)
        partition, code = context.gateway.catalog.find(key, data.index)
        if partition is not None:
            verify = (
                None
                if transactional_id is None
                else partial(_verify, transactional_id, partition, context, adding)
            )
            _append(answer, partition, data, context, verify, pending)
            continue
        _refuse(answer, _unreadable(data) or code, None)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _NEW_LEADERS:
            _name_leader(topic_data, answer, response, context)


def _name_leader(
    topic_data: TopicProduceData,
    answer: PartitionProduceResponse,
    response: ProduceResponse,
    context: RequestContext,
) -> None:
    """Say who leads a partition of another node."""
    catalog = context.gateway.catalog
    topic = catalog.by_id(topic_data.topic_id) or catalog.get(topic_data.name)
    if topic is not None:
        name_leader(topic, answer.index, answer, response.node_endpoints, NodeEndpoint, context)


async def _answer_in_turns(
    submitting: Rest[None] | None,
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    pending: list[_Pending],
) -> ProduceResponse | None:
    """Submit the rest of many batches, wait for all, and answer."""
    submission = context.submission
    assert submission is not None  # noqa: S101 - set by the caller
    try:
        if submitting is not None:
            await submitting
    finally:
        submission.finish()
    if request.acks == 0:
        pending = _undecided(response, pending, context)
    for _, _, result, _ in pending:
        # Nearly all are done when one is: to be told of each took 4 ms with 10,000.
        if result.is_done:
            continue
        if request.acks == 0:
            await until_done(result)
            continue
        within = _in_time(result, request, context)
        await until_done(within)
        if within.is_late:
            break
    if request.acks == 0:
        return _answer(request, context, response, pending)
    _count_late(request, pending, context)
    answer = await finish(_encode(response, pending, context), context.gateway.answer_turns)
    await finish(_let_go(request), context.gateway.answer_turns)
    return answer


def _encode(
    response: ProduceResponse, pending: list[_Pending], context: RequestContext
) -> Turns[ProduceResponse]:
    """Fill in what became of many batches, and encode the answer to them."""
    version = context.api_version
    share = Share(PARTITIONS_PER_TURN)
    while pending:
        _fill_in(pending.pop(), context)
        if share.spend():
            yield
    response.responses = yield from encode_topics(
        ProduceResponse, response.responses, "partition_responses", version, share
    )
    return response


def _let_go(request: ProduceRequest) -> Turns[None]:
    """Free what has been stored: at the end all at once, 10,000 partitions took 8 ms."""
    share = Share(8 * PARTITIONS_PER_TURN)
    for topic_data in request.topic_data:
        while topic_data.partition_data:
            del topic_data.partition_data[-PARTITIONS_PER_TURN:]
            if share.spend(PARTITIONS_PER_TURN):
                yield


def error_response(
    request: ProduceRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> ProduceResponse | None:
    response = _refuse_all(request, lambda *_: code, message)
    if request.acks == 0:
        count_error_codes(response, context)
        raise ProtocolError(f"acks=0, {code.name}: {message}")
    return response


def _refuse_all(
    request: ProduceRequest,
    why: Callable[[TopicProduceData, PartitionProduceData], ErrorCode],
    message: str | None,
) -> ProduceResponse:
    """Return the answer that takes none of the batches."""
    response = ProduceResponse()
    for topic_data in request.topic_data:
        answers = []
        for data in topic_data.partition_data:
            answer = PartitionProduceResponse(index=data.index)
            _refuse(answer, why(topic_data, data), message)
            answers.append(answer)
        if answers:
            response.responses.append(
                TopicProduceResponse(
                    name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=answers
                )
            )
    return response


def _refuse_acks(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
    """Refuse an unknown acks where nothing else is wrong that Kafka finds before it."""
    by_id = context.api_version >= _TOPIC_IDS

    def why(topic_data: TopicProduceData, data: PartitionProduceData) -> ErrorCode:
        if _lacks_transactional_id(request, data):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        key = topic_data.topic_id if by_id else topic_data.name
        partition, code = context.gateway.catalog.find(key, data.index)
        if partition is None:
            return _unreadable(data) or code
        try:
            read_produced_batch(cast("Buffer | None", data.records))
        except KafkaError as error:
            return error.code
        return ErrorCode.INVALID_REQUIRED_ACKS

    return _refuse_all(request, why, f"acks must be -1, 0 or 1, not {request.acks}")


def _lacks_transactional_id(request: ProduceRequest, data: PartitionProduceData) -> bool:
    """Whether a transactional batch comes with a request that names no transactional id."""
    records = cast("Buffer | None", data.records)
    return (
        request.transactional_id is None
        and records is not None
        and len(records) > _ATTRIBUTES
        and records[_MAGIC] == _FORMAT_2
        and records[_ATTRIBUTES] & TRANSACTIONAL_FLAG != 0
    )


def _unreadable(data: PartitionProduceData) -> ErrorCode | None:
    """Return why bytes are no batch of any format: Kafka finds that before it looks for a topic."""
    try:
        read_produced_batch(cast("Buffer | None", data.records))
    except RecordError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            return error.code
    except KafkaError:
        pass
    return None


def _append(
    answer: PartitionProduceResponse,
    partition: Partition,
    data: PartitionProduceData,
    context: RequestContext,
    verify: Callable[[RecordBatch], Completion[ErrorCode]] | None,
    pending: list[_Pending],
) -> None:
    """Submit one partition's batch, or fill in why not."""
    # A decoded request has a memoryview there; lists of buffers are for those who encode.
    records = cast("Buffer | None", data.records)
    # Once for each batch: a look instead of a call.
    if (
        verify is None
        and records is not None
        and len(records) > _ATTRIBUTES
        and records[_ATTRIBUTES] & TRANSACTIONAL_FLAG
        and _lacks_transactional_id(context.request, data)
    ):
        _refuse(
            answer,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch needs a transactional id",
        )
        return
    version = context.api_version
    try:
        if context.gateway.late_append_bytes:
            _check_late(partition, records, context)
        appended = (
            partition.append(
                records,
                zstd_allowed=version >= 7,
                verify=verify,
                transactional_id=context.request.transactional_id,
            )
            if version >= _BATCHES
            else partition.append_message_set(records)
        )
    except KafkaError as error:
        _count_refusal(error, partition, context)
        _refuse_append(answer, partition, data, error, version)
        return
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = partition.log.log_start_offset
    if appended.result is None:
        answer.base_offset = appended.base_offset
    else:
        pending.append((answer, partition, appended.result, appended.is_undecided))


def _verify(
    transactional_id: str,
    partition: Partition,
    context: RequestContext,
    adding: _Adding | None,
    batch: RecordBatch,
) -> Completion[ErrorCode]:
    """Have a partition taken into the transaction of a batch; for older clients, ask if it is."""
    producer = batch.producer_id, batch.producer_epoch
    place = PartitionKey(partition.topic.topic_id, partition.index)
    if adding is not None:
        return adding.add(producer, place)
    return _ask(transactional_id, producer, (place,), context)


def _ask(
    transactional_id: str,
    producer: tuple[int, int],
    places: Sequence[PartitionKey],
    context: RequestContext,
) -> Completion[ErrorCode]:
    """Ask the coordinator for partitions, as `_verify`."""
    try:
        coordinator = transactions(transactional_id, context)
    except KafkaError as error:
        elsewhere: Completion[ErrorCode] = Completion()
        elsewhere.set_result(error.code)
        return elsewhere
    ask = coordinator.add_partitions if context.api_version >= _ADDS else coordinator.verify
    return ask(transactional_id, *producer, places)


def _adding(request: ProduceRequest, context: RequestContext) -> _Adding | None:
    """Return what takes the partitions of a request into its transaction; None for one alone."""
    if request.transactional_id is None or context.api_version < _ADDS:
        return None
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return None
    return _Adding(request.transactional_id, context)


class _Adding:
    """The partitions of a request that come into its transaction, asked for together.

    Each by itself would make a row with all before it: 5,000 took 600 MB and two seconds.
    """

    __slots__ = ("_context", "_transactional_id", "_wanted")

    def __init__(self, transactional_id: str, context: RequestContext) -> None:
        self._transactional_id = transactional_id
        self._context = context
        self._wanted: dict[tuple[int, int], tuple[list[PartitionKey], Completion[ErrorCode]]] = {}

    def add(self, producer: tuple[int, int], place: PartitionKey) -> Completion[ErrorCode]:
        """Return what is to become of a partition. `ask` has to follow in this turn of the loop."""
        known = self._wanted.get(producer)
        if known is None:
            known = self._wanted[producer] = [], Completion()
        places, waiter = known
        places.append(place)
        return waiter

    def ask(self) -> None:
        """Ask for what was added. It must be called: batches wait for it."""
        for producer, (places, waiter) in self._wanted.items():
            try:
                asked = _ask(self._transactional_id, producer, places, self._context)
            except Exception as error:  # noqa: BLE001 - batches wait, and all of a partition's
                waiter.error = error
                waiter.finish()
                continue
            asked.then(waiter.finish_as)


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return what a producer is told of what a coordinator of transactions has said."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _ADDS:
        return code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version >= _ABORTABLE:
        return code
    return _OF_COORDINATORS.get(code, code)


def _refuse_append(
    answer: PartitionProduceResponse,
    partition: Partition,
    data: PartitionProduceData,
    error: KafkaError,
    version: int,
) -> None:
    """Fill in why a partition's batch may not enter."""
    if isinstance(error, UnfitRecordsError):
        _refuse_records(answer, partition, error)
        return
    _refuse(answer, _for_version(error.code, version), error.message)
    batch = _batch_of(data)
    if batch is None:
        return  # Kafka has not looked at the partition then
    _tell_start(answer, partition)
    if error.code is ErrorCode.INVALID_TIMESTAMP and batch.record_count == 1:
        # In a larger batch the record at fault is not known, as only the header was read.
        # Without a name clients fail all of the batch's records alike; naming the first would
        # blame it alone (KIP-467).
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message=error.message)
        ]


def _tell_start(answer: PartitionProduceResponse, partition: Partition) -> None:
    """Tell where a partition begins that takes no batch."""
    if answer.error_code not in _TELL_NO_START:
        answer.log_start_offset = partition.log.log_start_offset


def _batch_of(data: PartitionProduceData) -> RecordBatch | None:
    """Return the one batch that came, as far as its header goes; None where it is not one."""
    try:
        return read_produced_batch(cast("Buffer | None", data.records))
    except KafkaError:
        return None


def _fill_in(pending: _Pending, context: RequestContext) -> None:
    """Fill in what became of a submitted batch."""
    answer, partition, result, is_undecided = pending
    if not result.is_done:
        _refuse(answer, ErrorCode.REQUEST_TIMED_OUT, "not durable yet: it may be stored, or not")
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
        _count_refusal(error, partition, context)
        _refuse(answer, _for_version(error.code, context.api_version), error.message)
        _tell_start(answer, partition)
    else:
        # A bug of ours: perhaps stored, perhaps not. A retry finds out (`bug_code` in table.py).
        context.gateway.report_internal_error("PRODUCE", error)
        _refuse(answer, ErrorCode.REQUEST_TIMED_OUT, None)


def _count_refusal(
    error: KafkaError | StorageError, partition: Partition, context: RequestContext
) -> None:
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS and partition.topic.config.loading:
        context.gateway.metrics.loading_refusals += 1


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


def _undecided(
    response: ProduceResponse, pending: list[_Pending], context: RequestContext
) -> list[_Pending]:
    """Return what acks=0 has to wait for: batches that may still be refused for their records.

    Raises ProtocolError if one is refused already.
    """
    _close_on_refusal(response, context)
    return [one for one in pending if one[-1]]


def _close_on_refusal(response: ProduceResponse, context: RequestContext) -> None:
    """Deal with acks=0: there is no answer, but the connection closes when a batch is refused."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                # As in Kafka, although the answer is not sent.
                count_error_codes(response, context)
                raise ProtocolError(
                    f"acks=0, {ErrorCode(answer.error_code).name} for "
                    f"{topic.name!r}-{answer.index}: {answer.error_message}"
                )


def _all_of(appends: list[Append]) -> Completion[None]:
    """Return what is done when several appends are, none of which is done yet."""
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
