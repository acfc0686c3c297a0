from __future__ import annotations

import pytest

from kgw.config import Config
from kgw.partitions.topic_config import TopicConfig, parse_own_settings


def test_topics_are_strict_unless_told_otherwise() -> None:
    """A record is durable before it is acknowledged."""
    assert not TopicConfig({}, Config()).log_settings.is_relaxed


def test_durability_comes_from_the_topic_or_the_server() -> None:
    """The topic's own setting comes before the server's, in both directions."""
    server = Config.of(durability="relaxed", flush_ms=250)
    assert TopicConfig({}, server).log_settings.is_relaxed
    assert 250 == TopicConfig({}, server).log_settings.flush_interval_ms
    own = parse_own_settings({"kgw.durability": "strict", "kgw.flush.ms": "50"})
    assert not TopicConfig(own, server).log_settings.is_relaxed
    assert 50 == TopicConfig(own, server).log_settings.flush_interval_ms


def test_durability_changes_while_the_server_runs() -> None:
    """For all topics that do not set it."""
    changed = Config().with_dynamic({"kgw.durability": "relaxed", "kgw.flush.ms": "20"})
    settings = TopicConfig({}, changed).log_settings
    assert (True, 20) == (settings.is_relaxed, settings.flush_interval_ms)


@pytest.mark.parametrize(("flush_ms", "expected"), [("20", 20), ("9000", 100)])
def test_kafkas_flush_settings_are_kept_by_relaxed_topics(flush_ms: str, expected: int) -> None:
    """An upper bound of the time, and of the records, between two flushes."""
    own = parse_own_settings({"flush.ms": flush_ms, "flush.messages": "7"})
    settings = TopicConfig(own, Config()).log_settings
    assert (expected, 7) == (settings.flush_interval_ms, settings.flush_interval_messages)
