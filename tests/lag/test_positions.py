from __future__ import annotations

from typing import Any

import pytest

from kgw.lag.positions import CLIENT_ID_CHARACTERS, ClientPositions
from kgw.types import TopicId

TOPIC, OTHER = TopicId(bytes(16)), TopicId(bytes(15) + b"1")


def note(positions: ClientPositions, client_id: str | None, topic_id: TopicId, *where: Any) -> None:
    """Note the position of a client that reads uncommitted records."""
    positions.note(client_id, topic_id, *where, is_committed=False)


def test_the_last_position_counts() -> None:
    """One entry for a client id and a partition, however often it fetches."""
    positions = ClientPositions(10)
    note(positions, "reader", TOPIC, 0, 5, 1.0)
    note(positions, "reader", TOPIC, 1, 7, 1.0)
    note(positions, "reader", TOPIC, 0, 6, 2.0)
    assert [(1, 7, 1.0), (0, 6, 2.0)] == [one[2:] for one in positions]


def test_bounded_by_the_one_seen_longest_ago() -> None:
    """Who fetched longest ago makes room."""
    positions = ClientPositions(2)
    for client_id in ("first", "second", "first", "third"):
        note(positions, client_id, TOPIC, 0, 0, 1.0)
    assert ["first", "third"] == [one.client_id for one in positions]


def test_client_ids_are_cut() -> None:
    """Ten thousand of 32 KB each would be a third of a gigabyte."""
    positions = ClientPositions(2)
    note(positions, "x" * 32_767, TOPIC, 0, 0, 1.0)
    note(positions, None, TOPIC, 0, 0, 1.0)
    assert [CLIENT_ID_CHARACTERS, 0] == [len(one.client_id) for one in positions]


def test_idle_clients_are_forgotten() -> None:
    """Those that went away do not stay for ever."""
    positions = ClientPositions(10)
    note(positions, "gone", TOPIC, 0, 0, 1.0)
    note(positions, "here", TOPIC, 0, 0, 2.0)
    positions.expire(2.0)
    assert ["here"] == [one.client_id for one in positions]


def test_deleted_topics_are_forgotten() -> None:
    """A topic's id is never used again, and neither are positions in it."""
    positions = ClientPositions(10)
    note(positions, "reader", TOPIC, 0, 0, 1.0)
    note(positions, "reader", OTHER, 0, 0, 1.0)
    positions.forget_topic(TOPIC)
    assert [OTHER] == [one.topic_id for one in positions]
    assert 1 == len(positions)


@pytest.mark.parametrize(
    ("noted", "asked", "expected"),
    [
        ([("reader", False)], {"reader"}, True),
        ([("reader", True)], {"reader"}, False),
        ([], {"reader"}, False),
        ([("reader", False)], {"other"}, False),
        ([("reader", False)], set(), False),
        ([("first", True), ("second", False)], {"first", "second"}, True),
        ([("shared", True), ("shared", False)], {"shared"}, False),
        ([("shared", False), ("shared", True), ("shared", False)], {"shared"}, False),
    ],
)
def test_who_is_given_aborted_records(
    noted: list[tuple[str, bool]], asked: set[str], expected: bool
) -> None:
    """Who fetches uncommitted records; one whose id others share is not known to."""
    positions = ClientPositions(10)
    for client_id, is_committed in noted:
        positions.note(client_id, TOPIC, 0, 5, 1.0, is_committed=is_committed)
    assert expected is positions.are_given_aborted(asked, TOPIC, 0)
    assert False is positions.are_given_aborted(asked, TOPIC, 1)
    assert False is positions.are_given_aborted(asked, OTHER, 0)


def test_cut_ids_are_found() -> None:
    """An id is cut in the question as in the table."""
    positions = ClientPositions(2)
    note(positions, "x" * 32_767, TOPIC, 0, 0, 1.0)
    assert True is positions.are_given_aborted(["x" * 32_767], TOPIC, 0)
