"""A topic's effective settings: its own settings, else the server's defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.backend.base import LogSettings
from kgw.config import TOPIC_SETTINGS, ConfigError, parse_topic_config
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.loading import Loading
from kgw.partitions.append.validation import BatchRules, record_rules
from kgw.partitions.rules.cold import ColdRules
from kgw.partitions.rules.compaction import CompactionRules
from kgw.partitions.rules.retention import NO_LIMIT, RetentionRules
from kgw.records.batch import Compression
from kgw.records.limits import DecompressionLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.base import ForeignTopic
    from kgw.config import Config, Setting, Value


_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""The codec of each compression.type; `producer` has none."""


class TopicConfig:
    """The effective settings of one topic, as parsed values. It never changes."""

    __slots__ = (
        "batches",
        "checks_batches",
        "cold",
        "compaction",
        "decompression_limits",
        "deletes",
        "foreign",
        "holding_groups",
        "is_compacted",
        "loading",
        "log_settings",
        "own",
        "retention",
        "values",
        "was_loaded",
    )

    def __init__(
        self, own: Mapping[str, Value], config: Config, foreign: ForeignTopic | None = None
    ) -> None:
        """A foreign topic has only settings of its own, which nobody changes here."""
        if foreign is not None:
            own = parse_own_settings(foreign.settings)
        self.foreign = foreign
        self.own = dict(own)
        self.values = values = config.topic_values(own)
        policies = cast("tuple[str, ...]", values["cleanup.policy"])
        # The leader of a foreign topic deletes and compacts the records.
        self.deletes = "delete" in policies and foreign is None
        self.is_compacted = "compact" in policies and foreign is None
        self.holding_groups = cast("tuple[str, ...]", values["kgw.archive.hold"])
        """Groups that keep records which they have not committed; see
        `kgw.partitions.topics.hold`."""
        self.loading: Loading | None = None
        """The only producer that may write; None if all producers may."""
        keeps_offsets = values["kgw.loading.offsets"] == "original"
        if values["kgw.loading"] and foreign is None:
            self.loading = Loading(cast("str", values["kgw.loading"]), keeps_offsets)
        self.was_loaded = keeps_offsets and self.loading is None
        """Whether the topic was loaded with original offsets, and all producers may write now."""
        self.batches = BatchRules(
            max_message_bytes=cast("int", values["max.message.bytes"]),
            uses_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=cast("int", values["message.timestamp.before.max.ms"]),
            timestamp_after_max_ms=cast("int", values["message.timestamp.after.max.ms"]),
            needs_keys=self.is_compacted,
            validates_records=values["kgw.validation"] == "records",
            compression=None
            if foreign is not None
            else _CODECS.get(cast("str", values["compression.type"])),
            compression_level=_compression_level(values),
            refusal="" if foreign is None else foreign.read_only,
            is_plain=foreign is not None and foreign.is_plain,
            keeps_offsets=self.loading is not None and self.loading.keeps_offsets,
        )
        # Precomputed, as every batch needs it: most need no further check.
        self.checks_batches = (
            self.loading is not None
            or self.was_loaded
            or self.batches.compression is not None
            or record_rules(self.batches, 0, Compression.NONE) is not None
        )
        self.decompression_limits = DecompressionLimits(
            config.decompressed_bytes_max, config.decompression_ratio_max
        )
        max_compaction_lag_ms = cast("int", values["max.compaction.lag.ms"])
        segment_ms = cast("int", values["segment.ms"])
        self.retention = RetentionRules(
            retention_ms=cast("int", values["retention.ms"]) if self.deletes else NO_LIMIT,
            retention_bytes=cast("int", values["retention.bytes"]) if self.deletes else NO_LIMIT,
            retention_offset=cast("int", values["kgw.retention.offset"])
            if self.deletes
            else NO_LIMIT,
            # Only closed segments are compacted, so each segment is closed before its records
            # exceed the compaction lag.
            segment_ms=min(segment_ms, max_compaction_lag_ms) if self.is_compacted else segment_ms,
            segment_jitter_ms=cast("int", values["segment.jitter.ms"]),
        )
        self.compaction = CompactionRules(
            min_dirty_ratio=cast("float", values["min.cleanable.dirty.ratio"]),
            min_lag_ms=cast("int", values["min.compaction.lag.ms"]),
            max_lag_ms=max_compaction_lag_ms,
            delete_retention_ms=cast("int", values["delete.retention.ms"]),
        )
        self.cold: ColdRules | None = None
        """None if old segments are not recompressed."""
        if values["kgw.cold.compression"] == "zstd" and foreign is None:
            self.cold = ColdRules(
                after_ms=cast("int", values["kgw.cold.compression.after.ms"]),
                level=cast("int", values["kgw.cold.compression.level"]),
            )
        self.log_settings = LogSettings(
            segment_bytes=cast("int", values["segment.bytes"]),
            segment_index_bytes=cast("int", values["segment.index.bytes"]),
            index_interval_bytes=cast("int", values["index.interval.bytes"]),
            delete_delay_ms=cast("int", values["file.delete.delay.ms"]),
            is_relaxed=values["kgw.durability"] == "relaxed",
            flush_interval_ms=min(
                cast("int", values["kgw.flush.ms"]), cast("int", values["flush.ms"])
            ),
            flush_interval_messages=cast("int", values["flush.messages"]),
            # The backend uses the server's setting.
            layout=cast("str", values["kgw.seaweedmq.layout"])
            if "kgw.seaweedmq.layout" in own
            else "",
        )

    def value(self, setting: Setting) -> Value:
        """Return the value of a setting for this topic."""
        return self.values.get(setting.name, setting.default)

    def own_texts(self) -> dict[str, str]:
        """Return the topic's own settings as texts, for storing and describing them."""
        return {name: TOPIC_SETTINGS[name].format(value) for name, value in self.own.items()}


def _compression_level(values: Mapping[str, Value]) -> int | None:
    """Return the compression level of the topic's codec; None for a codec without levels."""
    match values["compression.type"]:
        case "gzip":
            return cast("int", values["compression.gzip.level"])
        case "lz4":
            return cast("int", values["compression.lz4.level"])
        case "zstd":
            return cast("int", values["compression.zstd.level"])
    return None


def parse_own_settings(texts: Mapping[str, str | None]) -> dict[str, Value]:
    """Return a topic's own settings as values.

    Raises KafkaError INVALID_CONFIG for an unknown setting or an invalid value.
    """
    try:
        return parse_topic_config(texts)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
