from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from kgw.client.ack_journal import (
    AckJournal,
    Acknowledged,
    content_crc,
    journal_lines,
    read_journal_line,
)
from kgw.client.values import TopicDescription
from kgw.pipeline.live.comparing import Compared, compare_part, stretches
from kgw.pipeline.live.journal import (
    UNKNOWN_CRC,
    JournaledRecords,
    JournaledTopic,
    JournalError,
    JournalReader,
)
from kgw.types import ZERO_TOPIC_ID, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def acks(*rows: tuple[int, int | None]) -> JournaledRecords:
    """Take offsets and CRCs of partition 0 of a topic."""
    journaled = JournaledRecords()
    for offset, crc in rows:
        told = "null" if crc is None else crc
        line = f'{{"topic": "t", "partition": 0, "offset": {offset}, "crc": {told}}}'
        journaled.add(line.encode(), "a test")
    return journaled


def log(records: Mapping[int, bytes]) -> pa.RecordBatch:
    """Return records with these values, by offset."""
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(list(records), pa.int64()),
            "key": pa.array([None] * len(records), pa.binary()),
            "value": pa.array(list(records.values()), pa.binary()),
        }
    )


def crc(value: bytes) -> int:
    """Return what a journal says of a record with this value."""
    return content_crc(None, value)


def test_records_are_confirmed_absent_altered_or_moved() -> None:
    """Without a CRC it counts that there is a record; what nobody acknowledged is not looked at."""
    (partition,) = (
        acks((0, crc(b"a")), (1, None), (2, crc(b"c")), (3, crc(b"d")), (7, crc(b"h")))
        .partitions(JournaledTopic("t", None))
        .values()
    )
    stored = log({0: b"a", 1: b"whatever", 2: b"x", 4: b"d", 5: b"new"})
    assert Compared(2, [3], [2], {3: 4}) == compare_part(partition, stored, 0, 7)
    assert Compared(0, [7], [], {}) == compare_part(partition, log({}), 7, 8)
    assert Compared(0, [], [], {}) == compare_part(partition, stored, 8, 9)


def test_records_in_each_others_place_are_altered() -> None:
    """Each has the content that was acknowledged of the other: where it is now is told."""
    told = ((0, crc(b"a")), (1, crc(b"b")), (2, crc(b"c")))
    (partition,) = acks(*told).partitions(JournaledTopic("t", None)).values()
    stored = log({0: b"a", 1: b"c", 2: b"b"})
    assert Compared(1, [], [1, 2], {1: 2, 2: 1}) == compare_part(partition, stored, 0, 3)


def test_an_offset_that_was_acknowledged_for_two_records_is_noticed() -> None:
    """A journal that has a line twice is none of that."""
    journaled = acks((5, 1), (3, 7), (5, 1), (4, 1), (4, 2), (6, None), (6, 9))
    (partition,) = journaled.partitions(JournaledTopic("t", None)).values()
    assert [3, 4, 5, 6] == partition.offsets.tolist()
    assert [7, 2, 1, 9] == partition.crcs.tolist()
    assert [4] == partition.twice.tolist()
    (unknown,) = acks((1, None)).partitions(JournaledTopic("t", None)).values()
    assert [UNKNOWN_CRC] == unknown.crcs.tolist()


def test_only_what_is_near_is_read_along() -> None:
    """Offsets far apart are looked up by themselves."""
    offsets = np.array([1, 2, 9000, 50_000, 50_001], np.int64)
    assert [(1, 9001), (50_000, 50_002)] == stretches(offsets)
    assert [] == stretches(np.array([], np.int64))


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Line by line as it grows; one without its end is left until it is whole."""
    topic_id = TopicId(bytes(range(16)))
    topic = TopicDescription(TopicName("t"), topic_id, is_internal=False, partitions=())
    lines = journal_lines(topic, 3, 41, [5, 6], 17)
    told = [read_journal_line(line.encode()) for line in lines.splitlines()]
    assert [(41, 5), (42, 6)] == [(one.offset, one.crc) for one in told]
    assert told[0].topic_id is not None
    without = topic._replace(topic_id=ZERO_TOPIC_ID)
    assert Acknowledged("t", 3, 0, 1) == read_journal_line(
        journal_lines(without, 3, 0, [1], 2).encode()
    )

    path = tmp_path / "journal"
    with AckJournal(path) as writing:
        writing.add(lines + '{"topic": "t"')
        journal, journaled = JournalReader(path), JournaledRecords()
        assert 2 == journal.read_new(journaled)
        writing.add(', "partition": 0, "offset": 1}\n\n')
        assert 1 == journal.read_new(journaled)
        assert 0 == journal.read_new(journaled)
    assert [None, told[0].topic_id] == [one.topic_id for one in journaled.journaled_topics]


@pytest.mark.parametrize(
    "line",
    [
        "-",
        "[]",
        '{"partition": 0, "offset": 1}',
        '{"topic": "t", "partition": -1, "offset": 1}',
        '{"topic": "t", "partition": 0, "offset": "1"}',
        '{"topic": "t", "partition": 0, "offset": 1, "crc": 4294967296}',
        '{"topic": "t", "partition": 0, "offset": true}',
        '{"topic": "t", "topic_id": 1, "partition": 0, "offset": 1}',
        '{"topic": "t", "topic_id": "8b1a9953-c461-1296", "partition": 0, "offset": 1}',
    ],
)
def test_a_line_that_says_nothing_is_refused_by_its_place(tmp_path: Path, line: str) -> None:
    """A journal of another program is not taken for one without acknowledged records."""
    path = tmp_path / "journal"
    path.write_text(f"\n{line}\n")
    with pytest.raises(JournalError, match=rf"^{path}:2: "):
        JournalReader(path).read_new(JournaledRecords())
    with pytest.raises(JournalError, match="No such file"):
        JournalReader(tmp_path / "absent").read_new(JournaledRecords())
