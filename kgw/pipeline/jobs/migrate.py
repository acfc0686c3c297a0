"""migrate: makes the plan of `kgw migrate offsets` in several processes.

Units read parts of the ledger and of the topics into files of a scratch directory; then one unit
matches each partition. Rules, plan format and errors are those of `kgw.migrate`: the same input
gives the same plan.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.migrate.mapping import Entries
from kgw.migrate.plan import complete_plan, find_target_partitions
from kgw.migrate.sources import (
    OldScheme,
    UnreadableData,
    is_export,
    ledger_files,
    read_committed_positions,
    read_position_paths,
)
from kgw.pipeline.migration.units import (
    FilePart,
    FileUnit,
    MatchUnit,
    match,
    read_damaged_topic,
    read_files,
    read_records,
    read_topic,
)
from kgw.pipeline.ranges import LEAST_PIECE, OffsetRange, cut_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kgw.migrate.plan import MigrationPlan, TargetPartition
    from kgw.migrate.sources import TopicPartition
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.jobs.running import ResultT, Runner, UnitT
    from kgw.pipeline.migration.columns import Stored
    from kgw.pipeline.migration.units import ReadEntries

    Progress = Callable[[int, str], AbstractContextManager[Callable[[int], object]]]

DEFAULT_UNIT_BYTES: Final = 32 << 20
"""How many bytes of a ledger's files one unit reads."""
MAX_UNIT_OFFSETS: Final = 1_000_000
"""How many offsets of a topic one unit reads at most."""


class OldSources(NamedTuple):
    """The sources of old entries and positions, as for `kgw migrate offsets`.

    Without `ledger_cluster` the ledger's topic is in the cluster of the planner.
    """

    ledgers: Sequence[Path] = ()
    ledger_topic: str | None = None
    ledger_cluster: Cluster | None = None
    positions: Sequence[Path] = ()
    positions_cluster: Cluster | None = None


@contextmanager
def no_progress(length: int, label: str) -> Iterator[Callable[[int], object]]:  # noqa: ARG001
    """Show no progress."""
    yield lambda _: None


class MigrationPlanner:
    """Makes a plan. All tasks of the runner must be able to access the directory `scratch`."""

    def __init__(
        self,
        cluster: Cluster,
        runner: Runner,
        scratch: Path,
        *,
        is_strict: bool = False,
        unit_bytes: int = DEFAULT_UNIT_BYTES,
        unit_offsets: int = MAX_UNIT_OFFSETS,
        progress: Progress = no_progress,
    ) -> None:
        """With `is_strict`, the first damage raises MigrationError.

        `progress` takes a number of units and the name of a step, and returns a context manager
        whose value is a function that counts finished units.
        """
        self._cluster = cluster
        self._runner = runner
        self._scratch = scratch
        self._unit_bytes = unit_bytes
        self._unit_offsets = unit_offsets
        self._progress = progress
        self._scheme = OldScheme(is_strict=is_strict)
        self._entries: dict[TopicPartition, list[Stored]] = defaultdict(list)

    def plan(self, old: OldSources, sources: dict[str, Any], created_ms: int) -> MigrationPlan:
        """Read the old scheme and the gateway's records, and return the plan.

        Raises MigrationError, PipelineError, ClientError.
        """
        scheme = self._scheme
        self._read_files(old.ledgers)
        read_position_paths(scheme, old.positions)
        if old.ledger_topic is not None:
            self._read_topic(old.ledger_cluster or self._cluster, old.ledger_topic)
        if old.positions_cluster is not None:
            with old.positions_cluster.client() as wire:
                wire.call(read_committed_positions(scheme, wire.client))
        # The entries themselves are in files; only the keys are needed, to know which partitions
        # have entries.
        scheme.entries = {key: Entries() for key in self._entries}
        scheme.require_entries()
        with self._cluster.client() as wire:
            places = wire.call(find_target_partitions(wire.client, scheme))
        records = self._read_records(places.found.values())
        units = [
            MatchUnit(
                place,
                tuple(self._entries.get(key, ())),
                tuple(records[key]),
                scheme.positions.get(key, {}),
            )
            for key, place in places.found.items()
        ]
        found = self._in_order("Partitions", units, match)
        return complete_plan(scheme, places, (one for _, one in found), sources, created_ms)

    def _read_files(self, ledgers: Sequence[Path]) -> None:
        lines = 0
        units = file_units(ledger_files(ledgers), self._unit_bytes)
        for unit, read in self._in_order("Ledger", units, partial(read_files, self._scratch)):
            self._take(read)
            for part, damage in zip(unit.parts, read.damage, strict=True):
                first = damage.first
                if part.is_export:
                    # Line numbers continue from part to part of one file.
                    lines = 0 if part.start == 0 else lines
                    first = [
                        UnreadableData(f"{part.path}:{lines + int(place)}", reason)
                        for place, reason in first
                    ]
                    lines += damage.lines
                self._scheme.take_damage(first, damage.total)

    def _read_topic(self, cluster: Cluster, topic: str) -> None:
        with cluster.client() as wire:
            described = wire.call(wire.client.topic(topic))
            bounds = wire.bounds(topic, [one.partition for one in described.partitions])
        whole = {
            partition: OffsetRange(topic, partition, *ends, described.topic_id)
            for partition, ends in sorted(bounds.items())
        }
        units = self._cut(whole.values())
        work = partial(read_topic, self._scratch, cluster)
        read: dict[int, list[ReadEntries | None]] = defaultdict(list)
        for unit, found in self._in_order("Ledger topic", units, work):
            read[unit.partition].append(found)
        # To find the end of the damage, and count it once, read the whole partition in one unit.
        damaged = [whole[partition] for partition, found in read.items() if None in found]
        again = partial(read_damaged_topic, self._scratch, cluster)
        for unit, mended in self._in_order("Ledger topic, again", damaged, again):
            read[unit.partition] = [mended]
        for _, results in sorted(read.items()):
            for one in filter(None, results):
                self._take(one)
                for damage in one.damage:
                    self._scheme.take_damage(damage.first, damage.total)

    def _read_records(
        self, places: Iterable[TargetPartition]
    ) -> dict[TopicPartition, list[Stored]]:
        ranges = [
            OffsetRange(topic, partition, start, end, topic_id)
            for topic, partition, topic_id, start, end in places
        ]
        records: dict[TopicPartition, list[Stored]] = defaultdict(list)
        work = partial(read_records, self._scratch, self._cluster)
        for unit, stored in self._in_order("Records", self._cut(ranges), work):
            records[unit.topic, unit.partition].append(stored)
        return records

    def _take(self, read: ReadEntries) -> None:
        for key, stored in read.entries.items():
            self._entries[key].append(stored)

    def _cut(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        pieces = self._runner.parallelism
        return cut_ranges(ranges, pieces=pieces, least=LEAST_PIECE, most=self._unit_offsets)

    def _in_order(
        self, step: str, units: Sequence[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Yield the results of units in the order of the units."""
        if not units:
            return
        number_of = {id(unit): number for number, unit in enumerate(units)}
        done: dict[int, ResultT] = {}
        due = 0
        with self._progress(len(units), step) as advance:
            for unit, result in self._runner.run(units, work):
                advance(1)
                done[number_of[id(unit)]] = result
                while due in done:
                    yield units[due], done.pop(due)
                    due += 1


def file_units(paths: Iterable[Path], unit_bytes: int) -> list[FileUnit]:
    """Return units of about `unit_bytes`; only export files are cut into parts, log files are not.

    Raises MigrationError for a file that cannot be opened, or is neither an export nor a log file.
    """
    parts = []
    for path in paths:
        is_lines = is_export(path)
        size = path.stat().st_size
        step = unit_bytes if is_lines else max(size, 1)
        parts += [
            FilePart(path, start, min(start + step, size), is_lines)
            for start in range(0, size, step)
        ]
    units: list[FileUnit] = []
    together: list[FilePart] = []
    size = 0
    for part in parts:
        together.append(part)
        size += part.stop - part.start
        if size >= unit_bytes:
            units.append(FileUnit(tuple(together)))
            together, size = [], 0
    if together:
        units.append(FileUnit(tuple(together)))
    return units
