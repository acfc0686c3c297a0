"""Settings of a topic: every name that Kafka knows is served, fixed to what is done, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.refused import REFUSED_TOPIC_SETTINGS
from kgw.config.server_settings import KEEPS_EVERYTHING, ONE_NODE, SERVER_SETTINGS
from kgw.config.setting import LONG_MAX, ConfigError, Setting, SettingType, Value, suggest, table

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_COMPACTION = "compaction is not served yet"
_NOT_RECOMPRESSED = "batches are never recompressed"
_NO_TIERS = "there is no remote storage"


def _from_server(name: str, server_name: str) -> Setting:
    """A topic setting with the type, limits and meaning of the broker setting behind it."""
    server = SERVER_SETTINGS[server_name]
    return Setting(
        name,
        server.type,
        server.default,
        server.doc,
        section="topic",
        unit=server.unit,
        minimum=server.minimum,
        maximum=server.maximum,
        allowed=server.allowed,
        reason=server.reason,
        dynamic=True,
        server_setting=server_name,
    )


def _fixed(name: str, type_: SettingType, value: Value, doc: str, reason: str) -> Setting:
    """A topic setting of which one value alone is true here."""
    unit = "ms" if name.endswith(".ms") else "bytes" if name.endswith(".bytes") else ""
    return Setting(
        name, type_, value, doc, section="topic", unit=unit, allowed=(value,), reason=reason
    )


TOPIC_SETTINGS = table(
    _from_server("cleanup.policy", "log.cleanup.policy"),
    _fixed(
        "compression.gzip.level",
        SettingType.INT,
        -1,
        "Level of recompression, which does not happen.",
        _NOT_RECOMPRESSED,
    ),
    _fixed(
        "compression.lz4.level",
        SettingType.INT,
        9,
        "Level of recompression, which does not happen.",
        _NOT_RECOMPRESSED,
    ),
    _from_server("compression.type", "compression.type"),
    _fixed(
        "compression.zstd.level",
        SettingType.INT,
        3,
        "Level of recompression, which does not happen.",
        _NOT_RECOMPRESSED,
    ),
    _fixed(
        "delete.retention.ms",
        SettingType.LONG,
        86_400_000,
        "How long compaction keeps deletion markers.",
        _NO_COMPACTION,
    ),
    _fixed(
        "file.delete.delay.ms",
        SettingType.LONG,
        60_000,
        "How long the files of a dropped segment stay.",
        KEEPS_EVERYTHING,
    ),
    _from_server("flush.messages", "log.flush.interval.messages"),
    _from_server("flush.ms", "log.flush.interval.ms"),
    _from_server("index.interval.bytes", "log.index.interval.bytes"),
    Setting(
        "kgw.durability",
        SettingType.STRING,
        "strict",
        "When a record counts as written: `strict` means that it survives a power cut.",
        section="topic",
        allowed=("strict",),
        reason="the relaxed mode is not served yet",
        dynamic=True,
    ),
    _fixed(
        "max.compaction.lag.ms",
        SettingType.LONG,
        LONG_MAX,
        "Age at which a record must have been compacted.",
        _NO_COMPACTION,
    ),
    _from_server("max.message.bytes", "message.max.bytes"),
    _from_server("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _from_server("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _from_server("message.timestamp.type", "log.message.timestamp.type"),
    _fixed(
        "min.cleanable.dirty.ratio",
        SettingType.DOUBLE,
        0.5,
        "Share of uncompacted bytes at which compaction begins.",
        _NO_COMPACTION,
    ),
    _fixed(
        "min.compaction.lag.ms",
        SettingType.LONG,
        0,
        "Age before which a record is not compacted.",
        _NO_COMPACTION,
    ),
    _from_server("min.insync.replicas", "min.insync.replicas"),
    _from_server("preallocate", "log.preallocate"),
    _fixed(
        "remote.storage.enable",
        SettingType.BOOLEAN,
        False,
        "Whether old segments move to another store (KIP-405).",
        _NO_TIERS,
    ),
    _from_server("retention.bytes", "log.retention.bytes"),
    _from_server("retention.ms", "log.retention.ms"),
    _from_server("segment.bytes", "log.segment.bytes"),
    _from_server("segment.index.bytes", "log.index.size.max.bytes"),
    _fixed(
        "segment.jitter.ms",
        SettingType.LONG,
        0,
        "Random part of the age at which a segment is closed.",
        "segments are closed by size alone",
    ),
    _fixed(
        "segment.ms",
        SettingType.LONG,
        LONG_MAX,
        "Age at which a segment is closed. Segments are closed by size alone.",
        "segments are closed by size alone",
    ),
    _fixed(
        "unclean.leader.election.enable",
        SettingType.BOOLEAN,
        False,
        "Whether a replica that lags may lead.",
        ONE_NODE,
    ),
)


def topic_setting(name: str) -> Setting:
    """Return the topic setting of that name.

    Raises ConfigError for names that Kafka knows and kgw refuses, and for unknown ones.
    """
    setting = TOPIC_SETTINGS.get(name)
    if setting is not None:
        return setting
    reason = REFUSED_TOPIC_SETTINGS.get(name)
    if reason is not None:
        raise ConfigError(f"{name} is not served: {reason}")
    raise ConfigError(f"unknown topic setting {name}{suggest(name, TOPIC_SETTINGS)}")


def parse_topic_config(texts: Mapping[str, str | None]) -> dict[str, Value]:
    """Return the values of a topic's own settings, as a client sent them.

    None is refused, as Kafka refuses it. Raises ConfigError.
    """
    values: dict[str, Value] = {}
    for name, text in texts.items():
        setting = topic_setting(name)
        if text is None:
            raise ConfigError(f"{name}: a null value is refused")
        values[name] = setting.parse(text)
    return values
