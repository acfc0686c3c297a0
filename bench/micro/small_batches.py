"""What it takes to recover a log of the smallest batches there are, without a checkpoint.

The segments are written past the gateway, as if they had been appended: one record without key and
value in a batch, 68 bytes each. Their side files, indexes and checkpoints are missing, so that the
start reads every batch, makes the side files and goes through them once more for the producers.
With --stop the gateway is stopped in order, too: it writes Kafka's indexes then.
With --limit-megabytes the gateway runs in a control group (v1 or v2; needs root) that allows it so
much memory, page cache included.

    scripts/bench --micro small_batches [--megabytes N] [--limit-megabytes N] [--stop]
        [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.micro.filled_topic import count_records, create_topic
from bench.micro.recovery import forget
from kgw.testing.process import SERVE, GatewayProcess
from tests.backend.embedded.recover.small_batches import SMALL_BATCH_BYTES, write_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "bench-small-batches"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def limited(command: Sequence[str], limit_bytes: int) -> tuple[Path, list[str]]:
    """Return a new control group, and a command that runs another one in it."""
    group = _CONTROL_GROUPS / "memory"
    name = "memory.limit_in_bytes"
    if not group.is_dir():
        group, name = _CONTROL_GROUPS, "memory.max"
    group /= f"kgw-bench-{os.getpid()}"
    group.mkdir()
    (group / name).write_text(str(limit_bytes))
    enter = 'echo $$ > "$0" && exec "$@"'
    return group, ["sh", "-c", enter, str(group / "cgroup.procs"), *command]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--limit-megabytes", type=int, default=0)
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--timeout-s", type=float, default=3600)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-small-batches-", dir=arguments.directory))
    result: dict[str, object] = {"megabytes": arguments.megabytes}
    command: Sequence[str] = SERVE
    group: Path | None = None
    gateway = GatewayProcess(base / "data").start()
    try:
        create_topic(gateway, TOPIC, 1)
        result["empty_peak_mb"] = gateway.usage().peak_bytes >> 20
        gateway.kill()
        (directory,) = (gateway.data_dir / "partitions").glob("*-0")
        for path in directory.glob("0*"):
            path.unlink()
        result["batches"] = count = (arguments.megabytes << 20) // SMALL_BATCH_BYTES
        write_segments(directory, count)
        forget(gateway.data_dir)
        os.sync()
        if arguments.limit_megabytes:
            result["limit_megabytes"] = arguments.limit_megabytes
            group, command = limited(SERVE, arguments.limit_megabytes << 20)
        gateway = GatewayProcess(base / "data", command=command)
        gateway.start(timeout_s=arguments.timeout_s)
        result["start_s"] = round(gateway.start_s, 2)
        result["peak_mb"] = gateway.usage().peak_bytes >> 20
        found = count_records(gateway, TOPIC, 1)
        if found != count:
            raise RuntimeError(f"{found} of {count} records are there")
        result["start_cpu_s"] = round(gateway.usage().cpu_s, 1)
        if arguments.stop:
            began = time.perf_counter()
            result["stop_status"] = gateway.stop(timeout_s=arguments.timeout_s)
            result["stop_s"] = round(time.perf_counter() - began, 2)
        print(json.dumps(result))
    finally:
        if gateway.running:
            gateway.kill()
        if group is not None:
            group.rmdir()
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
