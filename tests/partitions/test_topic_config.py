from __future__ import annotations

import pytest

from kgw.config import Config
from kgw.partitions.topic_config import TopicConfig, parse_own_settings
from kgw.records.batch import Compression


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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (None, None)),
        ({"compression.gzip.level": "4"}, (None, None)),
        ({"compression.type": "producer"}, (None, None)),
        ({"compression.type": "uncompressed"}, (Compression.NONE, None)),
        ({"compression.type": "snappy"}, (Compression.SNAPPY, None)),
        ({"compression.type": "gzip"}, (Compression.GZIP, -1)),
        ({"compression.type": "gzip", "compression.gzip.level": "4"}, (Compression.GZIP, 4)),
        ({"compression.type": "lz4"}, (Compression.LZ4, 9)),
        ({"compression.type": "lz4", "compression.lz4.level": "17"}, (Compression.LZ4, 17)),
        ({"compression.type": "zstd"}, (Compression.ZSTD, 3)),
        ({"compression.type": "zstd", "compression.zstd.level": "-7"}, (Compression.ZSTD, -7)),
    ],
)
def test_the_codec_and_its_level(
    settings: dict[str, str], expected: tuple[Compression | None, int | None]
) -> None:
    """Of the topic before the server; only such topics have their records read for it."""
    config = TopicConfig(parse_own_settings(settings), Config())
    assert expected == (config.batches.compression, config.batches.compression_level)
    assert (expected[0] is not None) == config.checks_batches
    server = TopicConfig({}, Config().with_dynamic(settings))
    assert expected == (server.batches.compression, server.batches.compression_level)
