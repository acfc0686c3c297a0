"""What compression.type and LogAppendTime cost: processor time of one batch before it is appended.

Batches of JSON records of 1 KB, with the words that such records repeat. For each codec: a batch
that comes without compression and is compressed, one that comes in the codec and is stored without,
and what of it is reading the records. Medians of processor time of the thread, in microseconds, so
that neighbours on the machine count less.

    scripts/bench --micro recompression [--records N...] [--runs N] [--levels]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kgw.partitions.append.appending import prepare_records
from kgw.partitions.append.validation import BatchRules, record_rules, validate_batch
from kgw.records.batch import Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_700_000_000_000
LEVELS = {
    Compression.NONE: (None,),
    Compression.GZIP: (-1, 1, 9),
    Compression.SNAPPY: (None,),
    Compression.LZ4: (9, 3, 12),
    Compression.ZSTD: (3, 1, 9, 19, 22),
}
"""As compression.*.level has them, Kafka's default first."""
LARGEST = 1 << 30


def build(records: int, compression: Compression) -> bytes:
    """Return a batch of records of 1 KB."""
    random = Random(7)
    builder = BatchBuilder(compression=compression)
    for index in range(records):
        fields = {
            f"field_{number}": random.choice(("alpha", "beta", "gamma", random.getrandbits(40)))
            for number in range(37)
        }
        value = json.dumps({"id": index, **fields}).encode()[:1000].ljust(1000)
        builder.add(key=b"key%d" % random.getrandbits(16), value=value, timestamp_ms=NOW_MS)
    return bytes(builder.build())


def median_us(content: bytes, work: Callable[[RecordBatch], object], runs: int) -> float:
    """Return the median time of some work on a batch that has just come."""
    times = []
    for _ in range(runs):
        batch = read_batch(bytearray(content))
        started = time.thread_time()
        work(batch)
        times.append(time.thread_time() - started)
    return round(statistics.median(times) * 1e6, 1)


def _prepare(rules: BatchRules, batch: RecordBatch) -> None:
    needed = record_rules(rules, NOW_MS, batch.attributes)
    if needed is not None:
        prepare_records(batch, needed, DEFAULT_LIMITS)


def measure(records: int, runs: int, *, has_levels: bool) -> dict[str, object]:
    """Return what a batch of so many records costs."""
    plain = build(records, Compression.NONE)
    header = BatchRules(max_message_bytes=LARGEST)
    results: dict[str, object] = {
        "bytes": len(plain),
        "header_checks_us": median_us(plain, lambda one: validate_batch(one, header, NOW_MS), runs),
        "log_append_time_us": median_us(plain, lambda one: one.set_log_append_time(NOW_MS), runs),
    }
    for codec, levels in LEVELS.items():
        packed = build(records, codec)
        checked = header._replace(validates_records=True)
        results[codec.name.lower()] = of_codec = {
            "bytes": len(packed),
            "records_checked_us": median_us(packed, partial(_prepare, checked), runs),
            "log_append_time_us": median_us(
                packed, lambda one: one.set_log_append_time(NOW_MS), runs
            ),
        }
        if codec is Compression.NONE:
            continue
        opened = header._replace(compression=Compression.NONE)
        of_codec["to_uncompressed_us"] = median_us(packed, partial(_prepare, opened), runs)
        for level in levels if has_levels else levels[:1]:
            rules = header._replace(compression=codec, compression_level=level)
            name = "from_uncompressed" if level is None else f"from_uncompressed_level_{level}"
            of_codec[f"{name}_us"] = median_us(plain, partial(_prepare, rules), runs)
            stamped = rules._replace(uses_log_append_time=True)
            of_codec[f"{name}_log_append_time_us"] = median_us(
                plain, partial(_prepare, stamped), runs
            )
            batch = read_batch(bytearray(plain))
            _prepare(rules, batch)
            of_codec[f"{name}_bytes"] = batch.size_bytes
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[1, 3, 16, 100, 900])
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--levels", action="store_true", help="more than each codec's default")
    arguments = parser.parse_args()
    results = {
        f"{records} records": measure(records, arguments.runs, has_levels=arguments.levels)
        for records in arguments.records
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
