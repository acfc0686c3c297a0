"""What the campaign of power losses makes of recordings, and of answers that are wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kgw.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kgw.testing.batches import read_stored
from tests.campaigns import power_loss
from tests.campaigns.history import FinalLog
from tests.campaigns.power_loss import Recording, found_by, run_recording
from tests.campaigns.power_loss_judge import Crash, Found, judge, use
from tests.campaigns.power_loss_work import (
    COMPACTED,
    MANY,
    RELAXED,
    ROLLING,
    SINGLE,
    TOPIC_SETTINGS,
    Batch,
    Book,
)
from tests.campaigns.support import Report
from tests.campaigns.traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kgw.protocol.schema import Request, Response

PORT = 4000


def kept_recording(directory: Path, book: Book, answered_s: Sequence[float]) -> Recording:
    """Return a recording in which answers 1, 2, ... were sent at these times."""
    directory.mkdir()
    (directory / "root").write_text("/d")
    (directory / "book").write_text(book.dump())
    peer = f"9<TCP:[127.0.0.1:9092->127.0.0.1:{PORT}]>"
    (directory / "trace").write_text(
        '7 0.5 openat(AT_FDCWD</w>, "/d/f", O_RDWR|O_CREAT, 0600) = 3</d/f> <0.1>\n'
        "7 0.6 fdatasync(3</d/f>) = 0 <0.1>\n"
        + "".join(
            f'7 {at_s} write({peer}, "\\0\\0\\0\\4\\0\\0\\0\\{number}", 8) = 8 <0.1>\n'
            for number, at_s in enumerate(answered_s, 1)
        )
    )
    return Recording(directory, book)


def batches_of(topic: str, number: int, *, size_bytes: int = 10) -> list[Batch]:
    """Return batches of one record each that were answered with the offsets from 0 on."""
    key = b"key" if topic == COMPACTED else None
    return [
        Batch(
            *((PORT, at + 1), "worker", topic, 0, key, (b"%d;" % at + bytes(size_bytes),)),
            *(7, 0, at, at),
        )
        for at in range(number)
    ]


def log_of(batches: Sequence[Batch], start: int = 0) -> FinalLog:
    """Return a log that holds the records of batches from an offset on."""
    records = [(batch.offset, batch.values[0]) for batch in batches if batch.offset >= start]
    return FinalLog(start, len(batches), records)


def problems_of(
    logs: dict[tuple[str, int], FinalLog], batches: list[Batch], *, allowed_s: float = 1.0
) -> list[str]:
    """Return what is wrong with logs when all batches were answered nine seconds before."""
    crash = Crash({batch.place: 1.0 for batch in batches}, 10.0, allowed_s)
    return judge(Found({}, logs), Book(batches), crash).problems


def test_a_promise_without_its_answer_ends_the_reading(tmp_path: Path) -> None:
    """What was asked for and has no answer in the trace is not passed over in silence."""
    with pytest.raises(TraceError, match="no answer"):
        kept_recording(tmp_path / "recording", Book(batches_of(MANY, 2)), [1.0])


def test_only_slow_appends_of_the_last_second_widen_the_window(tmp_path: Path) -> None:
    """A slow append excuses losses while it runs and for a second, not in the whole recording."""
    slow, quick = batches_of(MANY, 2)
    book = Book([slow._replace(sent_s=1.0), quick._replace(sent_s=8.9)])
    recording = kept_recording(tmp_path / "recording", book, [3.0, 9.0])
    assert 4.0 == pytest.approx(recording.window_s(3.5))
    assert 0.2 == pytest.approx(recording.window_s(9.5))


def test_a_short_run_judges_no_age() -> None:
    """A relaxed loss of any age is no finding where no age is judged; a hole still is one."""
    batches = batches_of(RELAXED, 3)
    log = FinalLog(0, 3, log_of(batches).records[:2])
    assert ["relaxed: acked-lost: 2, answered 9000 ms before"] == problems_of(
        {(RELAXED, 0): log}, batches
    )
    assert [] == problems_of({(RELAXED, 0): log}, batches, allowed_s=math.inf)
    hole = FinalLog(0, 3, log_of(batches).records[1:])
    assert ["relaxed: 0 is lost from before 2"] == problems_of(
        {(RELAXED, 0): hole}, batches, allowed_s=math.inf
    )


@pytest.mark.parametrize("topic", [COMPACTED, RELAXED, SINGLE])
def test_a_record_served_twice_is_found(topic: str) -> None:
    """Offsets rise strictly in every log, and stay below its high watermark."""
    batches = batches_of(topic, 2)
    log = log_of(batches)
    assert [] == problems_of({(topic, 0): log}, batches)
    twice = log._replace(records=[*log.records, log.records[-1]])
    assert problems_of({(topic, 0): twice}, batches)
    above = log._replace(high_watermark=1)
    assert problems_of({(topic, 0): above}, batches)


def test_retention_by_size_leaves_its_size() -> None:
    """A log begins where at least retention.bytes of what was promised remain."""
    batches = batches_of(ROLLING, 20, size_bytes=1_000)
    kept_bytes = int(TOPIC_SETTINGS[ROLLING]["retention.bytes"])
    kept = -(-kept_bytes // len(batches[0].encoded()))
    assert [] == problems_of({(ROLLING, 0): log_of(batches, 20 - kept)}, batches)
    assert problems_of({(ROLLING, 0): log_of(batches, 21 - kept)}, batches)
    assert problems_of({(ROLLING, 0): log_of(batches, 20)}, batches)
    few = batches[:3]
    assert [] == problems_of({(ROLLING, 0): log_of(few)}, few)
    assert problems_of({(ROLLING, 0): log_of(few, 1)}, few)


class Answers:
    """A gateway that knows batches again by their values."""

    def __init__(self, batches: Sequence[Batch], refused: int = -1) -> None:
        self.repeated: list[int] = []
        self._offsets = {batch.values[0]: batch.offset for batch in batches}
        self._end = len(batches)
        self._refused = refused

    async def ask(self, request: Request, _version: int) -> Response:
        """Answer what `use` asks."""
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=99, producer_epoch=0)
        if isinstance(request, ListOffsetsRequest):
            end = ListOffsetsPartitionResponse(partition_index=0, offset=self._end)
            topic = ListOffsetsTopicResponse(name=SINGLE, partitions=[end])
            return ListOffsetsResponse(topics=[topic])
        assert isinstance(request, ProduceRequest)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, bytes)
        (record,) = read_stored([records])
        offset, code = self._offsets.get(record.value, self._end), 0
        if offset < self._end:
            self.repeated.append(offset)
        if offset == self._refused:
            offset, code = -1, ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        part = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=SINGLE, partition_responses=[part])]
        )


async def test_the_last_five_batches_are_repeated() -> None:
    """Each promised batch of the last five that are there is sent again, the oldest first."""
    # The gateway has the last one though it was not promised; one more was sent later.
    batches = batches_of(SINGLE, 8)
    there, promised = batches[:7], batches[:6]
    crash = Crash({batch.place: 1.0 for batch in promised}, 10.0, 1.0)
    answers = Answers(there)
    found = Found({}, {(SINGLE, 0): log_of(there)})
    assert [] == await use(answers.ask, Book(batches), found, crash)
    assert [2, 3, 4, 5] == answers.repeated


async def test_a_repeated_batch_gets_its_offset() -> None:
    """Among the last five batches nothing but the first offset is an answer."""
    batches = batches_of(SINGLE, 5)
    crash = Crash({batch.place: 1.0 for batch in batches}, 10.0, 1.0)
    found = Found({}, {(SINGLE, 0): log_of(batches)})
    answers = Answers(batches, refused=1)
    (problem,) = await use(answers.ask, Book(batches), found, crash)
    assert "gets code 46" in problem


def test_whatever_a_boot_raises_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nobody expects is a finding of its image, and the campaign goes on."""

    async def fail(*_: object) -> None:
        raise IndexError("unforeseen")

    monkeypatch.setattr(power_loss, "boot_here", fail)
    kept_recording(tmp_path / "recording-0", Book(batches_of(MANY, 1)), [1.0])
    report = Report("test", 1)
    run_recording(report, tmp_path, 0, images=4, steps=0, processes=5, command=(), boot_command=())
    assert 4 == report.failure_count
    assert "IndexError('unforeseen')" in report.failures[0]


def test_whatever_a_recording_raises_is_a_finding(tmp_path: Path) -> None:
    """A recording that cannot be read in a way nobody expects is a finding."""
    kept_recording(tmp_path / "recording-0", Book(), [1.0])
    (tmp_path / "recording-0" / "book").write_text("('Unknown', 1)")
    report = Report("test", 1)
    run_recording(report, tmp_path, 0, images=4, steps=0, processes=5, command=(), boot_command=())
    assert "KeyError('Unknown')" in report.failures[0]


@pytest.mark.parametrize(
    ("bug", "failure", "is_found"),
    [
        ("no-journal", "many-3: acked-lost: b'x'", True),
        ("no-journal", "compacted: acked-lost: b'x' at 0", True),
        ("no-journal", "relaxed: acked-lost: 7, answered 900 ms before", False),
        ("no-journal", "no start: RefusedError('x')", False),
        ("void-fdatasync", "single-0: acked-lost: b'x'", True),
        ("void-sync-directory", "('topic', 'made-1') is 0 and not ['3']", True),
        ("void-sync-directory", "('topic', 'made-1') is 1 and not ['3']", False),
        ("late-flush-timer", "relaxed: acked-lost: 7, answered 900 ms before", True),
        ("late-flush-timer", "relaxed: 7 is lost from before 9", False),
    ],
)
def test_a_control_is_found_by_its_name(bug: str, failure: str, is_found: bool) -> None:
    """Only what a bug must lead to counts as finding it."""
    assert is_found == found_by(bug, f"recording-0 image 12, nothing at 3121: {failure}")
