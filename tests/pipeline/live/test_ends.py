from __future__ import annotations

import json

import pytest

from kgw.pipeline.errors import PipelineError
from kgw.pipeline.live.ends import Ends, SeenTopic, from_json, to_json, went_back

BEFORE = {"t": SeenTopic("id", {0: Ends(3, 10), 1: Ends(0, 0)})}


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"t": SeenTopic("id", {0: Ends(3, 10), 1: Ends(0, 0)})}, []),
        ({"t": SeenTopic("id", {0: Ends(9, 99), 1: Ends(0, 7)}), "new": SeenTopic("x", {})}, []),
        ({"t": SeenTopic("id", {0: Ends(3, 9), 1: Ends(0, 0)})}, ["end went back"]),
        ({"t": SeenTopic("id", {0: Ends(2, 10), 1: Ends(0, 0)})}, ["start went back"]),
        (
            {"t": SeenTopic("id", {0: Ends(0, 0), 1: Ends(0, 0)})},
            ["end went back", "start went back"],
        ),
        ({"t": SeenTopic("id", {0: Ends(3, 10)})}, ["missing partition"]),
        ({"t": SeenTopic("other", {0: Ends(0, 0)})}, ["recreated topic"]),
        ({}, ["missing topic"]),
    ],
)
def test_what_no_topic_does_by_itself_is_found(now: dict[str, SeenTopic], found: list[str]) -> None:
    """Ends that grow, starts that retention moves, and new topics are as they should be."""
    assert [("t", name) for name in found] == [
        (topic, one.name) for topic, one in went_back(BEFORE, now)
    ]


def test_offsets_are_told() -> None:
    """What went back is said with the offset before and now."""
    ((_, found),) = went_back(BEFORE, {"t": SeenTopic("id", {0: Ends(3, 9), 1: Ends(0, 0)})})
    assert "topic t partition 0: the log ended at offset 10 and ends at 9" == found.text


def test_a_state_is_read_as_it_was_written() -> None:
    """It goes through JSON; anything else is refused."""
    assert BEFORE == from_json(json.loads(json.dumps(to_json(BEFORE))))
    damaged = {**to_json(BEFORE), "topics": {"t": 1}}
    others: list[object] = [None, [], {}, {"format": "kgw-live-audit"}, damaged]
    for other in others:
        with pytest.raises(PipelineError, match="no state"):
            from_json(other)
