from __future__ import annotations

from kgw.lag.positions import CLIENT_ID_CHARACTERS, ClientPositions
from kgw.types import TopicId

TOPIC, OTHER = TopicId(bytes(16)), TopicId(bytes(15) + b"1")


def test_the_last_position_counts() -> None:
    """One entry for a client id and a partition, however often it fetches."""
    positions = ClientPositions(10)
    positions.note("reader", TOPIC, 0, 5, 1.0)
    positions.note("reader", TOPIC, 1, 7, 1.0)
    positions.note("reader", TOPIC, 0, 6, 2.0)
    assert [(1, 7, 1.0), (0, 6, 2.0)] == [one[2:] for one in positions]


def test_bounded_by_the_one_seen_longest_ago() -> None:
    """Who fetched longest ago makes room."""
    positions = ClientPositions(2)
    for client_id in ("first", "second", "first", "third"):
        positions.note(client_id, TOPIC, 0, 0, 1.0)
    assert ["first", "third"] == [one.client_id for one in positions]


def test_client_ids_are_cut() -> None:
    """Ten thousand of 32 KB each would be a third of a gigabyte."""
    positions = ClientPositions(2)
    positions.note("x" * 32_767, TOPIC, 0, 0, 1.0)
    positions.note(None, TOPIC, 0, 0, 1.0)
    assert [CLIENT_ID_CHARACTERS, 0] == [len(one.client_id) for one in positions]


def test_idle_clients_are_forgotten() -> None:
    """Those that went away do not stay for ever."""
    positions = ClientPositions(10)
    positions.note("gone", TOPIC, 0, 0, 1.0)
    positions.note("here", TOPIC, 0, 0, 2.0)
    positions.expire(2.0)
    assert ["here"] == [one.client_id for one in positions]


def test_deleted_topics_are_forgotten() -> None:
    """A topic's id is never used again, and neither are positions in it."""
    positions = ClientPositions(10)
    positions.note("reader", TOPIC, 0, 0, 1.0)
    positions.note("reader", OTHER, 0, 0, 1.0)
    positions.forget_topic(TOPIC)
    assert [OTHER] == [one.topic_id for one in positions]
    assert 1 == len(positions)
