"""What `merge` and `compact` cost: their units, one after the other in this process.

Records have a key of 11 bytes, of so many different ones, chosen at random, and a JSON value; they
are in files of a temporary directory, in the page cache. Millions of records a second of wall time
and of processor time, for all records that are there before: the median of several runs.

    keys       compact's first pass: which rows fall
    rewrite    its second pass: files without them
    compact    both, with their commits
    again      compact when a tenth is new: files that are clean are only looked through
    merge      files of a tenth of the target become files of the target

`kept` is the share of the records that stay, `peak_mb` the most memory of the process, with the
records that were archived. `scripts/bench --spark` measures both as jobs.

    scripts/bench --micro maintain [--records N] [--keys N] [--value-bytes N] [--key-memory BYTES]
                                   [--runs N]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa

from kgw.pipeline.archive.archived_topics import ArchivedTopic
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile
from kgw.pipeline.archive.units import Sizes, Unit, write_unit
from kgw.pipeline.arrow.columns import SCHEMA
from kgw.pipeline.arrow.decode import Decoded
from kgw.pipeline.jobs import compact, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

TOPIC_ID = UUID(int=1)
NOW_MS = 1_700_000_000_000
PART_ROWS = 65_536
UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")


class InTurn:
    """Does the work of units, one after the other; sums up the time of each kind of work."""

    parallelism = 1

    def __init__(self) -> None:
        self.took_s: dict[str, float] = {}

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do it."""
        assert isinstance(work, partial)
        for unit in units:
            began = time.perf_counter()
            made = work(unit)
            name = work.func.__name__
            self.took_s[name] = self.took_s.get(name, 0.0) + time.perf_counter() - began
            yield unit, made


def make_parts(first: int, count: int, keys: int, value_bytes: int) -> Iterator[Decoded]:
    """Yield parts from an offset on."""
    random = Random(first)
    numbers = np.random.default_rng(first)
    words = [random.randbytes(random.randint(1, 5)).hex() for _ in range(2_000)]
    values = [
        json.dumps({"id": number, "text": " ".join(random.choices(words, k=value_bytes // 4))})
        .encode()[: value_bytes - 2]
        .ljust(value_bytes, b"}")
        for number in range(PART_ROWS)
    ]
    for at in range(first, first + count, PART_ROWS):
        size = min(PART_ROWS, first + count - at)
        arrays = [
            pa.array(np.arange(at, at + size)),
            pa.array(np.arange(NOW_MS + at, NOW_MS + at + size)),
            pa.array(np.zeros(size, np.int32)),
            pa.array(np.zeros(size, np.int32)),
            pa.array([b"key-%07d" % one for one in numbers.integers(0, keys, size).tolist()]),
            pa.array(values[:size]),
            pa.nulls(size, SCHEMA.field("headers").type),
        ]
        yield Decoded(
            pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), at + size, [], is_partial=False
        )


def add(life: ArchivedTopic, parts: Sequence[Decoded], sizes: Sizes) -> None:
    """Archive parts, behind what is there."""
    snapshot = life.log.read()
    known = snapshot.coverage.partitions.get(0)
    first = 0 if known is None else known.next
    unit = Unit(TOPIC_ID, 0, first, parts[-1].next_offset)
    pieces = write_unit(life.generation, unit, parts, sizes=sizes)
    entry = CommitLogEntry(uuid4(), TOPIC_ID, pieces, starts={0: 0} if known is None else {})
    life.log.commit(entry, planned_at=snapshot.version)


def timed(records: int, name: str, work: Callable[[], None], figures: dict[str, float]) -> None:
    """Do something, and note what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    figures[name] = records / (time.perf_counter() - wall) / 1e6
    figures[f"{name}_processor"] = records / (time.process_time() - processor) / 1e6


def rows_of(life: ArchivedTopic) -> int:
    """Return how many records there are."""
    pieces = life.log.read().coverage.partitions[0].pieces
    return sum(one.rows for one in pieces if isinstance(one, DataFile))


def measure(
    given: argparse.Namespace, parts: list[Decoded], more: list[Decoded]
) -> dict[str, float]:
    """Return the figures of one run."""
    records = given.records
    runner = InTurn()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="kgw-maintain-") as name:
        life = ArchivedTopic(Path(name), "topic", TOPIC_ID)
        add(life, parts, Sizes())
        settings = compact.Settings(life, 0, given.key_memory, Sizes())

        def compacted() -> None:
            dues = compact.plan(life.log.read().coverage, min_dirty_ratio=0.0)
            compact.run(settings, dues, runner, now_ms=lambda: NOW_MS)

        timed(records, "compact", compacted, figures)
        figures["keys"] = records / runner.took_s["find_fallen"] / 1e6
        figures["rewrite"] = records / runner.took_s["rewrite"] / 1e6
        figures["kept"] = rows_of(life) / records
        add(life, more, Sizes())
        timed(rows_of(life), "again", compacted, figures)
    with tempfile.TemporaryDirectory(prefix="kgw-maintain-") as name:
        life = ArchivedTopic(Path(name), "topic", TOPIC_ID)
        add(life, parts, Sizes(file_bytes=Sizes().file_bytes // 10))

        def merged() -> None:
            groups = merge.plan_life(life, Sizes().file_bytes)
            merge.run(life, groups, runner, sizes=Sizes(), now_ms=lambda: NOW_MS)

        timed(records, "merge", merged, figures)
        if rows_of(life) != records:
            raise ValueError(f"{rows_of(life)} records of {records}")
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=2_900_000)
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--key-memory", type=int, default=512 << 20)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    parts = list(make_parts(0, given.records, given.keys, given.value_bytes))
    more = list(make_parts(given.records, given.records // 10, given.keys, given.value_bytes))
    runs = [measure(given, parts, more) for _ in range(given.runs)]
    medians = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
