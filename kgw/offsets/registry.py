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
    from collections.abc import Callable, Iterator

    from kgw.types import PartitionKey


class PartitionOffsetRegistry:
    """The one place where a partition's offset manager is made, found and dropped."""

    def __init__(self) -> None:
        """Begin with no partition."""
        self._managers: dict[PartitionKey, PartitionOffsetManager] = {}
        self._anomaly_counts = dict.fromkeys(AnomalyKind, 0)

    def __len__(self) -> int:
        return len(self._managers)

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._managers)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._managers

    @property
    def anomaly_counts(self) -> dict[AnomalyKind, int]:
        """How often each kind was met since the process began."""
        return dict(self._anomaly_counts)

    def get(self, key: PartitionKey) -> PartitionOffsetManager | None:
        """Return a partition's manager, or None when it is not open."""
        return self._managers.get(key)

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
        if key in self._managers:
            raise ValueError(f"partition {key} is open already")
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
        self._managers.pop(key, None)

    def _register(
        self, key: PartitionKey, manager: PartitionOffsetManager
    ) -> PartitionOffsetManager:
        if key in self._managers:
            raise ValueError(f"partition {key} is open already")
        self._managers[key] = manager
        return manager
