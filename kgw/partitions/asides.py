"""Partitions whose segments could not be rewritten: left alone for a while, and named meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import Segmented
from kgw.errors import CorruptionError, DiskFullError, KgwError, ProcessEndedError, StorageError

if TYPE_CHECKING:
    from kgw.clock import Clock
    from kgw.partitions.partition import Partition

ASIDE_S: Final = 600.0
"""How long a partition that failed is left alone."""


class _Aside(NamedTuple):
    until_s: float
    problem: str


class Asides:
    """What has failed, and until when it is left alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asides: dict[Partition, _Aside] = {}

    def __len__(self) -> int:
        return len(self._asides)

    def problems(self, what_is_not_done: str) -> tuple[str, ...]:
        """Say of each partition that it "is not compacted", or what else, and why."""
        return tuple(
            f"{partition_name(partition)} {what_is_not_done}: {aside.problem}"
            for partition, aside in self._asides.items()
            if not partition.topic.is_deleted
        )

    def has(self, partition: Partition) -> bool:
        """Whether a partition is left alone now."""
        aside = self._asides.get(partition)
        return aside is not None and self._clock.monotonic_s() < aside.until_s

    def put(self, partition: Partition, error: Exception) -> None:
        """Leave a partition alone from now on."""
        self._asides = {
            one: aside for one, aside in self._asides.items() if not one.topic.is_deleted
        }
        until_s = self._clock.monotonic_s() + ASIDE_S
        self._asides[partition] = _Aside(until_s, str(error) or repr(error))

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
