"""The client that blocks: ranges come whole and exact, or it is said what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import AsyncClient, CannotConnectError
from kgw.pipeline.errors import DataLossError, OptionError, PipelineError, TopicChangedError
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import FetchRateLimit, Reading, WireClient
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.client import FetchedPartition, TopicDescription


@pytest.fixture
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def wanted(served: ServedTopics, first: int, end: int) -> OffsetRange:
    """Return a range of the topic "events"."""
    topic = served.wire.find_topic("events")
    assert topic is not None
    return OffsetRange("events", 0, first, end, topic.topic_id)


def offsets(served: ServedTopics, one: OffsetRange, reading: Reading) -> list[int]:
    """Return the offsets of what is read."""
    return [
        offset
        for decoded in served.wire.decoded(one, columns=["offset"], reading=reading)
        for offset in decoded.batch.column("offset").to_pylist()
    ]


def test_a_range_is_read_exactly(served: ServedTopics) -> None:
    """However little a piece may hold, the rows are those from the first up to the end."""
    served.create("events")
    for first in range(0, 50, 10):
        served.number("events", {0: 10}, first=first)
    for max_bytes in 1, 500, 1 << 20:
        found = offsets(served, wanted(served, 7, 43), Reading(max_fetch_bytes=max_bytes))
        assert found == list(range(7, 43))
    assert offsets(served, wanted(served, 20, 20), Reading()) == []


def test_a_topic_is_asked_for_again_while_the_server_is_away(
    served: ServedTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream plans each of its micro-batches so, and is to outlive a restart of the gateway."""
    served.create("events")
    find_topic = AsyncClient.find_topic
    away = 2

    async def find(self: AsyncClient, name: str) -> TopicDescription | None:
        nonlocal away
        if away:
            away -= 1
            raise CannotConnectError("connection refused")
        return await find_topic(self, name)

    monkeypatch.setattr(AsyncClient, "find_topic", find)
    found = served.wire.find_topic("events")
    assert found is not None
    assert (found.name, away) == ("events", 0)


def test_who_stops_early_leaves_nothing_behind(served: ServedTopics) -> None:
    """A reader that is given up while the next piece is fetched can be forgotten."""
    served.create("events")
    for first in range(0, 50, 10):
        served.number("events", {0: 10}, first=first)
    pieces = served.wire.pieces(wanted(served, 0, 50), Reading(max_fetch_bytes=1))
    assert next(pieces).first_offset == 0
    pieces.close()  # type: ignore[attr-defined] # it is a generator
    assert len(offsets(served, wanted(served, 0, 50), Reading())) == 50


def test_what_was_removed_is_named_or_skipped(served: ServedTopics) -> None:
    """Offsets below the log's start are a loss."""
    served.create("events")
    served.number("events", {0: 20})
    served.wire.call(served.admin.delete_records("events", {0: 8}))
    with pytest.raises(DataLossError, match="partition 0: offsets 3 to 7 cannot be read"):
        offsets(served, wanted(served, 3, 12), Reading())
    lenient = Reading(fail_on_data_loss=False)
    assert offsets(served, wanted(served, 3, 12), lenient) == list(range(8, 12))
    assert offsets(served, wanted(served, 3, 6), lenient) == []


def test_an_end_that_never_was_is_named_or_left_out(served: ServedTopics) -> None:
    """Offsets behind the log's end are a loss, whether reading begins before it or not."""
    served.create("events")
    served.number("events", {0: 20})
    lenient = Reading(fail_on_data_loss=False)
    for first, expected in (15, [15, 16, 17, 18, 19]), (22, []):
        with pytest.raises(DataLossError, match="offsets 20 to 29 cannot be read"):
            offsets(served, wanted(served, first, 30), Reading())
        assert offsets(served, wanted(served, first, 30), lenient) == expected


@pytest.mark.slow
def test_an_end_behind_a_log_that_was_emptied_is_named_or_left_out(served: ServedTopics) -> None:
    """There is no record at the log's start either: it is not asked for again and again."""
    served.create("events")
    served.number("events", {0: 20})
    served.wire.call(served.admin.delete_records("events", {0: 20}))
    with pytest.raises(DataLossError, match="offsets 20 to 29 cannot be read"):
        offsets(served, wanted(served, 20, 30), Reading(patience_s=0.0))
    lenient = Reading(fail_on_data_loss=False, patience_s=0.0)
    assert [] == offsets(served, wanted(served, 20, 30), lenient)
    assert [] == offsets(served, wanted(served, 15, 30), lenient)


def test_an_empty_answer_before_a_loss_leaves_nothing_out(
    served: ServedTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has not found the records in time answers without them, and then with them."""
    served.create("events")
    served.number("events", {0: 20})
    fetch = AsyncClient.fetch
    empty = [True]

    async def slow(self: AsyncClient, *args: Any, **options: Any) -> list[FetchedPartition]:
        return [] if empty and empty.pop() else await fetch(self, *args, **options)

    monkeypatch.setattr(AsyncClient, "fetch", slow)
    lenient = Reading(fail_on_data_loss=False)
    assert list(range(15, 20)) == offsets(served, wanted(served, 15, 30), lenient)


def test_another_topic_of_the_name_is_not_read(served: ServedTopics) -> None:
    """A range that was planned for a topic is not read from its successor."""
    served.create("events")
    served.number("events", {0: 20})
    planned = wanted(served, 0, 20)
    served.wire.call(served.admin.delete_topic("events"))
    served.create("events")
    served.number("events", {0: 20})
    with pytest.raises(TopicChangedError, match="deleted and created again"):
        offsets(served, planned, Reading())


def test_nothing_is_waited_for_without_end(served: ServedTopics) -> None:
    """A server that has no record at an offset that it has is not asked for ever."""
    served.create("events")
    served.number("events", {0: 20})
    empty = Reading(patience_s=0.0, read_committed=True)
    # As in a transaction that is open: below the end, above what may be read.
    reader = served.wire.pieces(wanted(served, 20, 21), empty)
    served.wire.client.bounds = _always_to_30  # type: ignore[method-assign,assignment]
    with pytest.raises(PipelineError, match="no whole batch at offset 20"):
        list(reader)


async def _always_to_30(*_: object, **__: object) -> object:
    from kgw.offsets.ranges import OffsetBounds

    return {0: OffsetBounds(0, 30)}


def test_a_pace_spreads_bytes() -> None:
    """Each answer is paid for before the next; what was not used is not saved."""
    pace = FetchRateLimit(100)
    assert pace.take(50, 10.0) == 10.5
    assert pace.take(100, 10.5) == 11.5
    assert pace.take(0, 20.0) == 20.0
    assert FetchRateLimit(None).take(1 << 30, 5.0) == 5.0


def test_addresses_are_checked() -> None:
    """A server without a port is refused before anything is asked."""
    with pytest.raises(OptionError, match="has no port"):
        WireClient("localhost")


def test_a_client_can_be_closed_twice(served: ServedTopics) -> None:
    """Closing is final, and harmless."""
    client = WireClient(served.address)
    assert client.topics() == []
    client.close()
    client.close()
