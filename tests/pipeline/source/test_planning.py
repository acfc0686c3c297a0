"""Planning: the offsets that options mean, asked of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import NewRecord
from kgw.pipeline.errors import DataLossError, OptionError, PipelineError, TopicChangedError
from kgw.pipeline.options import read_source_options
from kgw.pipeline.ranges import OffsetRange, StreamPosition, TopicPartition
from kgw.pipeline.source.planning import ReadPlanner
from kgw.pipeline.wire import Reading
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.offsets.reader import FoundRecord


@pytest.fixture
def served() -> Iterator[ServedTopics]:
    """A gateway with the topic "events": records 0 to 9 and 0 to 19, at times of their numbers."""
    with ServedTopics() as topics:
        topics.create("events", 2)
        topics.number("events", {0: 10, 1: 20})
        yield topics


def planner(served: ServedTopics, **given: str) -> ReadPlanner:
    """Return a planner for the topic "events", or whatever the options say instead."""
    options = {"kafka.bootstrap.servers": served.address, **given}
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = "events"
    return ReadPlanner(served.wire, read_source_options(options))


def ranges(served: ServedTopics, **given: str) -> list[tuple[str, int, int, int]]:
    """Return topic, partition, first and end of what a batch reads."""
    return [one[:4] for one in planner(served, **given).batch_ranges()]


def test_a_batch_reads_everything(served: ServedTopics) -> None:
    """From the earliest to the latest offset, unless told otherwise."""
    assert ranges(served) == [("events", 0, 0, 10), ("events", 1, 0, 20)]


def test_places_are_found(served: ServedTopics) -> None:
    """Offsets, special offsets and times, at either end."""
    assert ranges(
        served,
        startingOffsets='{"events":{"0":3,"1":-2}}',
        endingOffsets='{"events":{"0":-1,"1":7}}',
    ) == [("events", 0, 3, 10), ("events", 1, 0, 7)]
    assert ranges(served, startingTimestamp="5", endingTimestamp="15") == [
        ("events", 0, 5, 10),
        ("events", 1, 5, 15),
    ]
    with pytest.raises(PipelineError, match="events partition 0 has no record of time 12 or later"):
        ranges(served, startingTimestamp="12")
    late = {"startingTimestamp": "12", "startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(served, **late) == [("events", 0, 10, 10), ("events", 1, 12, 20)]


class Growing:
    """A client of the served topics that get records whenever times are looked up."""

    def __init__(self, served: ServedTopics) -> None:
        self._served = served

    def __getattr__(self, name: str) -> Any:
        return getattr(self._served.wire, name)

    def list_offsets(self, topic: str, *given: Any, **how: Any) -> dict[int, FoundRecord]:
        """Return what is found, a little later."""
        self._served.number("events", {0: 10}, first=10)
        return self._served.wire.list_offsets(topic, *given, **how)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endingTimestamp": "15"}, (0, 10)),
        ({"endingOffsetsByTimestamp": '{"events":{"0":15}}'}, (0, 10)),
        ({"startingTimestamp": "15"}, (10, 10)),
        ({"startingTimestamp": "12", "endingTimestamp": "15"}, (10, 10)),
        ({"startingTimestamp": "5"}, (5, 10)),
    ],
)
def test_a_batch_by_time_of_a_topic_that_grows(
    served: ServedTopics, given: dict[str, str], expected: tuple[int, int]
) -> None:
    """What comes while a batch is planned is not of it, and is no loss, nor a wrong order."""
    asked = read_source_options(
        {
            "kafka.bootstrap.servers": served.address,
            "assign": '{"events":[0]}',
            "startingOffsetsByTimestampStrategy": "latest",
            **given,
        }
    )
    growing = ReadPlanner(Growing(served), asked)  # type: ignore[arg-type]
    assert [("events", 0, *expected)] == [one[:4] for one in growing.batch_ranges()]


def test_places_that_cannot_be_are_refused(served: ServedTopics) -> None:
    """A batch begins before the end, and offsets name each partition."""
    with pytest.raises(OptionError, match="cannot be the latest"):
        ranges(served, startingOffsets="latest")
    with pytest.raises(OptionError, match="cannot be the latest"):
        ranges(served, startingOffsets='{"events":{"0":-1,"1":0}}')
    with pytest.raises(OptionError, match="says nothing of events partition 1"):
        ranges(served, startingOffsets='{"events":{"0":0}}')


def test_topics_are_found(served: ServedTopics) -> None:
    """By names, a pattern, or partitions; one that is not there is an error."""
    served.create("evening")
    assert [one[0] for one in ranges(served, subscribePattern="even.*")] == [
        "evening",
        "events",
        "events",
    ]
    assert ranges(served, subscribePattern="even") == []
    assert ranges(served, assign='{"events":[1]}') == [("events", 1, 0, 20)]
    with pytest.raises(OptionError, match="partition 2 of topic events, which has 2: 0 to 1"):
        ranges(served, assign='{"events":[2]}')
    with pytest.raises(PipelineError, match="there is no topic nothing"):
        ranges(served, subscribe="nothing")


def test_a_batch_names_what_is_lost(served: ServedTopics) -> None:
    """Offsets that are given and are no more: an error, or left out."""
    served.wire.call(served.admin.delete_records("events", {0: 4}))
    start = '{"events":{"0":2,"1":0}}'
    with pytest.raises(DataLossError, match="partition 0: offsets 2 to 3 cannot be read"):
        ranges(served, startingOffsets=start)
    assert ranges(served, startingOffsets=start, failOnDataLoss="false")[0] == (
        "events", 0, 4, 10,
    )  # fmt: skip


def test_a_stream_takes_new_partitions_from_their_start(served: ServedTopics) -> None:
    """What comes while a stream runs is read from 0, or said to be lost."""
    one = planner(served, startingOffsets="earliest")
    start = one.initial()
    assert sorted(start.offsets.values()) == [0, 0]
    assert sorted(planner(served).initial().offsets.values()) == [10, 20]
    served.add_partitions("events", 3)
    served.number("events", {2: 5})
    starts, latest = one.latest(start)
    new = TopicPartition("events", 2)
    assert (starts[new], latest.offsets[new]) == (0, 5)
    served.wire.call(served.admin.delete_records("events", {2: 2}))
    with pytest.raises(DataLossError, match="partition 2: offsets 0 to 1 cannot be read"):
        one.latest(start)
    starts, _ = planner(served, failOnDataLoss="false").latest(start)
    assert starts[new] == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {
                "startingOffsets": '{"events":{"0":7,"1":0}}',
                "endingOffsets": '{"events":{"0":6,"1":5}}',
            },
            "^events partition 0: this batch begins at offset 7, behind its end at 6: .+ 0 to 9$",
        ),
        (
            {"startingOffsets": '{"events":{"0":11,"1":0}}'},
            "offset 11, behind its end at 10: startingOffsets and latest as the default",
        ),
        (
            {"startingTimestamp": "8", "endingOffsets": '{"events":{"0":3,"1":5}}'},
            "offset 8, behind its end at 3: startingTimestamp and endingOffsets",
        ),
        (
            {"endingTimestamp": "3", "startingOffsets": '{"events":{"0":4,"1":0}}'},
            "offset 4, behind its end at 3: startingOffsets and endingTimestamp",
        ),
        (
            {"startingTimestamp": "8", "endingTimestamp": "7"},
            "^this batch begins at time 8, behind its end at 7: startingTimestamp and endingTime",
        ),
        # Both times mean the end of the partition.
        (
            {
                "startingOffsetsByTimestamp": '{"events":{"0":70,"1":0}}',
                "endingOffsetsByTimestamp": '{"events":{"0":60,"1":5}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            "events partition 0: this batch begins at time 70, behind its end at 60",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"events":{"0":3,"1":9}}',
                "endingTimestamp": "8",
            },
            "events partition 1: this batch begins at time 9, behind its end at 8",
        ),
    ],
)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_batch_that_begins_behind_its_end_is_refused(
    served: ServedTopics, given: dict[str, str], told: str, loss: str
) -> None:
    """However either is given, and whatever may be lost: no partition is left out in silence."""
    with pytest.raises(OptionError, match=told):
        ranges(served, failOnDataLoss=loss, **given)


def test_a_batch_may_begin_where_it_ends(served: ServedTopics) -> None:
    """Nothing is read then."""
    place = '{"events":{"0":10,"1":5}}'
    assert ranges(served, startingOffsets=place, endingOffsets=place) == [
        ("events", 0, 10, 10),
        ("events", 1, 5, 5),
    ]
    assert ranges(served, startingTimestamp="5", endingTimestamp="5") == [
        ("events", 0, 5, 5),
        ("events", 1, 5, 5),
    ]


def test_a_stream_ahead_of_the_log_goes_on_from_its_end(served: ServedTopics) -> None:
    """An end before what has been read is a loss; where it is allowed, new records are read."""
    key = TopicPartition("events", 0)
    start = planner(served).initial()
    ahead = StreamPosition(start.topic_ids, {**start.offsets, key: 12})
    with pytest.raises(DataLossError, match="partition 0: offsets 10 to 11 cannot be read"):
        planner(served).latest(ahead)
    lossy = planner(served, failOnDataLoss="false")
    starts, back = lossy.latest(ahead)
    assert (10, 10) == (starts[key], back.offsets[key])
    served.number("events", {0: 1})
    starts, latest = lossy.latest(back)
    assert (10, 11) == (starts[key], latest.offsets[key])


def test_a_stream_notices_that_its_topic_is_gone(served: ServedTopics) -> None:
    """Deleted is an error, or no more is read; made anew is an error whatever is allowed."""
    start = planner(served).initial()
    served.wire.call(served.admin.delete_topic("events"))
    with pytest.raises(TopicChangedError, match="events has been deleted, or is not subscribed"):
        planner(served).latest(start)
    _, latest = planner(served, failOnDataLoss="false").latest(start)
    assert latest.offsets == {}
    served.create("events", 2)
    for loss in "true", "false":
        with pytest.raises(TopicChangedError, match="deleted and created again"):
            planner(served, failOnDataLoss=loss).latest(start)


def stored_bytes(served: ServedTopics, key: TopicPartition, first: int, end: int) -> int:
    """Return what the batches of a range take in the log."""
    pieces = served.wire.pieces(OffsetRange(*key, first, end), Reading())
    return sum(one.bytes_before(end) for one in pieces)


def test_bytes_that_are_admitted_are_a_bound(served: ServedTopics) -> None:
    """Whatever comes behind small records: no micro-batch is larger, and none leaves anything out.

    What one partition leaves of its share others get.
    """
    keys = [TopicPartition("unlike", partition) for partition in range(3)]
    served.create("unlike", 3)
    for index in range(20):
        served.number("unlike", {0: 10, 1: 10})
        served.produce("unlike", {1: [NewRecord(None, bytes(20_000 * (index % 3)), 0)]})
    served.produce("unlike", {2: [NewRecord(None, bytes(300_000), 0)]})
    one = planner(served, subscribe="unlike")
    limit = 50_000
    starts, latest = one.latest(StreamPosition(one.look()[0], dict.fromkeys(keys, 0)))
    ends = dict.fromkeys(keys, 0)
    sizes: list[int] = []
    while starts != latest.offsets:
        assert len(sizes) < 40
        ends = one.admit_bytes(starts, latest, limit, len(sizes))
        assert ends != starts
        sizes.append(sum(stored_bytes(served, key, starts[key], ends[key]) for key in keys))
        starts = ends
    total = sum(stored_bytes(served, key, 0, latest.offsets[key]) for key in keys)
    # Batches that a range ends in the middle of come with both ranges: here none does.
    assert total == sum(sizes)
    large = [size for size in sizes if size > limit]
    assert 1 == len(large)
    assert 300_000 < large[0] < 301_000
    assert limit < 2 * total / len(sizes)


def test_a_batch_of_records_may_go_beyond_the_end(served: ServedTopics) -> None:
    """Not more is admitted than up to where it was to end, whatever was fetched and counted."""
    one = planner(served)
    zero, other = TopicPartition("events", 0), TopicPartition("events", 1)
    topic_ids, _ = one.look()
    end = StreamPosition(topic_ids, {zero: 4, other: 7})
    assert end.offsets == one.admit_bytes({zero: 0, other: 0}, end, 1 << 20)
    assert {zero: 4, other: 0} == one.admit_bytes({zero: 0, other: 0}, end, 1)


def test_no_partition_starves_where_bytes_are_few(served: ServedTopics) -> None:
    """Where not each gets a batch, another one comes first each time."""
    one = planner(served)
    zero, other = TopicPartition("events", 0), TopicPartition("events", 1)
    starts, latest = one.latest(StreamPosition(one.look()[0], {zero: 0, other: 0}))
    assert {zero: 10, other: 0} == one.admit_bytes(starts, latest, 1, turn=0)
    assert {zero: 0, other: 20} == one.admit_bytes(starts, latest, 1, turn=1)
    assert latest.offsets == one.admit_bytes(starts, latest, 1 << 20)


def test_what_cannot_be_counted_is_left_to_the_task(served: ServedTopics) -> None:
    """It says what is lost; the other partitions are read."""
    zero, other = TopicPartition("events", 0), TopicPartition("events", 1)
    one = planner(served)
    starts, latest = one.latest(StreamPosition(one.look()[0], {zero: 0, other: 0}))
    served.wire.call(served.admin.delete_records("events", {0: 4}))
    assert {zero: 1, other: 20} == one.admit_bytes(starts, latest, 1 << 20)
