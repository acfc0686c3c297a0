from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode, KafkaError, KgwError
from kgw.offsets.ranges import OffsetBounds, SeekOutOfRangeError, is_in_range
from kgw.offsets.reader import (
    MAX_TS_NS,
    Answers,
    FoundRecord,
    timestamp_ms_at,
    ts_ns_of,
)
from kgw.offsets.seeker import (
    RESUMING,
    NoGroupError,
    OffsetSeeker,
    Seek,
    SeekKind,
    SeekResult,
    resolve,
)
from tests.offsets.stored_reader import StoredLog, StoredReader

if TYPE_CHECKING:
    from collections.abc import Collection

BOUNDS = OffsetBounds(10, 20)
MS = 1_000_000
CHECKED = RESUMING | {SeekKind.EXACT_OFFSET}


class Positions:
    """Where a group stands."""

    def __init__(self, offsets: Answers[int | None]) -> None:
        self.offsets = offsets

    async def committed(self, partitions: Collection[int]) -> Answers[int | None]:
        return {partition: self.offsets[partition] for partition in partitions}


@pytest.mark.parametrize(
    ("seek", "expected"),
    [
        (Seek(SeekKind.EXACT_OFFSET, 10), 10),
        (Seek(SeekKind.EXACT_OFFSET, 15), 15),
        (Seek(SeekKind.EXACT_OFFSET, 20), 20),
        (Seek(SeekKind.RESET_TO_OFFSET, 3), 10),
        (Seek(SeekKind.RESET_TO_OFFSET, 13), 13),
        (Seek(SeekKind.RESET_TO_OFFSET, 99), 20),
        (Seek(SeekKind.RESET_TO_EARLIEST), 10),
        (Seek(SeekKind.RESET_TO_LATEST), 20),
        (Seek(SeekKind.RESUME_OR_EARLIEST), 10),
        (Seek(SeekKind.RESUME_OR_LATEST), 20),
        (Seek(SeekKind.EXACT_TS_NS, 5), 20),
        (Seek(SeekKind.NEWEST_TS), 20),
    ],
)
def test_each_kind_leads_somewhere(seek: Seek, expected: int) -> None:
    """Without a record found or a position committed, by the rule of the kind."""
    assert SeekResult(expected, BOUNDS) == resolve(0, seek, BOUNDS)


@pytest.mark.parametrize("asked", [9, 21, -1])
def test_an_offset_out_of_range_says_which_range_there_is(asked: int) -> None:
    """The error carries partition, offset and bounds, and Kafka's code."""
    with pytest.raises(SeekOutOfRangeError, match="it goes from 10 to 20") as caught:
        resolve(3, Seek(SeekKind.EXACT_OFFSET, asked), BOUNDS)
    error = caught.value
    assert (3, asked, 10, 20) == (error.partition, error.asked, error.earliest, error.latest)
    assert ErrorCode.OFFSET_OUT_OF_RANGE is error.code


@pytest.mark.parametrize("kind", [SeekKind.RESUME_OR_EARLIEST, SeekKind.RESUME_OR_LATEST])
def test_resuming_is_exact_or_told(kind: SeekKind) -> None:
    """A group goes on where it stood; what retention removed since is never skipped in silence."""
    for committed in (10, 15, 20):
        result = resolve(0, Seek(kind), BOUNDS, committed=committed)
        assert (committed, True) == (result.offset, result.is_resumed)
    with pytest.raises(SeekOutOfRangeError, match="have been removed since"):
        resolve(0, Seek(kind), BOUNDS, committed=9)
    with pytest.raises(SeekOutOfRangeError, match="read further than there is"):
        resolve(0, Seek(kind), BOUNDS, committed=21)


@given(st.sampled_from(SeekKind), st.integers(-5, 40), st.none() | st.integers(0, 40))
def test_no_seek_leads_out_of_range(kind: SeekKind, value: int, committed: int | None) -> None:
    """Whatever is asked: a position that the partition has, or an error."""
    found = FoundRecord(17, 5, 0) if value % 2 else None
    asked = committed if kind in RESUMING else value
    if kind in CHECKED and asked is not None and not is_in_range(asked, *BOUNDS):
        with pytest.raises(SeekOutOfRangeError):
            resolve(0, Seek(kind, value), BOUNDS, found, committed)
    else:
        result = resolve(0, Seek(kind, value), BOUNDS, found, committed)
        assert is_in_range(result.offset, *BOUNDS)


async def test_offsets_and_times_in_one_call() -> None:
    """Each partition has a seek of its own kind."""
    logs = [StoredLog() for _ in range(6)]
    for log in logs:
        log.add(100, 300, 200)
        log.add(300)
    logs[5].start = 2
    reader = StoredReader(logs)
    found = await OffsetSeeker(reader, Positions({3: 1, 4: None})).seek_all(
        {
            0: Seek(SeekKind.EXACT_OFFSET, 2),
            1: Seek(SeekKind.EXACT_TS_NS, 150 * MS),
            2: Seek(SeekKind.NEWEST_TS),
            3: Seek(SeekKind.RESUME_OR_LATEST),
            4: Seek(SeekKind.RESUME_OR_LATEST),
            5: Seek(SeekKind.RESET_TO_EARLIEST),
        }
    )
    assert {0: 2, 1: 1, 2: 1, 3: 1, 4: 4, 5: 2} == {one: at.offset for one, at in found.items()}
    assert FoundRecord(1, 300, 0) == found[1].record
    assert found[3].is_resumed
    assert not found[4].is_resumed


async def test_a_time_past_every_record_is_the_end() -> None:
    """And says that nothing was found."""
    log = StoredLog()
    log.add(100)
    found = await OffsetSeeker(StoredReader([log])).seek_all(
        {0: Seek(SeekKind.EXACT_TS_NS, 1 << 60)}
    )
    assert SeekResult(1, OffsetBounds(0, 1), None) == found[0]


async def test_one_error_does_not_spoil_the_others() -> None:
    """`seek` answers each partition for itself, `seek_all` raises the first error."""
    log = StoredLog()
    log.add(100)
    damaged = KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged")
    seeker = OffsetSeeker(StoredReader([log] * 3), Positions({2: damaged}))
    seeks = {
        0: Seek(SeekKind.EXACT_OFFSET, 7),
        1: Seek(SeekKind.RESET_TO_LATEST),
        2: Seek(SeekKind.RESUME_OR_LATEST),
    }
    answers = await seeker.seek(seeks)
    assert isinstance(answers[0], SeekOutOfRangeError)
    assert SeekResult(1, OffsetBounds(0, 1)) == answers[1]
    assert damaged is answers[2]
    with pytest.raises(KgwError, match="no offset 7"):
        await seeker.seek_all(seeks)


async def test_a_group_that_commits_meanwhile_is_not_past_the_end() -> None:
    """Its position is asked for before the bounds, which only grow towards it."""
    log = StoredLog()
    log.add(100)

    class Reading(Positions):
        async def committed(self, partitions: Collection[int]) -> Answers[int | None]:
            log.add(200)
            return dict.fromkeys(partitions, log.end)

    found = await OffsetSeeker(StoredReader([log]), Reading({})).seek_all(
        {0: Seek(SeekKind.RESUME_OR_EARLIEST)}
    )
    assert 2 == found[0].offset


async def test_resuming_needs_a_group() -> None:
    """A position that nobody named is refused, not made up."""
    with pytest.raises(NoGroupError):
        await OffsetSeeker(StoredReader([StoredLog()])).seek({0: Seek(SeekKind.RESUME_OR_LATEST)})


def test_times_are_nanoseconds() -> None:
    """A record's milliseconds become nanoseconds, within int64; look-ups round up."""
    assert 1_700_000_000_123_000_000 == ts_ns_of(1_700_000_000_123)
    assert -1 == ts_ns_of(-1)
    assert MAX_TS_NS == ts_ns_of(1 << 62)
    assert [1, 2, 2] == [timestamp_ms_at(ns) for ns in (MS, MS + 1, 2 * MS)]
