"""What a topic's settings come to: its own ones before the server's defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.backend.base import LogSettings
from kgw.config import TOPIC_SETTINGS, ConfigError, parse_topic_config
from kgw.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.config import Config, Value


class TopicConfig:
    """The effective settings of one topic, as values to act on. It never changes."""

    __slots__ = (
        "log_settings",
        "max_message_bytes",
        "own",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "uses_log_append_time",
        "values",
    )

    def __init__(self, own: Mapping[str, Value], config: Config) -> None:
        self.own = dict(own)
        self.values = values = config.topic_values(own)
        self.max_message_bytes = cast("int", values["max.message.bytes"])
        self.uses_log_append_time = values["message.timestamp.type"] == "LogAppendTime"
        self.timestamp_before_max_ms = cast("int", values["message.timestamp.before.max.ms"])
        self.timestamp_after_max_ms = cast("int", values["message.timestamp.after.max.ms"])
        self.log_settings = LogSettings(
            segment_bytes=cast("int", values["segment.bytes"]),
            segment_index_bytes=cast("int", values["segment.index.bytes"]),
            index_interval_bytes=cast("int", values["index.interval.bytes"]),
        )

    def own_texts(self) -> dict[str, str]:
        """Return the topic's own settings as texts, as they are stored and described."""
        return {name: TOPIC_SETTINGS[name].format(value) for name, value in self.own.items()}


def parse_own_settings(texts: Mapping[str, str | None]) -> dict[str, Value]:
    """Return a topic's own settings as values.

    Raises KafkaError INVALID_CONFIG for a setting that is unknown, or whose value is refused.
    """
    try:
        return parse_topic_config(texts)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
