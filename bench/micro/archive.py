"""What an archive's files cost: writing a unit, reading it back, and each level of an audit.

Records with keys of 12 bytes and values of words, in parts as large as a Fetch answer, written to a
temporary directory. Millions of records a second of wall time, in one process: the median of
several runs. The files are in the page cache when they are read.

    write      parts of all columns to durable files, with their checksums
    read       all columns of the files
    level 0    the commit log alone, in milliseconds
    level 1    the same and the footers, in milliseconds
    level 2    the same, the checksums and every offset

    scripts/bench --micro archive [--records N] [--value-bytes N] [--runs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pyarrow as pa

from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.units import Unit, write_unit
from kgw.pipeline.arrow.columns import SCHEMA
from kgw.pipeline.arrow.decode import Decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC_ID = UUID(int=1)
NOW_MS = 1_700_000_000_000
PART_BYTES = 16_000_000


def make_parts(records: int, value_bytes: int) -> Iterator[Decoded]:
    """Yield parts from offset 0 on; the values of one part are those of all."""
    random = Random(1)
    words = [random.randbytes(random.randint(1, 5)).hex() for _ in range(2_000)]
    count = min(records, PART_BYTES // (value_bytes + 12))
    values = [
        " ".join(random.choices(words, k=value_bytes // 4))[:value_bytes].encode()
        for _ in range(count)
    ]
    for first in range(0, records, count):
        end = min(first + count, records)
        size = end - first
        arrays = [
            pa.array(range(first, end), pa.int64()),
            pa.array(range(NOW_MS + first, NOW_MS + end), pa.int64()),
            pa.array([0] * size, pa.int32()),
            pa.array([0] * size, pa.int32()),
            pa.array([b"key-%08d" % (offset % 99_991) for offset in range(first, end)]),
            pa.array(values[:size]),
            pa.nulls(size, SCHEMA.field("headers").type),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        yield Decoded(batch, end, [], is_partial=False)


def measure(records: int, value_bytes: int) -> dict[str, float]:
    """Return the figures of one run."""
    parts = list(make_parts(records, value_bytes))
    with tempfile.TemporaryDirectory(prefix="kgw-archive-") as name:
        generation = Path(name)
        began = time.perf_counter()
        pieces = write_unit(generation, Unit(TOPIC_ID, 0, 0, records), parts)
        figures = {"write": records / (time.perf_counter() - began) / 1e6}
        entry = CommitLogEntry(uuid4(), TOPIC_ID, pieces, starts={0: 0})
        coverage = CommitLog(generation, TOPIC_ID).commit(entry, planned_at=0).coverage
        began = time.perf_counter()
        read = sum(map(len, read_range(generation, coverage.partitions[0], 0, records)))
        figures["read"] = records / (time.perf_counter() - began) / 1e6
        if read != records:
            raise ValueError(f"{read} records of {records}")
        for level in range(3):
            began = time.perf_counter()
            if findings := list(audit(generation, TOPIC_ID, level=level)):
                raise ValueError(f"found {findings}")
            took = time.perf_counter() - began
            figures[f"level {level}"] = records / took / 1e6 if level > 1 else took * 1e3
        raw = sum(part.batch.nbytes for part in parts)
        packed = sum(piece.bytes for piece in pieces if isinstance(piece, DataFile))
        figures["packed"] = raw / packed
        figures["files"] = len(pieces)
    return figures


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=222)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    runs = [measure(arguments.records, arguments.value_bytes) for _ in range(arguments.runs)]
    medians = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
