"""What the campaign of power losses makes of recordings, and of answers that are wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kgw.protocol.messages.fetch import FetchResponse
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
from kgw.testing.gateway import InProcessGateway
from tests.campaigns import power_loss, power_loss_judge
from tests.campaigns.history import FinalLog
from tests.campaigns.power_loss import Recording, found_by, run_recording
from tests.campaigns.power_loss_judge import (
    STRICT,
    Crash,
    Found,
    judge,
    look,
    promised_by,
    use,
)
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
    Change,
    Given,
    Seen,
    commit_request,
    create_request,
    setting_request,
)
from tests.campaigns.support import Report
from tests.campaigns.traces import TraceError
from tests.findings import unplanted

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


# --- each kind of finding, alone ------------------------------------------------------------------

COMMIT = ("commit", "group", MANY, 0)
LATER = 9
"""An answer that was sent after the power had gone."""


class Case(NamedTuple):
    """What was asked for, what there is, and what is said of it."""

    entries: list[Batch | Change | Given | Seen]
    logs: dict[tuple[str, int], FinalLog]
    said: list[str]
    values: dict[tuple[str | int, ...], str | int] = {}  # noqa: RUF012 - nobody changes it
    allowed_s: float = 1.0


def case_of(topic: str, *said: str, **changed: Any) -> Case:
    """Return a case of three batches that were answered, and a log that is not quite theirs."""
    batches = batches_of(topic, 3)
    return Case([*batches], {(topic, 0): log_of(batches)._replace(**changed)}, [*said])


def records_of(topic: str, *offsets: int) -> list[tuple[int, bytes]]:
    """Return those records of three batches, at their offsets."""
    return [(at, batches_of(topic, 3)[at].values[0]) for at in offsets]


def at(topic: str, offset: int, number: int) -> tuple[int, bytes]:
    """Return the record of a batch at an offset that may be another one's."""
    return offset, batches_of(topic, 3)[number].values[0]


def changes(subject: tuple[str | int, ...], *values: str | int, later: int = 0) -> list[Any]:
    """Return changes of a subject, of which the last ones were answered too late."""
    promised = len(values) - later
    return [
        Change((PORT, 100 + number if number < promised else LATER), subject, value)
        for number, value in enumerate(values)
    ]


def with_keys(*keys: bytes) -> list[Batch]:
    """Return batches for the compacted topic with these keys."""
    batches = batches_of(COMPACTED, len(keys))
    return [batch._replace(key=key) for batch, key in zip(batches, keys, strict=True)]


def unanswered(topic: str) -> list[Batch]:
    """Return three batches, the last one without an answer."""
    *batches, last = batches_of(topic, 3)
    return [*batches, last._replace(place=(PORT, LATER), offset=-1)]


def several(topic: str) -> list[Batch | Change | Given | Seen]:
    """Return two batches of two records each, the second one without an answer."""
    one, other = batches_of(topic, 2)
    return [
        one._replace(values=(b"a", b"b")),
        other._replace(values=(b"c", b"d"), place=(PORT, LATER), offset=-1),
    ]


def answered_later(topic: str) -> list[Batch]:
    """Return three batches; the answer to the last one was sent after the power had gone."""
    *batches, last = batches_of(topic, 3)
    return [*batches, last._replace(place=(PORT, LATER))]


FINE: dict[str, Case] = {
    **{f"all of {topic}": case_of(topic) for topic in (*STRICT, COMPACTED, RELAXED)},
    **{
        f"what nobody was promised is not there in {topic}": Case(
            [*unanswered(topic)], {(topic, 0): log_of(batches_of(topic, 2))}, []
        )
        for topic in (SINGLE, COMPACTED, RELAXED)
    },
    **{
        f"what nobody was promised is there in {topic}": Case(
            [*unanswered(topic)], {(topic, 0): log_of(batches_of(topic, 3))}, []
        )
        for topic in (SINGLE, COMPACTED, RELAXED)
    },
    **{
        f"what was answered later is not there in {topic}": Case(
            [*answered_later(topic)], {(topic, 0): log_of(batches_of(topic, 2))}, []
        )
        for topic in (SINGLE, COMPACTED, RELAXED)
    },
    **{
        f"batches of several records in {topic}": Case(
            several(topic),
            {(topic, 0): FinalLog(0, 4, list(enumerate([b"a", b"b", b"c", b"d"])))},
            [],
        )
        for topic in (SINGLE, RELAXED)
    },
    "a setting that is the default still": Case(
        changes(("setting", "t", "s"), "1", later=1), {}, [], {("setting", "t", "s"): "0"}
    ),
    "a start of a topic that is gone": Case(changes(("start", BEGUN_LATER, 0), 2), {}, []),
    "an older record of a key is gone": Case(
        [*with_keys(b"a", b"b", b"a")],
        {(COMPACTED, 0): log_of(batches_of(COMPACTED, 3), 1)._replace(log_start_offset=0)},
        [],
    ),
    "a young record of a relaxed topic is gone": Case(
        [*batches_of(RELAXED, 3)],
        {(RELAXED, 0): log_of(batches_of(RELAXED, 3))._replace(records=records_of(RELAXED, 0, 1))},
        [],
        allowed_s=9.5,
    ),
    "the last commit": Case(changes(COMMIT, 3, 5), {}, [], {COMMIT: 5}),
    "the commit that was not answered": Case(changes(COMMIT, 3, 5, later=1), {}, [], {COMMIT: 5}),
    "the commit before it": Case(changes(COMMIT, 3, 5, later=1), {}, [], {COMMIT: 3}),
    "a topic that nobody was promised": Case(changes(("topic", "t"), 3, later=1), {}, []),
    "a topic that is deleted": Case(changes(("topic", "t"), 3, 0), {}, []),
    "a setting": Case(
        changes(("setting", "t", "s"), "1", "2"), {}, [], {("setting", "t", "s"): "2"}
    ),
    "a setting that nobody was promised": Case(
        changes(("setting", "t", "s"), "1", later=1), {}, []
    ),
    "a start that was moved": Case(
        changes(("start", BEGUN_LATER, 0), 2),
        {(BEGUN_LATER, 0): FinalLog(2, 3, [])},
        [],
        {("topic", BEGUN_LATER): 1, ("start", BEGUN_LATER, 0): 2},
    ),
    "a start that is where it was seen": Case(
        [Seen((PORT, LATER), ROLLING, 0, 4)], {}, [], {("start", ROLLING, 0): 4}
    ),
}

WRONG: dict[str, Case] = {
    "offsets that do not rise": case_of(
        COMPACTED,
        "compacted-0: 1 after 1, below 3",
        records=[*records_of(COMPACTED, 0, 1), *records_of(COMPACTED, 1, 2)],
    ),
    "an offset at the high watermark": case_of(
        RELAXED, "relaxed-0: 2 after 1, below 2", high_watermark=2
    ),
    "an offset below the start": Case(
        [*batches_of(ROLLING, 3)],
        {(ROLLING, 0): log_of(batches_of(ROLLING, 3))._replace(log_start_offset=1)},
        [
            "rolling-0: 0 after 0, below 3",
            "rolling-0: inconsistent-offsets: the final log has 0 after 0, below 3",
            "rolling-0 begins at 1, with 160 bytes of 240",
        ],
    ),
    **{
        f"lost from {topic}": case_of(
            topic,
            f"{topic}-0: acked-lost: {records_of(topic, 2)[0][1]!r}, acknowledged at 2",
            records=records_of(topic, 0, 1),
        )
        for topic in STRICT
    },
    "a whole partition is lost": Case(
        [*batches_of(MANY, 1)],
        {},
        [f"many-0: acked-lost: {records_of(MANY, 0)[0][1]!r}, acknowledged at 0"],
    ),
    "moved, before its answer was sent": Case(
        [*answered_later(SINGLE)],
        {(SINGLE, 0): FinalLog(0, 4, [*records_of(SINGLE, 0, 1), at(SINGLE, 3, 2)])},
        [f"single-0: {records_of(SINGLE, 2)[0][1]!r} is at 3, not 2"],
    ),
    "what nobody sent": case_of(
        SINGLE,
        "single-0: phantom: nobody sent b'x'",
        records=[*records_of(SINGLE, 0, 1, 2), (3, b"x")],
        high_watermark=4,
    ),
    "twice, without an answer": Case(
        [*unanswered(SINGLE)],
        {(SINGLE, 0): FinalLog(0, 4, [*records_of(SINGLE, 0, 1, 2), at(SINGLE, 3, 2)])},
        [f"single-0: duplicate: {records_of(SINGLE, 2)[0][1]!r} is at [2, 3]"],
    ),
    "compacted: what nobody wrote": case_of(
        COMPACTED,
        "compacted: at 3 is what nobody wrote there: b'x'",
        records=[*records_of(COMPACTED, 0, 1, 2), (3, b"x")],
        high_watermark=4,
    ),
    "compacted: moved": Case(
        [*answered_later(COMPACTED)],
        {(COMPACTED, 0): FinalLog(0, 4, [*records_of(COMPACTED, 0, 1), at(COMPACTED, 3, 2)])},
        [f"compacted: at 3 is what nobody wrote there: {records_of(COMPACTED, 2)[0][1]!r}"],
    ),
    "compacted: twice, without an answer": Case(
        [*unanswered(COMPACTED)],
        {(COMPACTED, 0): FinalLog(0, 4, [*records_of(COMPACTED, 0, 1, 2), at(COMPACTED, 3, 2)])},
        [f"compacted: {records_of(COMPACTED, 2)[0][1]!r} is there twice"],
    ),
    "compacted: the newest of a key is lost": Case(
        [*with_keys(b"a", b"b", b"a")],
        {(COMPACTED, 0): FinalLog(0, 3, records_of(COMPACTED, 0, 1))},
        [f"compacted: acked-lost: {records_of(COMPACTED, 2)[0][1]!r} at 2"],
    ),
    "compacted: a whole key is lost": Case(
        [*with_keys(b"a", b"b", b"a")],
        {(COMPACTED, 0): FinalLog(0, 3, records_of(COMPACTED, 0, 2))},
        [f"compacted: acked-lost: {records_of(COMPACTED, 1)[0][1]!r} at 1"],
    ),
    "compacted: the log is lost": Case(
        [*batches_of(COMPACTED, 1)],
        {},
        [f"compacted: acked-lost: {records_of(COMPACTED, 0)[0][1]!r} at 0"],
    ),
    "relaxed: what nobody sent": case_of(
        RELAXED,
        "relaxed: nobody sent what is at 3",
        records=[*records_of(RELAXED, 0, 1, 2), (3, b"x")],
        high_watermark=4,
    ),
    "relaxed: twice, without an answer": Case(
        [*unanswered(RELAXED)],
        {(RELAXED, 0): FinalLog(0, 4, [*records_of(RELAXED, 0, 1, 2), at(RELAXED, 3, 2)])},
        ["relaxed: a record is there twice"],
    ),
    "relaxed: moved": Case(
        [*answered_later(RELAXED)],
        {(RELAXED, 0): FinalLog(0, 4, [*records_of(RELAXED, 0, 1), at(RELAXED, 3, 2)])},
        [f"relaxed: acked-moved: {records_of(RELAXED, 2)[0][1]!r} from 2"],
    ),
    "relaxed: lost too late": case_of(
        RELAXED,
        "relaxed: acked-lost: 2, answered 9000 ms before",
        records=records_of(RELAXED, 0, 1),
    ),
    "relaxed: lost in the middle": Case(
        [*batches_of(RELAXED, 3)],
        {(RELAXED, 0): FinalLog(0, 3, records_of(RELAXED, 0, 2))},
        ["relaxed: 1 is lost from before 2"],
        allowed_s=math.inf,
    ),
    "a commit goes back": Case(
        changes(COMMIT, 3, 5), {}, [f"{COMMIT} is 3 and not ['5']"], {COMMIT: 3}
    ),
    "a commit that nobody made": Case(
        changes(COMMIT, 3, 5, later=1), {}, [f"{COMMIT} is 6 and not ['3', '5']"], {COMMIT: 6}
    ),
    "a commit that nobody has asked for yet": Case(
        changes(COMMIT, 3, 5, 7, later=2), {}, [f"{COMMIT} is 7 and not ['3', '5']"], {COMMIT: 7}
    ),
    "the last record of a batch is lost": Case(
        several(SINGLE),
        {(SINGLE, 0): FinalLog(0, 2, [(0, b"a")])},
        ["single-0: acked-lost: b'b', acknowledged at 1"],
    ),
    "relaxed: the last record of a batch is lost": Case(
        several(RELAXED),
        {(RELAXED, 0): FinalLog(0, 2, [(0, b"a")])},
        ["relaxed: acked-lost: 1, answered 9000 ms before"],
    ),
    "no commit at all": Case(changes(COMMIT, 3), {}, [f"{COMMIT} is '' and not ['3']"]),
    "a topic is gone": Case(changes(("topic", "t"), 3), {}, ["('topic', 't') is 0 and not ['3']"]),
    "a topic is there again": Case(
        changes(("topic", "t"), 3, 0),
        {},
        ["('topic', 't') is 3 and not ['0']"],
        {("topic", "t"): 3},
    ),
    "a topic has too few partitions": Case(
        changes(("topic", "t"), 3, later=1),
        {},
        ["('topic', 't') is 2 and not ['0', '3']"],
        {("topic", "t"): 2},
    ),
    "a setting is what it was": Case(
        changes(("setting", "t", "s"), "1", "2"),
        {},
        ["('setting', 't', 's') is '1' and not ['2']"],
        {("setting", "t", "s"): "1"},
    ),
    "a start goes back": Case(
        changes(("start", BEGUN_LATER, 0), 2),
        {},
        [f"('start', '{BEGUN_LATER}', 0) is 0 and not ['2']"],
        {("topic", BEGUN_LATER): 1, ("start", BEGUN_LATER, 0): 0},
    ),
    "a log begins later than was seen": Case(
        [Seen((PORT, LATER), ROLLING, 0, 4)],
        {},
        [f"rolling-0 begins at 5: {Seen((PORT, LATER), ROLLING, 0, 4)}"],
        {("start", ROLLING, 0): 5},
    ),
    **{
        f"{topic} begins later than it may": Case(
            [], {(topic, 0): FinalLog(1, 1, [])}, [f"{topic}-0 begins at 1"]
        )
        for topic in (MANY, SINGLE, COMPACTED, RELAXED)
    },
}


@pytest.mark.parametrize("what", [*FINE, *WRONG])
def test_what_a_power_loss_has_broken_is_found_by_its_name(what: str) -> None:
    """Each thing alone; and nothing is said where everything is as it was promised."""
    case = (FINE | WRONG)[what]
    answered_s = {one.place: 1.0 for one in case.entries if one.place[1] != LATER}
    crash = Crash(answered_s, 10.0, case.allowed_s)
    assert case.said == judge(Found(case.values, case.logs), Book(case.entries), crash).problems


def test_the_age_of_each_loss_is_told() -> None:
    """Of every answer that has come to nothing, however old it may be."""
    batches = batches_of(RELAXED, 3)
    answered_s = {batch.place: 7.0 + batch.offset for batch in batches}
    log = FinalLog(0, 3, records_of(RELAXED, 0))
    verdict = judge(Found({}, {(RELAXED, 0): log}), Book(batches), Crash(answered_s, 10.0, 5.0))
    assert ([], [2.0, 1.0]) == verdict


def test_an_answer_is_a_promise_when_it_was_sent() -> None:
    """By the place in the trace at which the power goes, that place included."""
    answers = {(PORT, 1): (5, 0.5), (PORT, 2): (6, 0.6), (PORT, 3): (7, 0.7)}
    assert {(PORT, 1): 0.5, (PORT, 2): 0.6} == promised_by(6, answers)


async def test_everything_is_looked_at() -> None:
    """Topics, the settings and offsets that were changed, and every record of the topics."""
    single, relaxed = batches_of(SINGLE, 3), batches_of(RELAXED, 2)
    subjects = [("setting", SINGLE, CHANGED_SETTING), ("setting", "gone", CHANGED_SETTING), COMMIT]
    book = Book([Change((PORT, 1), subject, "x") for subject in subjects])
    async with InProcessGateway() as gateway:
        ask = gateway.request
        for name, partitions in {MANY: 2, SINGLE: 1, RELAXED: 1, BEGUN_LATER: 1, "more": 3}.items():
            await ask(create_request(name, partitions, {}), 5)
        for batch in (
            *single,
            *relaxed,
            single[0]._replace(topic=BEGUN_LATER, values=(b"a", b"b")),
        ):
            await ask(batch._replace(producer_id=-1, epoch=-1, sequence=-1).request(), 9)
        await ask(setting_request(SINGLE, CHANGED_SETTING, "12345"), 1)
        await ask(commit_request("group", {0: 3, 1: 4}), 8)
        cut = DeleteRecordsPartition(partition_index=0, offset=1)
        topics = [DeleteRecordsTopic(name=BEGUN_LATER, partitions=[cut])]
        await ask(DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 1)
        found = await look(ask, book)
    logs = {
        (MANY, 0): FinalLog(0, 0, []),
        (MANY, 1): FinalLog(0, 0, []),
        (SINGLE, 0): log_of(single),
        (RELAXED, 0): log_of(relaxed),
    }
    begun_later = found.logs.pop((BEGUN_LATER, 0))
    assert logs == found.logs
    assert (1, 2, (1, b"b")) == (*begun_later[:2], begun_later.records[-1])
    values: dict[tuple[str | int, ...], str | int] = {
        ("topic", MANY): 2,
        ("topic", SINGLE): 1,
        ("topic", RELAXED): 1,
        ("topic", BEGUN_LATER): 1,
        ("topic", "more"): 3,
        subjects[0]: "12345",
        ("commit", "group", MANY, 0): 3,
        ("commit", "group", MANY, 1): 4,
        **{("start", *place): 0 for place in logs},
        ("start", BEGUN_LATER, 0): 1,
    }
    assert values == found.values


async def test_a_log_that_cannot_be_read_to_its_end_lacks_the_rest() -> None:
    """What an error hides is missed, and not taken for nothing."""
    batches = batches_of(SINGLE, 3)

    async def ask(request: Request, version: int) -> Response:
        response = await gateway.request(request, version)
        if isinstance(response, FetchResponse):
            response.responses[0].partitions[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response

    async with InProcessGateway() as gateway:
        await gateway.request(create_request(SINGLE, 1, {}), 5)
        for batch in batches:
            loose = batch._replace(producer_id=-1, epoch=-1, sequence=-1)
            await gateway.request(loose.request(), 9)
        found = await look(ask, Book())
    assert FinalLog(0, 3, []) == found.logs[SINGLE, 0]
    crash = Crash({batch.place: 1.0 for batch in batches}, 10.0, 1.0)
    assert 3 == len(judge(found, Book(batches), crash).problems)


class Answers:
    """A gateway that knows batches again by their values."""

    def __init__(
        self,
        batches: Sequence[Batch],
        refused: int = -1,
        *,
        producer_id: int = 99,
        forgotten: int | None = None,
        doubled: int | None = None,
        end: int | None = None,
    ) -> None:
        self.repeated: list[int] = []
        self._offsets = {batch.values[0]: batch.offset for batch in batches}
        self._end = len(batches)
        self._new = self._end if end is None else end
        """Where new batches come to be."""
        self._refused = refused
        self._producer_id = producer_id
        self._forgotten = forgotten
        """What a producer sends again at this offset is answered with another one."""
        self._doubled = doubled
        """What a producer sends again at this offset is stored again, in secret."""

    async def ask(self, request: Request, _version: int) -> Response:
        """Answer what `use` asks."""
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=self._producer_id, producer_epoch=0)
        if isinstance(request, ListOffsetsRequest):
            end = ListOffsetsPartitionResponse(partition_index=0, offset=self._end)
            topic = ListOffsetsTopicResponse(name=SINGLE, partitions=[end])
            return ListOffsetsResponse(topics=[topic])
        assert isinstance(request, ProduceRequest)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, bytes)
        (record,) = read_stored([records])
        offset, code = self._offsets.get(record.value, self._new), 0
        if record.value in self._offsets:
            self.repeated.append(offset)
            self._end += offset == self._doubled
        if offset == self._refused:
            offset, code = -1, ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if offset == self._forgotten:
            offset += 1
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


FIVE = batches_of(SINGLE, 5)
USED: dict[str, tuple[dict[str, int], list[str]]] = {
    "fine": ({}, []),
    "an id again": ({"producer_id": 7}, ["producer id 7 is handed out again"]),
    "refused": (
        {"refused": 1},
        ["single-0: a repeated batch of worker gets code 46 and offset -1, not 1"],
    ),
    "another offset": (
        {"forgotten": 1},
        ["single-0: a repeated batch of worker gets code 0 and offset 2, not 1"],
    ),
    "stored again": ({"doubled": 4}, ["single-0: a repeated batch is there twice"]),
    "an offset again": (
        {"end": 4},
        ["single-0: a new batch gets code 0 and offset 4"],
    ),
}


@pytest.mark.parametrize("what", USED)
async def test_what_is_wrong_with_a_gateway_that_goes_on(what: str) -> None:
    """Each thing alone, by its name."""
    how, said = USED[what]
    entries: list[Batch | Given] = [*FIVE, Given((PORT, 50), 7), Given((PORT, LATER), 99)]
    crash = Crash({one.place: 1.0 for one in entries if one.place[1] != LATER}, 10.0, 1.0)
    found = Found({}, {(SINGLE, 0): log_of(FIVE)})
    answers = Answers(FIVE, **how)
    assert said == await use(answers.ask, Book(entries), found, crash)


@pytest.mark.parametrize(("end", "is_fine"), [(7, True), (6, False)])
async def test_appends_go_on_above_all_that_was_answered(end: int, *, is_fine: bool) -> None:
    """Even where a relaxed log has lost what was given there, or ends above it with nothing."""
    batches = batches_of(RELAXED, 7)
    crash = Crash({batch.place: 1.0 for batch in batches}, 10.0, 1.0)
    for log in (FinalLog(0, 3, records_of(RELAXED, 0, 1, 2)), FinalLog(0, 7, [])):
        found = Found({}, {(RELAXED, 0): log})
        loose = [batch._replace(producer_id=-1) for batch in batches]
        answers = Answers([], end=end)
        assert is_fine == ([] == await use(answers.ask, Book(loose), found, crash))


def test_everything_that_is_said_after_a_power_loss_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    examples = [said for case in WRONG.values() for said in case.said]
    examples += [said for _, those in USED.values() for said in those]
    assert [] == unplanted([power_loss_judge], examples)


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
