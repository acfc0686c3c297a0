"""Server settings for old records: retention, segment rolling, compaction."""

from __future__ import annotations

from sys import float_info

from kgw.config.setting import LONG_MAX, SettingType, TypedSetting, Value, dynamic_setting, fixed

LONG = SettingType.LONG

CLEANUP_POLICIES = ("compact", "delete")
DEFAULT_ROLL_MS = 604_800_000

_ONE_AT_A_TIME = "one partition is compacted at a time"


def check_policy(value: Value) -> None:
    """Raise ValueError unless a list has at least one policy, and none twice."""
    items = value if isinstance(value, tuple) else ()
    for item in items:
        if item not in CLEANUP_POLICIES:
            raise ValueError(f"{item!r} is neither compact nor delete")
    if not items or len(set(items)) != len(items):
        raise ValueError("compact, delete or both are needed, each once")


def _check_limit(value: Value) -> None:
    if value == 0:
        raise ValueError("0 would keep nothing; -1 keeps everything")


class RetentionSettings:
    """Settings for old records."""

    log_cleanup_policy = dynamic_setting(
        "log.cleanup.policy",
        ("delete",),
        "What becomes of old records: `delete` lets retention remove them, `compact` keeps the "
        "newest of each key, both together do both.",
        check=check_policy,
    )
    log_retention_ms = dynamic_setting(
        "log.retention.ms",
        -1,
        "Age at which records are removed, by the greatest timestamp of their segment. -1: never, "
        "and the default, where Kafka's is a week. It goes before log.retention.minutes, which "
        "goes before log.retention.hours.",
        type_=LONG,
        minimum=-1,
        check=_check_limit,
    )
    log_retention_minutes = TypedSetting(
        "log.retention.minutes",
        -1,
        "As log.retention.ms, in minutes, where that is not set.",
        minimum=-1,
        check=_check_limit,
    )
    log_retention_hours = TypedSetting(
        "log.retention.hours",
        -1,
        "As log.retention.ms, in hours, where neither that nor log.retention.minutes is set.",
        minimum=-1,
        check=_check_limit,
    )
    log_retention_bytes = dynamic_setting(
        "log.retention.bytes",
        -1,
        "Size of a partition above which its oldest segments are removed. -1: none.",
        type_=LONG,
        minimum=-1,
    )
    log_retention_check_interval_ms = TypedSetting(
        "log.retention.check.interval.ms",
        300_000,
        "How often partitions are looked at for what retention removes and for segments to close.",
        type_=LONG,
        minimum=1,
    )
    log_initial_task_delay_ms = TypedSetting(
        "log.initial.task.delay.ms",
        30_000,
        "How long after the start retention and compaction begin.",
        type_=LONG,
    )
    clock_hold_ms = TypedSetting(
        "kgw.clock.hold.ms",
        3_600_000,
        "How long the wall clock must have run steadily after a jump before retention and "
        "compaction go by it. Until then they go by the time that has passed since before it.",
        type_=LONG,
    )
    log_segment_delete_delay_ms = dynamic_setting(
        "log.segment.delete.delay.ms",
        60_000,
        "How long the files of a removed segment stay.",
        type_=LONG,
    )
    log_roll_ms = dynamic_setting(
        "log.roll.ms",
        DEFAULT_ROLL_MS,
        "Age at which a segment is closed, so that retention and compaction may have it. It goes "
        "before log.roll.hours.",
        type_=LONG,
        minimum=1,
    )
    log_roll_hours = TypedSetting(
        "log.roll.hours",
        DEFAULT_ROLL_MS // 3_600_000,
        "As log.roll.ms, in hours, where that is not set.",
        minimum=1,
    )
    log_roll_jitter_ms = dynamic_setting(
        "log.roll.jitter.ms",
        0,
        "Up to how much earlier a segment is closed, so that not all are at once; each partition "
        "has a fixed share of it. It goes before log.roll.jitter.hours.",
        type_=LONG,
    )
    log_roll_jitter_hours = TypedSetting(
        "log.roll.jitter.hours",
        0,
        "As log.roll.jitter.ms, in hours, where that is not set.",
    )
    log_cleaner_enable = TypedSetting(
        "log.cleaner.enable",
        True,
        "Whether compacted topics are compacted.",
    )
    log_cleaner_threads = fixed(
        "log.cleaner.threads",
        1,
        "Partitions that are compacted at a time.",
        _ONE_AT_A_TIME,
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size = dynamic_setting(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        "Memory for the keys of a partition while it is compacted.",
        type_=LONG,
        unit="bytes",
        minimum=1 << 20,
    )
    log_cleaner_io_max_bytes_per_second = dynamic_setting(
        "log.cleaner.io.max.bytes.per.second",
        float_info.max,
        "The most that compaction reads and writes in a second.",
        unit="",
        minimum=1024,
    )
    log_cleaner_backoff_ms = dynamic_setting(
        "log.cleaner.backoff.ms",
        15_000,
        "How long compaction rests when nothing is left to do.",
        type_=LONG,
        minimum=1,
    )
    log_cleaner_min_cleanable_ratio = dynamic_setting(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Share of bytes not compacted yet above which a partition is compacted.",
        maximum=1,
    )
    log_cleaner_min_compaction_lag_ms = dynamic_setting(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "Age below which a record is not compacted.",
        type_=LONG,
    )
    log_cleaner_max_compaction_lag_ms = dynamic_setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Age above which a record is compacted whatever the share of bytes; segments are closed "
        "in time for it.",
        type_=LONG,
        minimum=1,
    )
    log_cleaner_delete_retention_ms = dynamic_setting(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a deletion marker stays once it has been compacted, so that consumers that read "
        "from the beginning in that time see it.",
        type_=LONG,
    )
