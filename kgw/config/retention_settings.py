"""Server settings of what becomes of old records: retention, rolling of segments, compaction."""

from __future__ import annotations

from sys import float_info

from kgw.config.setting import LONG_MAX, Setting, SettingType, Value

INT = SettingType.INT
LONG = SettingType.LONG
DOUBLE = SettingType.DOUBLE

CLEANUP_POLICIES = ("compact", "delete")
DEFAULT_ROLL_MS = 604_800_000

_ONE_AT_A_TIME = "one partition is compacted at a time"


def check_policy(value: Value) -> None:
    """Raise ValueError unless a list names each policy once at most, and one at least."""
    items = value if isinstance(value, tuple) else ()
    for item in items:
        if item not in CLEANUP_POLICIES:
            raise ValueError(f"{item!r} is neither compact nor delete")
    if not items or len(set(items)) != len(items):
        raise ValueError("compact, delete or both are needed, each once")


def _check_limit(value: Value) -> None:
    if value == 0:
        raise ValueError("0 would keep nothing; -1 keeps everything")


def _retention_time(name: str, type_: SettingType, doc: str, *, dynamic: bool = False) -> Setting:
    return Setting(
        name,
        type_,
        -1,
        doc,
        section="retention",
        unit="ms" if name.endswith(".ms") else "",
        minimum=-1,
        check=_check_limit,
        dynamic=dynamic,
    )


def _milliseconds(
    name: str,
    default: int,
    doc: str,
    *,
    minimum: int = 0,
    type_: SettingType = LONG,
    dynamic: bool = True,
) -> Setting:
    return Setting(
        name,
        type_,
        default,
        doc,
        section="retention",
        unit="ms",
        minimum=minimum,
        dynamic=dynamic,
    )


RETENTION_SETTINGS = (
    Setting(
        "log.cleanup.policy",
        SettingType.LIST,
        ("delete",),
        "What becomes of old records: `delete` lets retention remove them, `compact` keeps the "
        "newest of each key, both together do both.",
        section="retention",
        check=check_policy,
        dynamic=True,
    ),
    _retention_time(
        "log.retention.ms",
        LONG,
        "Age at which records are removed, by the greatest timestamp of their segment. -1: never, "
        "and the default, where Kafka's is a week. It goes before log.retention.minutes, which "
        "goes before log.retention.hours.",
        dynamic=True,
    ),
    _retention_time(
        "log.retention.minutes", INT, "As log.retention.ms, in minutes, where that is not set."
    ),
    _retention_time(
        "log.retention.hours",
        INT,
        "As log.retention.ms, in hours, where neither that nor log.retention.minutes is set.",
    ),
    Setting(
        "log.retention.bytes",
        LONG,
        -1,
        "Size of a partition above which its oldest segments are removed. -1: none.",
        section="retention",
        unit="bytes",
        minimum=-1,
        dynamic=True,
    ),
    _milliseconds(
        "log.retention.check.interval.ms",
        300_000,
        "How often partitions are looked at for what retention removes and for segments to close.",
        minimum=1,
        dynamic=False,
    ),
    _milliseconds(
        "log.initial.task.delay.ms",
        30_000,
        "How long after the start retention and compaction begin.",
        dynamic=False,
    ),
    _milliseconds(
        "kgw.clock.hold.ms",
        3_600_000,
        "How long the wall clock must have run steadily after a jump before retention and "
        "compaction go by it. Until then they go by the time that has passed since before it.",
        dynamic=False,
    ),
    _milliseconds(
        "log.segment.delete.delay.ms",
        60_000,
        "How long the files of a removed segment stay.",
    ),
    _milliseconds(
        "log.roll.ms",
        DEFAULT_ROLL_MS,
        "Age at which a segment is closed, so that retention and compaction may have it. It goes "
        "before log.roll.hours.",
        minimum=1,
    ),
    Setting(
        "log.roll.hours",
        INT,
        DEFAULT_ROLL_MS // 3_600_000,
        "As log.roll.ms, in hours, where that is not set.",
        section="retention",
        minimum=1,
    ),
    _milliseconds(
        "log.roll.jitter.ms",
        0,
        "Up to how much earlier a segment is closed, so that not all are at once; each partition "
        "has a fixed share of it. It goes before log.roll.jitter.hours.",
    ),
    Setting(
        "log.roll.jitter.hours",
        INT,
        0,
        "As log.roll.jitter.ms, in hours, where that is not set.",
        section="retention",
        minimum=0,
    ),
    Setting(
        "log.cleaner.enable",
        SettingType.BOOLEAN,
        True,
        "Whether compacted topics are compacted.",
        section="retention",
    ),
    Setting(
        "log.cleaner.threads",
        INT,
        1,
        "Partitions that are compacted at a time.",
        section="retention",
        allowed=(1,),
        reason=_ONE_AT_A_TIME,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "Memory for the keys of a partition while it is compacted.",
        section="retention",
        unit="bytes",
        minimum=1 << 20,
        dynamic=True,
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        float_info.max,
        "The most that compaction reads and writes in a second.",
        section="retention",
        minimum=1024,
        dynamic=True,
    ),
    _milliseconds(
        "log.cleaner.backoff.ms",
        15_000,
        "How long compaction rests when nothing is left to do.",
        minimum=1,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "Share of bytes not compacted yet above which a partition is compacted.",
        section="retention",
        minimum=0,
        maximum=1,
        dynamic=True,
    ),
    _milliseconds(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "Age below which a record is not compacted.",
    ),
    _milliseconds(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Age above which a record is compacted whatever the share of bytes; segments are closed "
        "in time for it.",
        minimum=1,
    ),
    _milliseconds(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a deletion marker stays once it has been compacted, so that consumers that read "
        "from the beginning in that time see it.",
    ),
)
