"""Produce, key 0, versions 3 to 13 (0 to 2 are advertised and refused): append record batches.

Behaviour:
- one batch of format 2 a partition; its payload is stored as it came, its header and CRC are
  checked, and offset and leader epoch are written into it;
- appends are submitted, in the request's order, before `handle` returns: the server starts the next
  Produce of the connection meanwhile. Those of many partitions are submitted a part at a time, the
  loop turning in between; the next Produce of the connection begins behind the last of them;
- answered when every batch is durable, for acks=1 as for acks=all; acks=0 is not answered, and a
  refusal closes the connection, as in Kafka: there is no other way to tell;
- idempotence (KIP-98): a duplicate gets its first offset, a gap OUT_OF_ORDER_SEQUENCE_NUMBER;
- a compacted topic takes no record without a key: INVALID_RECORD, each of them named (KIP-467);
  records are read for that, and for message.timestamp.before.max.ms where a topic sets it;
- missing topics are not created here, only by Metadata: UNKNOWN_TOPIC_OR_PARTITION, or
  UNKNOWN_TOPIC_ID from v13 on; NOT_LEADER_OR_FOLLOWER for a partition of another node, which is
  named from v10 on;
- transactions are not served yet: INVALID_TXN_STATE;
- a failing or full disk is KAFKA_STORAGE_ERROR, which clients retry.

v3: format 2, transactional id (KIP-98). v5: log start offset (KIP-107). v7: zstd (KIP-110).
v8: messages of errors (KIP-467). v9: flexible (KIP-482). v10: new leaders in errors (KIP-951).
v11, v12: errors of transactions (KIP-890). v13: topic ids (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from kgw import turns
from kgw.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kgw.handlers.context import Later, Submission, until_done
from kgw.handlers.encoding_turns import encode_topics
from kgw.handlers.leaders import name_leader
from kgw.partitions.topic import why_missing
from kgw.partitions.validation import UnfitRecordsError
from kgw.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kgw.records.batch import read_batch
from kgw.records.errors import RecordError
from kgw.turns import Share, in_turns
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.append import Append
    from kgw.gateway import Gateway
    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest
    from kgw.turns import Rest, Turns
    from kgw.types import Buffer

_ACKS = frozenset({-1, 0, 1})
_NEW_LEADERS = 10
PARTITIONS_PER_TURN = 150
"""To take a batch in takes 6 to 9 us, twice that where memory is touched first."""
_BLAME_A_RECORD = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})


class Pending(NamedTuple):
    """A batch on its way to the disk, and the answer that waits for it."""

    answer: PartitionProduceResponse
    partition: Partition
    result: Append
    is_undecided: bool
    """Whether it may still be refused for what its records are."""


class _AfterAppends:
    """What an answer to several appends waits for, none of which is done yet."""

    __slots__ = ("_callback", "_left")

    def __init__(self, appends: Sequence[Append]) -> None:
        self._left = len(appends)
        self._callback: Callable[[object], object] | None = None
        for append in appends:
            append.when_done(self._count)

    def _count(self, _: Append) -> None:
        self._left -= 1
        if not self._left and self._callback is not None:
            self._callback(self)

    def done(self) -> bool:
        return not self._left

    def when_done(self, callback: Callable[[object], object]) -> None:
        self._callback = callback


def handle(request: ProduceRequest, context: RequestContext) -> Answer:
    if request.acks not in _ACKS:
        return error_response(
            request,
            ErrorCode.INVALID_REQUIRED_ACKS,
            f"acks must be -1, 0 or 1, not {request.acks}",
            context,
        )
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    pending: list[Pending] = []
    response = ProduceResponse()
    submitting = in_turns(
        _submit(request, context, response, pending), context.gateway.answer_turns
    )
    if submitting is not None:
        context.submission = Submission()
        return _answer_in_turns(submitting, request, context, response, pending)
    if request.acks == 0:
        return _unanswered(response, pending, context)
    if not pending:
        return response

    def make() -> ProduceResponse:
        for one in pending:
            finish(one, context.gateway)
        return response

    return _when_done(pending, make)


def _submit(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    pending: list[Pending],
) -> Turns[None]:
    """Submit the batches; put an answer for each in a response, and what is due in `pending`."""
    version = context.api_version
    catalog = context.gateway.catalog
    share = Share(PARTITIONS_PER_TURN)
    for topic_data in request.topic_data:
        if version >= 13:
            topic = catalog.by_id(topic_data.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = catalog.get(topic_data.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers: list[PartitionProduceResponse] = []
        for data in topic_data.partition_data:
            answer = PartitionProduceResponse(index=data.index)
            answers.append(answer)
            partition = None if topic is None else topic.partition(data.index)
            if topic is None:
                _refuse(answer, unknown, None)
            elif partition is None:
                _refuse(answer, why_missing(topic, data.index), None)
                if version >= _NEW_LEADERS and topic.has_partition(data.index):
                    endpoints = response.node_endpoints
                    name_leader(topic, data.index, answer, endpoints, NodeEndpoint, context)
            else:
                _append(answer, partition, data, version, pending)
            if share.spend():
                yield
        response.responses.append(
            TopicProduceResponse(
                name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=answers
            )
        )
        if share.spend():
            yield


async def _answer_in_turns(
    submitting: Rest[None],
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    pending: list[Pending],
) -> ProduceResponse | None:
    """Submit the rest of many batches, wait for all, and answer."""
    submission = context.submission
    assert submission is not None  # noqa: S101 - set by the caller
    try:
        await submitting
    finally:
        submission.end()
    if request.acks == 0:
        return await _made(_unanswered(response, pending, context))
    for one in pending:
        # Nearly all are done when one is: to be told of each took 4 ms with 10,000.
        if not one.result.is_done:
            await _made(_when_done([one], lambda: None))
    answer = await turns.finish(_encode(response, pending, context), context.gateway.answer_turns)
    await turns.finish(_let_go(request), context.gateway.answer_turns)
    return answer


async def _made(answer: ProduceResponse | Later | None) -> ProduceResponse | None:
    """Wait for an answer that may come later."""
    if not isinstance(answer, Later):
        return answer
    await until_done(answer)
    return cast("ProduceResponse | None", answer.make())


def _encode(
    response: ProduceResponse, pending: list[Pending], context: RequestContext
) -> Turns[ProduceResponse]:
    """Fill in what became of many batches, and encode the answer to them."""
    version = context.api_version
    share = Share(PARTITIONS_PER_TURN)
    while pending:
        finish(pending.pop(), context.gateway)
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
    response = ProduceResponse()
    for topic_data in request.topic_data:
        answers = [PartitionProduceResponse(index=data.index) for data in topic_data.partition_data]
        for answer in answers:
            _refuse(answer, code, message)
        response.responses.append(
            TopicProduceResponse(
                name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=answers
            )
        )
    if request.acks == 0:
        raise ProtocolError(f"acks=0, {code.name}: {message}")
    return response


def _append(
    answer: PartitionProduceResponse,
    partition: Partition,
    data: PartitionProduceData,
    version: int,
    pending: list[Pending],
) -> None:
    """Submit one partition's batch, or fill in why not."""
    try:
        # A decoded request has a memoryview there; lists of buffers are for those who encode.
        records = cast("Buffer | None", data.records)
        appended = partition.append(records, zstd_allowed=version >= 7)
    except KafkaError as error:
        refuse_append(answer, data, error)
        return
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = partition.log.log_start_offset
    if appended.result is None:
        answer.base_offset = appended.base_offset
    else:
        pending.append(Pending(answer, partition, appended.result, appended.is_undecided))


def refuse_append(
    answer: PartitionProduceResponse, data: PartitionProduceData, error: KafkaError
) -> None:
    """Fill in why a partition's batch may not enter."""
    if isinstance(error, UnfitRecordsError):
        _refuse_records(answer, error)
        return
    _refuse(answer, error.code, error.message)
    if error.code in _BLAME_A_RECORD and _record_count(data) == 1:
        # In a larger batch the record at fault is not known, as only the header was read.
        # Without a name clients fail all of the batch's records alike; naming the first would
        # blame it alone (KIP-467).
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message=error.message)
        ]


def _record_count(data: PartitionProduceData) -> int:
    try:
        return read_batch(data.records).record_count  # type: ignore[arg-type]
    except (RecordError, TypeError):
        return 0


def finish(pending: Pending, gateway: Gateway) -> None:
    """Fill in what became of a submitted batch."""
    answer, partition, result, _ = pending
    error = result.error
    if error is None:
        answer.base_offset = result.result.base_offset
    elif partition.topic.is_deleted:
        _refuse(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has been deleted")
    elif isinstance(error, StorageError):
        _refuse(answer, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    elif isinstance(error, UnfitRecordsError):
        _refuse_records(answer, error)
    elif isinstance(error, KafkaError):
        _refuse(answer, error.code, error.message)
    else:
        # A bug of ours: perhaps stored, perhaps not. A retry finds out (`bug_code` in table.py).
        gateway.report_internal_error("PRODUCE", error)
        _refuse(answer, ErrorCode.REQUEST_TIMED_OUT, None)


def _refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str | None) -> None:
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = NO_OFFSET
    answer.log_append_time_ms = -1
    answer.log_start_offset = NO_OFFSET


def _refuse_records(answer: PartitionProduceResponse, error: UnfitRecordsError) -> None:
    _refuse(answer, error.code, error.message)
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in error.records
    ]


def _unanswered(
    response: ProduceResponse, pending: list[Pending], context: RequestContext
) -> ProduceResponse | Later | None:
    """Deal with acks=0: no answer, but the connection closes when something is refused."""
    _close_on_refusal(response)
    undecided = [one for one in pending if one.is_undecided]
    if not undecided:
        return None

    def decide() -> None:
        for one in undecided:
            finish(one, context.gateway)
        _close_on_refusal(response)

    return _when_done(undecided, decide)


def _close_on_refusal(response: ProduceResponse) -> None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise ProtocolError(
                    f"acks=0, {ErrorCode(answer.error_code).name} for "
                    f"{topic.name!r}-{answer.index}: {answer.error_message}"
                )


def _when_done(
    pending: list[Pending], make: Callable[[], ProduceResponse | None]
) -> ProduceResponse | Later | None:
    """Return what `make` does, now or later."""
    appends = [one.result for one in pending if not one.result.is_done]
    if not appends:
        return make()
    return Later(appends[0] if len(appends) == 1 else _AfterAppends(appends), make)
