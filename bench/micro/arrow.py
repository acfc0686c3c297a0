"""What record batches to Arrow and back cost, beside a loop over records and a compiled parser.

One answer of some megabytes in memory, for each size of value, codec and count of records in a
batch. Values are lines of words, so that codecs find something; keys have 12 bytes. Millions of
records a second, of the processor time of this thread: the median of several runs.

    decode     bytes to all columns but headers, with the check of the CRC
    some       the same with columns offset and value alone, and no check of the CRC
    loop       kgw.records.reader and lists, then Arrow, without the check
    compiled   aiokafka's extension and lists, then Arrow, without the check
    encode     columns to batches

    scripts/bench --micro arrow [--megabytes N] [--runs N] [--only NAME...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kgw.pipeline.arrow.columns import ALL_COLUMNS, SCHEMA
from kgw.pipeline.arrow.decode import decode_batches
from kgw.pipeline.arrow.encode import encode_batches
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from collections.abc import Callable

    Columns = tuple[list[Any], list[Any], list[Any], list[Any]]

NOW_MS = 1_700_000_000_000
VALUE_BYTES = (100, 222, 1_000)
CODECS = (Compression.NONE, Compression.ZSTD, Compression.LZ4)
BATCHES = (None, 20, 1)
"""Records in a batch; by default as many as fit into 1 MB, which is what large producers send."""
COLUMNS = ALL_COLUMNS - {"headers"}
LISTED = [SCHEMA.field(name) for name in ("offset", "timestamp_ms", "key", "value")]


def main() -> None:
    """Print a line of JSON for each kind of answer."""
    arguments = parse_arguments()
    for value_bytes in VALUE_BYTES:
        for codec in CODECS:
            for count in BATCHES:
                if count is not None and codec is not Compression.NONE and value_bytes != 222:
                    continue
                rows = make_rows(value_bytes, arguments.megabytes << 20)
                data = make_answer(rows, codec, count)
                calls: dict[str, Callable[[], object]] = {
                    "decode": partial(decode_batches, data, first_offset=0, columns=COLUMNS),
                    "some": partial(
                        decode_batches,
                        data,
                        first_offset=0,
                        columns={"offset", "value"},
                        check_crcs=False,
                    ),
                    "loop": partial(loop, data),
                    "compiled": partial(compiled, data),
                    "encode": partial(encode, rows, codec, count),
                }
                figures = {
                    name: round(rows.num_rows / measure(call, arguments.runs) / 1e6, 2)
                    for name, call in calls.items()
                    if not arguments.only or name in arguments.only
                }
                kind = {"value_bytes": value_bytes, "codec": codec.name.lower(), "batch": count}
                print(json.dumps(kind | figures), flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[])
    return parser.parse_args()


def make_rows(value_bytes: int, total_bytes: int) -> pa.RecordBatch:
    """Return lines of words of about the given size, each a bit longer or shorter."""
    random = Random(17)
    words = [bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(400)]
    text = b" ".join(random.choices(words, k=60_000))
    count = total_bytes // value_bytes
    values = []
    for _ in range(count):
        start = random.randrange(len(text) - 2 * value_bytes)
        values.append(text[start : start + value_bytes + random.randint(-8, 8)])
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"key-%08d" % number for number in range(count)], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([NOW_MS + number // 7 for number in range(count)], pa.int64()),
        ],
        names=["key", "value", "timestamp_ms"],
    )


def encode(rows: pa.RecordBatch, codec: Compression, count: int | None) -> list[Any]:
    """Return batches of about 1 MB, or of so many records."""
    if count is None:
        return encode_batches(rows, compression=codec, max_batch_bytes=1 << 20)
    most_bytes = count * (rows.nbytes // rows.num_rows + 18)
    return encode_batches(rows, compression=codec, max_batch_bytes=max(1, most_bytes))


def make_answer(rows: pa.RecordBatch, codec: Compression, count: int | None) -> bytes:
    """Return the rows as a partition's log has them."""
    log = bytearray()
    offset = 0
    # What one call is given is one batch, when their counts are to be exact.
    size = count or rows.num_rows
    for start in range(0, rows.num_rows, size):
        for one in encode_batches(
            rows.slice(start, size), compression=codec, max_batch_bytes=1 << 20
        ):
            batch = read_batch(one.data)
            batch.assign(offset, 0)
            offset = batch.next_offset
            log += batch.buffer
    return bytes(log)


def loop(data: bytes) -> pa.RecordBatch:
    """Decode as one does without numpy."""
    columns: Columns = ([], [], [], [])
    for batch in split_batches(data):
        records = list(read_records(batch))
        columns[0].extend([one.offset for one in records])
        columns[1].extend([one.timestamp_ms for one in records])
        columns[2].extend([one.key for one in records])
        columns[3].extend([one.value for one in records])
    return listed(columns)


def compiled(data: bytes) -> pa.RecordBatch:
    """Decode with aiokafka's extension."""
    from aiokafka.record.memory_records import MemoryRecords

    columns: Columns = ([], [], [], [])
    found = MemoryRecords(data)
    while found.has_next():
        records = list(found.next_batch())
        columns[0].extend([one.offset for one in records])
        columns[1].extend([one.timestamp for one in records])
        columns[2].extend([one.key for one in records])
        columns[3].extend([one.value for one in records])
    return listed(columns)


def listed(columns: Columns) -> pa.RecordBatch:
    """Return lists as columns."""
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, LISTED, strict=True)],
        schema=pa.schema(LISTED),
    )


def measure(call: Callable[[], object], runs: int) -> float:
    """Return the median of processor seconds."""
    call()
    taken = []
    for _ in range(runs):
        started = time.thread_time()
        call()
        taken.append(time.thread_time() - started)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
