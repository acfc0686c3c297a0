"""What kgw.cold.compression saves, and what it costs: processor time for batches of log lines.

Batches of lines as a web service logs them, in each codec as producers send them. For each level of
zstd: the share of bytes that is saved, and the processor's seconds for a gigabyte of segments: of
recompressing, and of the comparison before the exchange. Checksums and files are not in it.

    scripts/bench --micro cold [--lines N] [--mb N] [--levels N...]
"""

from __future__ import annotations

import argparse
import json
import time
from random import Random

from kgw.records.batch import Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.cold import find_difference, to_zstd

PATHS = ("/orders", "/orders/%d", "/users/%d/cart", "/health", "/static/app.%d.js", "/search?q=%d")
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36",
    "curl/8.5.0",
    "kube-probe/1.29",
)
START_MS = 1_700_000_000_000
GB = 1e9


def line(random: Random, time_ms: int) -> bytes:
    """Return a line of an access log in JSON."""
    path = random.choice(PATHS)
    fields = {
        "time": time_ms,
        "level": random.choices(("INFO", "WARN", "ERROR"), (95, 4, 1))[0],
        "host": f"web-{random.randrange(12):02d}",
        "client": ".".join(str(random.randrange(256)) for _ in range(4)),
        "request": path % random.randrange(100_000) if "%" in path else path,
        "status": random.choices((200, 304, 404, 500), (90, 6, 3, 1))[0],
        "bytes": random.randrange(200, 60_000),
        "took_ms": round(random.expovariate(1 / 20), 2),
        "trace": f"{random.getrandbits(64):016x}",
        "agent": random.choice(AGENTS),
    }
    return json.dumps(fields).encode()


def build(codec: Compression, lines: int, size_bytes: int) -> list[RecordBatch]:
    """Return batches of so many lines each that have so many bytes together without codec."""
    random = Random(5)
    batches: list[RecordBatch] = []
    while size_bytes > 0:
        builder = BatchBuilder(compression=codec)
        for number in range(lines):
            value = line(random, START_MS + number)
            builder.add(value=value, timestamp_ms=START_MS + number)
            size_bytes -= len(value)
        batches.append(read_batch(builder.build()))
    return batches


def measure(codec: Compression, lines: int, size_bytes: int, level: int) -> dict[str, object]:
    """Return what a level makes of a codec."""
    batches = build(codec, lines, size_bytes)
    before = sum(batch.size_bytes for batch in batches)
    started_s = time.process_time()
    cold = [to_zstd(batch, level) for batch in batches]
    made_s = time.process_time()
    for batch, other in zip(batches, cold, strict=True):
        if find_difference(batch, other) is not None:
            raise AssertionError(f"{other} is not {batch}")
    compared_s = time.process_time()
    after = sum(batch.size_bytes for batch in cold)
    return {
        "codec": codec.name.lower(),
        "lines": lines,
        "level": level,
        "bytes_before": before,
        "bytes_after": after,
        "saved_percent": round(100 * (1 - after / before), 1),
        "recompressing_s_per_gb": round((made_s - started_s) * GB / before, 1),
        "comparing_s_per_gb": round((compared_s - made_s) * GB / before, 1),
    }


def main() -> None:
    """Print a line of JSON for each codec and level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, nargs="*", default=[10, 100, 1_000])
    parser.add_argument("--mb", type=float, default=8)
    parser.add_argument("--levels", type=int, nargs="*", default=[3, 6, 9, 12, 19])
    arguments = parser.parse_args()
    for lines in arguments.lines:
        for codec in Compression:
            if codec is Compression.ZSTD:
                continue
            for level in arguments.levels:
                found = measure(codec, lines, int(arguments.mb * 1e6), level)
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
