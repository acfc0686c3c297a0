"""Other settings for topics that are served, some partitions at a time.

Whoever changes a topic's settings puts them into the topic, then goes through its partitions, and
each of those takes what its topic has when its turn comes. So of several changes under way at once
the last one reaches every partition, whoever is the first to be ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.partitions.topic_config import TopicConfig
from kgw.turns import Share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.config import Config
    from kgw.partitions.partition import Partition
    from kgw.partitions.topic import Topic
    from kgw.turns import Turns

PARTITIONS_PER_TURN: Final = 2_000
"""To hand settings on takes up to 1 us."""
TOPIC_COST: Final = 50
"""What it takes to work out the settings of a topic, in partitions."""


def configure_topics(topics: Iterable[Topic], defaults: Callable[[], Config]) -> Turns[None]:
    """Work out the settings of topics anew, from their own ones and what is the default now."""
    share = Share(PARTITIONS_PER_TURN)
    for topic in topics:
        if not topic.is_deleted:
            topic.config = TopicConfig(topic.config.own, defaults())
            yield from _hand_on(topic, topic.partitions.values(), share)
        if share.spend(TOPIC_COST):
            yield


def configure_topic(topic: Topic, config: TopicConfig) -> Turns[None]:
    """Give a topic and its partitions other settings."""
    topic.config = config
    yield from _hand_on(topic, topic.partitions.values(), Share(PARTITIONS_PER_TURN))


def configure_partitions(topic: Topic, partitions: Iterable[Partition]) -> Turns[None]:
    """Give partitions that are about to join a topic the settings that it has."""
    yield from _hand_on(topic, partitions, Share(PARTITIONS_PER_TURN))


def _hand_on(topic: Topic, partitions: Iterable[Partition], share: Share) -> Turns[None]:
    for partition in partitions:
        partition.configure(topic.config)
        if share.spend():
            yield
