"""Settings of topics: each one that Kafka has is supported, fixed to one value, or refused."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kgw.config.retention_settings import check_policy
from kgw.config.server_settings import SERVER_SETTINGS
from kgw.config.setting import (
    ConfigError,
    Setting,
    SettingType,
    TypedSetting,
    Value,
    dynamic_setting,
    fixed,
    suggest,
    table,
)
from kgw.config.topic_default_settings import ONE_NODE, check_gzip_level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _check_base64(value: Value) -> None:
    from base64 import b64decode

    # This raises ValueError, which says what is wrong.
    b64decode(str(value), validate=True)


_NO_TIERS = "there is no remote storage"
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


def _from_server(
    name: str,
    server_name: str,
    *,
    check: Callable[[Value], None] | None = None,
    coarser: Mapping[str, int] = MappingProxyType({}),
) -> Setting:
    """Return a topic setting with the type, limits and description of its broker setting."""
    server = SERVER_SETTINGS[server_name]
    return TypedSetting(
        name,
        server.default,
        server.doc,
        type_=server.type,
        unit=server.unit,
        minimum=server.minimum,
        maximum=server.maximum,
        allowed=server.allowed,
        reason=server.reason,
        check=check,
        dynamic=True,
        server_setting=server_name,
        coarser_settings=coarser,
    )


TOPIC_SETTINGS = table(
    _from_server("cleanup.policy", "log.cleanup.policy", check=check_policy),
    _from_server("compression.gzip.level", "compression.gzip.level", check=check_gzip_level),
    _from_server("compression.lz4.level", "compression.lz4.level"),
    _from_server("compression.type", "compression.type"),
    _from_server("compression.zstd.level", "compression.zstd.level"),
    _from_server("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    fixed(
        "errors.deadletterqueue.group.enable",
        False,
        "Whether share groups may write what they cannot process to this topic.",
        "share groups are not served yet",
    ),
    _from_server("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _from_server("flush.messages", "log.flush.interval.messages"),
    _from_server("flush.ms", "log.flush.interval.ms"),
    fixed(
        "follower.replication.throttled.replicas",
        (),
        "Replicas that fetch no faster than they are told.",
        ONE_NODE,
    ),
    _from_server("index.interval.bytes", "log.index.interval.bytes"),
    dynamic_setting(
        "kgw.archive.hold",
        (),
        "Groups whose committed offsets hold what comes after them: nothing at or above the lowest "
        "one is removed by retention, compaction or DeleteRecords. Where one has committed "
        "nothing, nothing is removed. Committed offsets of these groups do not expire. Empty: "
        "nothing is held.",
    ),
    _from_server("kgw.cold.compression", "kgw.cold.compression"),
    _from_server("kgw.cold.compression.after.ms", "kgw.cold.compression.after.ms"),
    _from_server("kgw.cold.compression.level", "kgw.cold.compression.level"),
    _from_server("kgw.durability", "kgw.durability"),
    _from_server("kgw.flush.ms", "kgw.flush.ms"),
    dynamic_setting(
        "kgw.loading",
        "",
        "The beginning of a transactional id. While it is set, only requests that name such an id "
        "write to the topic; every other producer is told to try again (NOT_ENOUGH_REPLICAS), and "
        "goes on when it is taken away. Readers are served as ever. Another id is taken when this "
        "one has been taken away. Empty: everybody writes.",
    ),
    dynamic_setting(
        "kgw.loading.offsets",
        "assigned",
        "Where the batches of kgw.loading go. `assigned`: each gets the next offsets, as ever. "
        "`original`: each keeps the offsets with which it comes, begins where the partition ends, "
        "and may leave offsets out; it can be set while nothing has ever been stored in the topic. "
        "Left as it is when kgw.loading is taken away, it refuses what comes from the loader late.",
        allowed=("assigned", "original"),
    ),
    dynamic_setting(
        "kgw.retention.offset",
        -1,
        "Where every partition begins at the earliest: records below it are removed, up to the "
        "high watermark. -1: nowhere. Lowering it brings nothing back.",
        type_=SettingType.LONG,
        minimum=-1,
    ),
    _from_server("kgw.seaweedmq.layout", "kgw.seaweedmq.layout"),
    dynamic_setting(
        "kgw.smq.record.type",
        "",
        "The RecordType that a publisher of SeaweedMQ has declared for the values, in base64; "
        "empty: none. Nothing is checked by it.",
        check=_check_base64,
    ),
    _from_server("kgw.validation", "kgw.validation"),
    fixed(
        "leader.replication.throttled.replicas",
        (),
        "Replicas to which a leader sends no faster than it is told.",
        ONE_NODE,
    ),
    fixed(
        "local.retention.bytes",
        -2,
        "Size of what stays here once it is in another store too; -2: retention.bytes.",
        _NO_TIERS,
        type_=SettingType.LONG,
    ),
    fixed(
        "local.retention.ms",
        -2,
        "Age of what stays here once it is in another store too; -2: retention.ms.",
        _NO_TIERS,
        type_=SettingType.LONG,
    ),
    _from_server("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _from_server("max.decompressed.message.bytes", "max.decompressed.message.bytes"),
    _from_server("max.message.bytes", "message.max.bytes"),
    _from_server("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _from_server("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _from_server("message.timestamp.type", "log.message.timestamp.type"),
    _from_server("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _from_server("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _from_server("min.insync.replicas", "min.insync.replicas"),
    _from_server("preallocate", "log.preallocate"),
    fixed(
        "remote.copy.lag.bytes",
        -1,
        "How much of a segment stays before it moves to another store; -1: all of it.",
        _NO_TIERS,
        type_=SettingType.LONG,
    ),
    fixed(
        "remote.copy.lag.ms",
        0,
        "How long a segment stays before it moves to another store.",
        _NO_TIERS,
        type_=SettingType.LONG,
    ),
    fixed(
        "remote.log.copy.disable",
        False,
        "Whether no more segments move to another store.",
        _NO_TIERS,
    ),
    fixed(
        "remote.log.delete.on.disable",
        False,
        "Whether another store is emptied when no more segments move there.",
        _NO_TIERS,
    ),
    fixed(
        "remote.storage.enable",
        False,
        "Whether old segments move to another store (KIP-405).",
        _NO_TIERS,
    ),
    _from_server("retention.bytes", "log.retention.bytes"),
    _from_server(
        "retention.ms",
        "log.retention.ms",
        # A topic may set 0, with which people empty a topic; the server may not, as this would
        # empty all topics.
        coarser={"log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS},
    ),
    _from_server("segment.bytes", "log.segment.bytes"),
    _from_server("segment.index.bytes", "log.index.size.max.bytes"),
    _from_server(
        "segment.jitter.ms", "log.roll.jitter.ms", coarser={"log.roll.jitter.hours": _HOUR_MS}
    ),
    _from_server("segment.ms", "log.roll.ms", coarser={"log.roll.hours": _HOUR_MS}),
    fixed(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that lags may lead.",
        ONE_NODE,
    ),
)


ACTED_ON: Final = tuple(name for name, one in TOPIC_SETTINGS.items() if not one.is_fixed)
"""The settings that can differ from topic to topic; a topic stores only these."""


def topic_setting(name: str) -> Setting:
    """Return a topic setting by its name.

    Raises ConfigError for unknown names, and for settings of Kafka that kgw refuses.
    """
    setting = TOPIC_SETTINGS.get(name)
    if setting is not None:
        return setting
    # Imported here: clients rarely ask for such a name.
    from kgw.config.refused import REFUSED_TOPIC_SETTINGS

    reason = REFUSED_TOPIC_SETTINGS.get(name)
    if reason is not None:
        raise ConfigError(f"{name} is not served: {reason}")
    raise ConfigError(f"unknown topic setting {name}{suggest(name, TOPIC_SETTINGS)}")


def parse_topic_config(texts: Mapping[str, str | None]) -> dict[str, Value]:
    """Parse a topic's own settings, as a client sent them.

    Raises ConfigError, also for the value None, which Kafka refuses, too.
    """
    values: dict[str, Value] = {}
    for name, text in texts.items():
        setting = topic_setting(name)
        if text is None:
            raise ConfigError(f"{name}: a null value is refused")
        values[name] = setting.parse(text)
    return values
