"""Partitions whose segments could not be rewritten: left alone for a while, and named meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import Segmented
from kgw.errors import CorruptionError, DiskFullError, KgwError, ProcessEndedError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock
    from kgw.partitions.partition import Partition

ASIDE_S: Final = 600.0
"""How long a partition that failed is left alone."""


class _Aside(NamedTuple):
    until_s: float
    problem: str


class Asides:
    """What has failed, and until when it is left alone."""

    def __init__(
        self, clock: Clock, report_bug: Callable[[BaseException], None], what_is_not_done: str
    ) -> None:
        """`what_is_not_done` follows a partition's name: "is not compacted", or what else."""
        self._clock = clock
        self._report_bug = report_bug
        self._what_is_not_done = what_is_not_done
        self._asides: dict[Partition, _Aside] = {}

    def __len__(self) -> int:
        return len(self._asides)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not done of each partition, and why."""
        return tuple(
            f"{partition_name(partition)} {self._what_is_not_done}: {aside.problem}"
            for partition, aside in self._asides.items()
            if not partition.topic.is_deleted
        )

    def passes_over(self, partition: Partition) -> bool:
        """Whether a partition is not looked at: it is gone, empty, or left alone now."""
        log = partition.log
        if partition.topic.is_deleted or log.end_offset == log.log_start_offset:
            return True
        aside = self._asides.get(partition)
        return aside is not None and self._clock.monotonic_s() < aside.until_s

    def put(self, partition: Partition, error: Exception) -> bool:
        """Leave a partition alone from now on, and report a bug; False when its topic is gone."""
        if partition.topic.is_deleted:
            return False
        if not isinstance(error, KgwError):
            self._report_bug(error)
        self._asides = {
            one: aside for one, aside in self._asides.items() if not one.topic.is_deleted
        }
        until_s = self._clock.monotonic_s() + ASIDE_S
        self._asides[partition] = _Aside(until_s, str(error) or repr(error))
        return True

    def take_back(self, partition: Partition) -> None:
        """Forget that a partition has failed; one that has not is no error."""
        self._asides.pop(partition, None)


def failure_reason(error: Exception) -> str:
    """Return what a failure is counted as; its message says the rest."""
    match error:
        case ProcessEndedError():
            return error.kind
        case CorruptionError():
            return "damage"
        case DiskFullError():
            return "disk_full"
        case KgwError():
            return "storage"
    return "bug"


def segmented(partition: Partition) -> Segmented:
    """Return a partition's log as one that can be rewritten. Raises StorageError if it cannot."""
    if not isinstance(partition.log, Segmented):
        raise StorageError("this backend cannot compact")
    return partition.log


def partition_name(partition: Partition) -> str:
    """Return topic and number."""
    return f"{partition.topic.name}-{partition.index}"
