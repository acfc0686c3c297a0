"""What a gateway still has after a power loss, compared with what clients were promised by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kgw.protocol.messages.produce import ProduceResponse
from kgw.testing.batches import read_stored
from tests.campaigns.history import FinalLog, Outcome, Send, check_history
from tests.campaigns.power_loss_work import (
    BEGUN_LATER,
    CHANGED_SETTING,
    COMPACTED,
    MANY,
    RELAXED,
    ROLLING,
    SINGLE,
    TOPIC_SETTINGS,
    Batch,
    Book,
    Given,
    Seen,
    checked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.campaigns.power_loss_work import Ask, Change, Place

STRICT: Final = (MANY, SINGLE, BEGUN_LATER, ROLLING)
KEPT_BATCHES: Final = 5
"""So many of the newest batches of a producer are known again, in each partition."""
_TOPIC_RESOURCE: Final = 2
_EARLIEST, _LATEST = -2, -1
_LAST_DELTA: Final = slice(23, 27)


class Found(NamedTuple):
    """All that a gateway has."""

    values: dict[tuple[str | int, ...], str | int]
    """By subject, as in `Change`."""
    logs: dict[tuple[str, int], FinalLog]


class Crash(NamedTuple):
    """A power loss, as far as clients are concerned."""

    answered_s: Mapping[Place, float]
    """When each answer was sent that was sent by then."""
    time_s: float
    allowed_s: float
    """For how long before it answers about relaxed topics may come to nothing."""


async def look(ask: Ask, book: Book) -> Found:
    """Read everything, changing nothing."""
    metadata = checked(await ask(MetadataRequest(topics=None), 9), MetadataResponse)
    topics = {str(topic.name): len(topic.partitions) for topic in metadata.topics}
    values: dict[tuple[str | int, ...], str | int] = {
        ("topic", name): partitions for name, partitions in topics.items()
    }
    settings = [subject for subject in book.changes() if subject[0] == "setting"]
    for _, name, _ in settings:
        if name in topics:
            values["setting", name, CHANGED_SETTING] = await _setting(ask, str(name))
    for group in {subject[1] for subject in book.changes() if subject[0] == "commit"}:
        request = OffsetFetchRequest(group_id=str(group), topics=None)
        answer = checked(await ask(request, 7), OffsetFetchResponse)
        for topic in answer.topics:
            for one in topic.partitions:
                values["commit", group, topic.name, one.partition_index] = one.committed_offset
    logs: dict[tuple[str, int], FinalLog] = {}
    for name in (*STRICT, COMPACTED, RELAXED):
        for partition in range(topics.get(name, 0)):
            log = await _read_log(ask, name, partition)
            logs[name, partition] = log
            values["start", name, partition] = log.log_start_offset
    return Found(values, logs)


async def _setting(ask: Ask, topic: str) -> str:
    resource = DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[CHANGED_SETTING]
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = checked(await ask(request, 4), DescribeConfigsResponse)
    return str(answer.results[0].configs[0].value)


async def _offset(ask: Ask, topic: str, partition: int, timestamp: int) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = checked(await ask(request, 5), ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


async def _read_log(ask: Ask, topic: str, partition: int) -> FinalLog:
    start = await _offset(ask, topic, partition, _EARLIEST)
    end = await _offset(ask, topic, partition, _LATEST)
    records: list[tuple[int, bytes]] = []
    position = start
    while position < end:
        place = FetchPartition(
            partition=partition, fetch_offset=position, partition_max_bytes=1 << 30
        )
        topics = [FetchTopic(topic=topic, partitions=[place])]
        answer = await ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 11)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        data = part.records if isinstance(part.records, memoryview) else memoryview(b"")
        if part.error_code or not data:
            # A relaxed log may end with offsets that it has left out. Else what is missing shows.
            break
        records += [(record.offset, record.value) for record in read_stored([data])]
        position = _end_of(data)
    return FinalLog(start, end, records)


def _end_of(data: memoryview) -> int:
    """Return the offset after the last batch."""
    position = end = 0
    while position < len(data):
        base_offset = int.from_bytes(data[position : position + 8], "big")
        header = data[position:]
        end = base_offset + int.from_bytes(header[_LAST_DELTA], "big") + 1
        position += 12 + int.from_bytes(header[8:12], "big")
    return end


class Verdict(NamedTuple):
    """What is wrong, and how long before the crash answers were given that came to nothing."""

    problems: list[str]
    lost_ages_s: list[float]


def judge(found: Found, book: Book, crash: Crash) -> Verdict:
    """Compare what there is with what was promised."""
    problems = list(_judge_offsets(found))
    lost_ages_s: list[float] = []
    batches = book.batches()
    for topic in STRICT:
        mine = [batch for batch in batches if batch.topic == topic]
        problems += _judge_strict(found, topic, mine, crash)
    problems += _judge_compacted(found, [one for one in batches if one.topic == COMPACTED], crash)
    relaxed = [batch for batch in batches if batch.topic == RELAXED]
    for partition in {batch.partition for batch in relaxed}:
        mine = [batch for batch in relaxed if batch.partition == partition]
        log = found.logs.get((RELAXED, partition), FinalLog(0, 0, []))
        problems += _judge_relaxed(log, mine, crash, lost_ages_s)
    for subject, changes in book.changes().items():
        problems += _judge_changes(found, subject, changes, crash)
    problems += _judge_starts(found, book, crash)
    return Verdict(problems, lost_ages_s)


def _judge_offsets(found: Found) -> Iterator[str]:
    """Offsets rise in every log, and none is at or above the high watermark."""
    for (topic, partition), log in found.logs.items():
        previous = log.log_start_offset - 1
        for offset, _ in log.records:
            if not previous < offset < log.high_watermark:
                yield f"{topic}-{partition}: {offset} after {previous}, below {log.high_watermark}"
            previous = offset


def _placed(batch: Batch) -> Iterator[tuple[int, bytes]]:
    """Return offset and value of each record, -1 where no offset was ever answered."""
    for at, value in enumerate(batch.values):
        yield (-1 if batch.offset < 0 else batch.offset + at), value


def _judge_strict(found: Found, topic: str, batches: list[Batch], crash: Crash) -> Iterator[str]:
    sends: list[Send] = []
    places = {value: offset for batch in batches for offset, value in _placed(batch)}
    for (name, partition), log in found.logs.items():
        for offset, value in log.records if name == topic else ():
            # Answered or not by then: it was answered with that offset a little later.
            if places.get(value, -1) not in {-1, offset}:
                yield f"{topic}-{partition}: {value[:40]!r} is at {offset}, not {places[value]}"
    for batch in batches:
        is_promised = batch.place in crash.answered_s
        outcome = Outcome.OK if is_promised else Outcome.INFO
        for offset, value in _placed(batch):
            where = offset if is_promised else None
            sends.append(Send(batch.worker, batch.partition, value, outcome, where))
    # A partition that is not there has lost everything.
    final = {batch.partition: FinalLog(0, 0, []) for batch in batches}
    final |= {partition: log for (name, partition), log in found.logs.items() if name == topic}
    for anomaly in check_history(sends, final):
        yield f"{topic}-{anomaly.partition}: {anomaly.kind.value}: {anomaly.detail[:200]}"


def _judge_compacted(found: Found, batches: list[Batch], crash: Crash) -> Iterator[str]:
    log = found.logs.get((COMPACTED, 0), FinalLog(0, 0, []))
    sent = {value: batch for batch in batches for value in batch.values}
    newest: dict[bytes, int] = {}
    places: dict[bytes, int] = {}
    for offset, value in log.records:
        if places.setdefault(value, offset) != offset:
            yield f"compacted: {value[:40]!r} is there twice"
        batch = sent.get(value)
        if batch is None or batch.offset not in {-1, offset}:
            yield f"compacted: at {offset} is what nobody wrote there: {value[:40]!r}"
        elif batch.key is not None:
            newest[batch.key] = offset
    for batch in batches:
        is_promised = batch.place in crash.answered_s
        if is_promised and batch.key is not None and newest.get(batch.key, -1) < batch.offset:
            yield f"compacted: acked-lost: {batch.values[0][:40]!r} at {batch.offset}"


def _judge_relaxed(
    log: FinalLog, batches: list[Batch], crash: Crash, lost_ages_s: list[float]
) -> Iterator[str]:
    there = dict(log.records)
    sent = {value for batch in batches for value in batch.values}
    for offset, value in there.items():
        if value not in sent:
            yield f"relaxed: nobody sent what is at {offset}"
    if len(set(there.values())) != len(there):
        yield "relaxed: a record is there twice"
    for batch in batches:
        answered_s = crash.answered_s.get(batch.place)
        for offset, value in _placed(batch):
            if there.get(offset) == value or batch.offset < 0:
                continue
            if offset in there or value in there.values():
                yield f"relaxed: acked-moved: {value[:40]!r} from {offset}"
            elif answered_s is not None:
                age_s = crash.time_s - answered_s
                lost_ages_s.append(age_s)
                if age_s > crash.allowed_s:
                    yield f"relaxed: acked-lost: {offset}, answered {1000 * age_s:.0f} ms before"
                if offset < log.records_end:
                    yield f"relaxed: {offset} is lost from before {log.records_end - 1}"


def _judge_changes(
    found: Found, subject: tuple[str | int, ...], changes: list[Change], crash: Crash
) -> Iterator[str]:
    """The last value that was promised, or the one that was asked for after it."""
    promised = sum(change.place in crash.answered_s for change in changes)
    allowed = {change.value for change in changes[max(promised - 1, 0) : promised + 1]}
    default: str | int = 0 if subject[0] in {"topic", "start"} else ""
    if not promised:
        if subject[0] == "setting":
            # The topic may be there with its default already, or be gone.
            return
        allowed.add(default)
    value = found.values.get(subject, default)
    if subject[0] == "start" and ("topic", subject[1]) not in found.values:
        return
    if value not in allowed:
        yield f"{subject} is {value!r} and not {sorted(map(str, allowed))}"


def _judge_starts(found: Found, book: Book, crash: Crash) -> Iterator[str]:
    """No log begins later than it may, or what is lost there would not be noticed."""
    for entry in book.entries:
        if isinstance(entry, Seen) and entry.place not in crash.answered_s:
            start = found.values.get(("start", entry.topic, entry.partition), 0)
            if int(start) > entry.log_start_offset:
                yield f"{entry.topic}-{entry.partition} begins at {start}: {entry}"
    for (topic, partition), log in found.logs.items():
        if topic not in {BEGUN_LATER, ROLLING} and log.log_start_offset:
            yield f"{topic}-{partition} begins at {log.log_start_offset}"
        if topic == ROLLING:
            yield from _judge_size(partition, log, book, crash)


def _judge_size(partition: int, log: FinalLog, book: Book, crash: Crash) -> Iterator[str]:
    """Retention by size removes only while `retention.bytes` remain."""
    sizes = {
        batch: len(batch.encoded())
        for batch in book.batches()
        if (batch.topic, batch.partition) == (ROLLING, partition)
    }
    promised_bytes = sum(size for batch, size in sizes.items() if batch.place in crash.answered_s)
    # What was stored and not answered yet counts for retention, too.
    left_bytes = sum(
        size
        for batch, size in sizes.items()
        if log.log_start_offset <= batch.offset < log.high_watermark
    )
    needed_bytes = min(promised_bytes, int(TOPIC_SETTINGS[ROLLING]["retention.bytes"]))
    if left_bytes < needed_bytes:
        yield (
            f"{ROLLING}-{partition} begins at {log.log_start_offset}, with {left_bytes} bytes "
            f"of {needed_bytes}"
        )


async def use(ask: Ask, book: Book, found: Found, crash: Crash) -> list[str]:
    """Ask for an id, repeat batches that were acknowledged, append new ones."""
    problems: list[str] = []
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    new = checked(await ask(request, 4), InitProducerIdResponse)
    promised = {
        entry.producer_id
        for entry in book.entries
        if isinstance(entry, Given) and entry.place in crash.answered_s
    }
    if new.producer_id in promised:
        problems.append(f"producer id {new.producer_id} is handed out again")
    for batch in _repeatable(book, found, crash):
        problems += await _repeat(ask, batch, found)
    for (topic, partition), log in found.logs.items():
        problems += await _append(ask, book, topic, partition, log, crash)
    return problems


def _repeatable(book: Book, found: Found, crash: Crash) -> Iterator[Batch]:
    """Return what is promised of the last batches of idempotent producers, the oldest first."""
    values = {place: {value for _, value in log.records} for place, log in found.logs.items()}
    there: dict[tuple[int, str, int], list[Batch]] = {}
    for batch in book.batches():
        place = (batch.topic, batch.partition)
        # Promised or not, what is there is known. What is missing is judged elsewhere.
        if batch.producer_id >= 0 and batch.values[0] in values.get(place, ()):
            there.setdefault((batch.producer_id, *place), []).append(batch)
    for batches in there.values():
        for batch in batches[-KEPT_BATCHES:]:
            if batch.place in crash.answered_s:
                yield batch


async def _produce(ask: Ask, batch: Batch) -> tuple[int, int]:
    answer = await ask(batch.request(), 9)
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


async def _repeat(ask: Ask, batch: Batch, found: Found) -> list[str]:
    problems: list[str] = []
    code, offset = await _produce(ask, batch)
    if code or offset != batch.offset:
        problems.append(
            f"{batch.topic}-{batch.partition}: a repeated batch of {batch.worker} gets code {code} "
            f"and offset {offset}, not {batch.offset}"
        )
    end = await _offset(ask, batch.topic, batch.partition, _LATEST)
    log = found.logs.get((batch.topic, batch.partition))
    if log is not None and end != log.high_watermark:
        problems.append(f"{batch.topic}-{batch.partition}: a repeated batch is there twice")
    return problems


async def _append(
    ask: Ask, book: Book, topic: str, partition: int, log: FinalLog, crash: Crash
) -> list[str]:
    """Appends go on, above every offset that was given."""
    key = b"key-new" if topic == COMPACTED else None
    batch = Batch((0, 0), "after", topic, partition, key, (b"after the power loss",))
    code, offset = await _produce(ask, batch)
    given = [
        one.offset + len(one.values) - 1
        for one in book.batches()
        if (one.topic, one.partition) == (topic, partition) and one.place in crash.answered_s
    ]
    if code or offset <= max(given, default=-1) or offset < log.high_watermark:
        return [f"{topic}-{partition}: a new batch gets code {code} and offset {offset}"]
    return []


def promised_by(at: int, answers: Mapping[Place, tuple[int, float]]) -> dict[Place, float]:
    """Return when each answer was sent of those that were sent by a place in the trace."""
    return {place: time_s for place, (sent, time_s) in answers.items() if sent <= at}
