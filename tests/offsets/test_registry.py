from __future__ import annotations

import pytest

from kgw.offsets.recovery import (
    AnomalyKind,
    Checkpoint,
    LogFacts,
    RecoveryPlan,
    ScanResult,
    SegmentFacts,
)
from kgw.offsets.registry import PartitionOffsetRegistry
from kgw.types import PartitionKey, TopicId

KEY = PartitionKey(TopicId(b"t" * 16), 0)


def facts(size_bytes: int, *, clean_stop: bool = False) -> LogFacts:
    """Return what a log of one segment shows."""
    return LogFacts(KEY.topic_id, 0, [SegmentFacts(0, size_bytes)], clean_stop)


def test_a_partition_has_one_owner() -> None:
    """A second manager would hand out the same offsets."""
    registry = PartitionOffsetRegistry()
    assert 0 == registry.create(KEY).next_offset

    with pytest.raises(ValueError, match="open already"):
        registry.create(KEY)
    with pytest.raises(ValueError, match="open already"):
        registry.recover(KEY, None, facts(0), lambda _: ScanResult(0))


def test_recovery_scans_when_the_plan_says_so() -> None:
    """The log is read from where the checkpoint ends; the manager begins where the log does."""
    registry = PartitionOffsetRegistry()
    plans: list[RecoveryPlan] = []

    def scan(plan: RecoveryPlan) -> ScanResult:
        plans.append(plan)
        return ScanResult(70, 2)

    manager, recovered = registry.recover(
        KEY, Checkpoint(KEY.topic_id, 0, 5, 50, 2, 0, 500), facts(800), scan
    )

    assert [500] == [plan.scan.position for plan in plans if plan.scan]
    assert (5, 70, 70) == (manager.log_start_offset, manager.high_watermark, manager.next_offset)
    assert recovered.leader_epoch == 3


def test_recovery_after_a_clean_stop_reads_nothing() -> None:
    """A trusted checkpoint saves the scan."""
    registry = PartitionOffsetRegistry()

    def scan(plan: RecoveryPlan) -> ScanResult:
        raise AssertionError(plan)

    manager, _ = registry.recover(
        KEY,
        Checkpoint(KEY.topic_id, 0, 0, 50, 2, 0, 800, clean=True),
        facts(800, clean_stop=True),
        scan,
    )

    assert manager.next_offset == 50


def test_anomalies_are_counted() -> None:
    """What recovery finds can be exported."""
    registry = PartitionOffsetRegistry()

    registry.recover(KEY, None, facts(10), lambda _: ScanResult(1), checkpoint_damaged=True)

    assert registry.anomaly_counts[AnomalyKind.CHECKPOINT_DAMAGED] == 1
    assert sum(registry.anomaly_counts.values()) == 1


def test_a_scan_that_fails_leaves_the_partition_closed() -> None:
    """It can be tried again."""
    registry = PartitionOffsetRegistry()

    def scan(plan: RecoveryPlan) -> ScanResult:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        registry.recover(KEY, None, facts(10), scan)

    registry.create(KEY)


def test_a_removed_partition_is_gone() -> None:
    """Removing it twice is no error; it can be created again."""
    registry = PartitionOffsetRegistry()
    registry.create(KEY)

    registry.remove(KEY)
    registry.remove(KEY)

    registry.create(KEY)
