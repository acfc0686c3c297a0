"""All partitions' offsets of a process, and their recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.offsets.manager import PartitionOffsetManager
from kgw.offsets.recovery import (
    Anomaly,
    AnomalyKind,
    Checkpoint,
    LogFacts,
    Recovered,
    RecoveryPlan,
    ScanResult,
    conclude_recovery,
    plan_recovery,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.types import PartitionKey


class PartitionOffsetRegistry:
    """The one place where offset managers are made: one for each partition that is open."""

    def __init__(self) -> None:
        """Begin with no partition."""
        self._open: set[PartitionKey] = set()
        self._anomaly_counts = dict.fromkeys(AnomalyKind, 0)

    @property
    def anomaly_counts(self) -> dict[AnomalyKind, int]:
        """How often each kind was met since the process began."""
        return dict(self._anomaly_counts)

    def create(self, key: PartitionKey) -> PartitionOffsetManager:
        """Return the manager of a log that was just created, at offset 0.

        Raises ValueError when the partition is open: two owners would assign the same offsets.
        """
        return self._register(key, PartitionOffsetManager())

    def recover(
        self,
        key: PartitionKey,
        checkpoint: Checkpoint | None,
        facts: LogFacts,
        scan: Callable[[RecoveryPlan], ScanResult],
        *,
        checkpoint_damaged: bool = False,
    ) -> tuple[PartitionOffsetManager, Recovered]:
        """Recover a partition that this process becomes the leader of.

        `scan` reads the log from the plan's `scan` on, cuts a torn tail and says what it found; it
        is not called when the checkpoint can be trusted. Raises ValueError when the partition is
        open, and whatever `scan` raises.
        """
        self._refuse_open(key)
        plan = plan_recovery(checkpoint, facts, checkpoint_damaged=checkpoint_damaged)
        recovered = conclude_recovery(plan, None if plan.scan is None else scan(plan))
        self.count(recovered.anomalies)
        manager = PartitionOffsetManager(recovered.log_start_offset, recovered.next_offset)
        return self._register(key, manager), recovered

    def count(self, anomalies: tuple[Anomaly, ...]) -> None:
        """Count findings, for metrics."""
        for anomaly in anomalies:
            self._anomaly_counts[anomaly.kind] += 1

    def remove(self, key: PartitionKey) -> None:
        """Forget a partition that was deleted or given up; nothing happens when it is not open."""
        self._open.discard(key)

    def _register(
        self, key: PartitionKey, manager: PartitionOffsetManager
    ) -> PartitionOffsetManager:
        self._refuse_open(key)
        self._open.add(key)
        return manager

    def _refuse_open(self, key: PartitionKey) -> None:
        if key in self._open:
            raise ValueError(f"partition {key} is open already")
