from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config import Config
from kgw.partitions.topic_config import TopicConfig
from kgw.partitions.topics.encoded_topics import EncodedTopics
from kgw.partitions.topics.topic import Topic
from kgw.types import TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import Sequence

PIECE = bytes(60)
ROOM = 200
"""What a piece counts with its overhead."""


def topics(count: int) -> Sequence[Topic]:
    """Return topics without partitions."""
    config = TopicConfig({}, Config())
    return [
        Topic(TopicName(f"t{one}"), TopicId(bytes([one] * 16)), 0, config) for one in range(count)
    ]


def test_a_piece_is_kept_until_its_topic_changes() -> None:
    """Forgetting a topic removes its pieces in every form, and nobody else's."""
    first, second = topics(2)
    kept = EncodedTopics()
    for form in ("a", "b"):
        kept.keep(form, first, PIECE)
        kept.keep(form, second, PIECE)
    kept.forget(first)
    assert {second.topic_id: PIECE} == kept.form("a") == kept.form("b")
    assert 2 * ROOM == kept.kept_bytes


def test_a_piece_that_is_made_again_counts_once() -> None:
    """Two requests may encode a topic at the same time."""
    (topic,) = topics(1)
    kept = EncodedTopics()
    kept.keep("a", topic, PIECE)
    kept.keep("a", topic, PIECE)
    assert kept.kept_bytes == ROOM


def test_nothing_is_kept_of_a_deleted_topic() -> None:
    """A request that began before the deletion leaves nothing behind."""
    (topic,) = topics(1)
    topic.is_deleted = True
    kept = EncodedTopics()
    kept.keep("a", topic, PIECE)
    assert (0, {}) == (kept.kept_bytes, kept.form("a"))


def test_the_form_asked_for_the_longest_ago_makes_room() -> None:
    """The bound holds for all forms together; a form that is still asked for stays."""
    several = topics(4)
    kept = EncodedTopics(limit_bytes=4 * ROOM)
    kept.keep("old", several[0], PIECE)
    kept.keep("older", several[0], PIECE)
    kept.form("old")
    for topic in several:
        kept.keep("new", topic, PIECE)
        assert kept.kept_bytes <= 4 * ROOM
    assert ({}, {}, 4) == (kept.form("older"), kept.form("old"), len(kept.form("new")))


def test_what_does_not_fit_is_not_kept() -> None:
    """A form does not push its own pieces out: reading them in turn would find none."""
    several = topics(3)
    kept = EncodedTopics(limit_bytes=2 * ROOM)
    for topic in several:
        kept.keep("a", topic, PIECE)
    assert {one.topic_id for one in several[:2]} == kept.form("a").keys()
