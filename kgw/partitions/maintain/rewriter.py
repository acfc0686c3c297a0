"""The loop that compaction and recompression share: it rewrites one partition after the other.

`compactor` and `recompressor` are the two jobs. A job selects partitions, and rewrites the segments
of one. If a rewrite fails, the partition is listed among the problems and skipped for a while;
other partitions are still rewritten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

from kgw.backend.base import Segmented
from kgw.errors import CorruptionError, DiskFullError, KgwError, ProcessEndedError, StorageError
from kgw.partitions.maintain.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.metrics import Metrics
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.partitions.topics.topic import Topic

PlanT = TypeVar("PlanT")

RETRY_S: Final = 600.0
"""After a failure, a partition is skipped for this time."""


class _Failure(NamedTuple):
    retry_at_s: float
    problem: str


class Rewriter(ABC, Generic[PlanT]):
    """Finds the partitions that a job has to rewrite, and rewrites one on request."""

    not_done: ClassVar[str]
    """Follows the partition's name in the text of a problem, such as "is not compacted"."""

    def __init__(
        self,
        catalog: TopicCatalog,
        clock: Clock,
        metrics: Metrics,
        config: Callable[[], Config],
        report_bug: Callable[[BaseException], None],
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._metrics = metrics
        self._config = config
        self._report_bug = report_bug
        self._failures: dict[Partition, _Failure] = {}

    # --- the rules of a job ----------------------------------------------------------------------

    @abstractmethod
    def _covers(self, topic: Topic) -> bool:
        """Return whether the settings of a topic require this job."""

    @abstractmethod
    async def _plan(self, partition: Partition, log: Segmented, now_ms: int) -> PlanT | None:
        """Return how a partition with records would be rewritten now; None if not at all.

        Raises KgwError.
        """

    def _is_due(self, partition: Partition, plan: PlanT) -> bool:
        """Return whether to rewrite the partition now; some jobs plan in advance."""
        return True

    def _select(self, planned: Sequence[tuple[Partition, PlanT]]) -> list[Partition]:
        """Return the planned partitions to rewrite now, in order."""
        return [partition for partition, plan in planned if self._is_due(partition, plan)]

    @abstractmethod
    async def _rewrite(self, partition: Partition, plan: PlanT, now_ms: int) -> None:
        """Rewrite a partition, and report it.

        Any exception counts as a failure of this partition.
        """

    @abstractmethod
    def _show_failed(self, partitions: int) -> None:
        """Show in a metric how many partitions are skipped after a failure."""

    @abstractmethod
    def _report_failure(self, partition: Partition, error: Exception) -> None:
        """Count and log that a partition could not be rewritten, and when the next attempt is."""

    # --- the loop --------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[str, ...]:
        """The partitions that are skipped, and why they could not be rewritten."""
        return tuple(
            f"{partition_name(partition)} {self.not_done}: {failure.problem}"
            for partition, failure in self._failures.items()
            if not partition.is_retired
        )

    async def find_due(self, now_ms: int) -> list[Partition]:
        """Return the partitions to rewrite now, the most urgent one first."""
        planned: list[tuple[Partition, PlanT]] = []
        throttle = Throttle(self._clock)
        for topic in list(self._catalog.topics.values()):
            if not self._covers(topic):
                continue
            for partition in topic.partitions.values():
                plan = await self._look_at(partition, now_ms)
                if plan is not None:
                    planned.append((partition, plan))
                await throttle.step()
        return self._select(planned)

    async def run(self, partition: Partition, now_ms: int) -> None:
        """Rewrite a partition if it still needs it. After a failure, skip it for a while."""
        plan = await self._look_at(partition, now_ms)
        if plan is None or not self._is_due(partition, plan):
            return
        try:
            await self._rewrite(partition, plan, now_ms)
        except Exception as error:  # noqa: BLE001 - the other partitions are rewritten all the same
            self._leave_alone(partition, error)
        else:
            self._failures.pop(partition, None)
            self._show_failed(len(self._failures))

    async def _look_at(self, partition: Partition, now_ms: int) -> PlanT | None:
        """Plan for a partition. None if it is retired, empty or skipped, or if planning fails."""
        log = partition.log
        if partition.is_retired or log.end_offset == log.log_start_offset:
            return None
        failure = self._failures.get(partition)
        if failure is not None and self._clock.monotonic_s() < failure.retry_at_s:
            return None
        try:
            return await self._plan(partition, segmented(partition), now_ms)
        except KgwError as error:
            self._leave_alone(partition, error)
            return None

    def _leave_alone(self, partition: Partition, error: Exception) -> None:
        """Skip a partition from now on, unless this node no longer serves it."""
        if partition.is_retired:
            return
        if not isinstance(error, KgwError):
            self._report_bug(error)
        self._failures = {
            one: failure for one, failure in self._failures.items() if not one.is_retired
        }
        retry_at_s = self._clock.monotonic_s() + RETRY_S
        self._failures[partition] = _Failure(retry_at_s, str(error) or repr(error))
        self._show_failed(len(self._failures))
        self._report_failure(partition, error)


def failure_reason(error: Exception) -> str:
    """Return the label under which a failure is counted. The error's message has the details."""
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
