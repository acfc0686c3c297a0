"""How long a gateway takes to be ready after a kill -9 over a gigabyte of data in 16 KB batches.

Three starts, each after a kill: with the checkpoints that the defaults had made, with every
checkpoint, index and snapshot deleted, and with the side files deleted as well. Each is the time
from the start of the process to its `ready` line; the records are counted afterwards.

    scripts/bench --micro recovery [--megabytes N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

from bench.micro.filled_topic import BATCH_BYTES, count_records, create_topic, fill
from kgw.testing.process import GatewayProcess

PARTITIONS = 4
TOPIC = "bench-recovery"


def forget(data_dir: Path, *suffixes: str) -> None:
    """Delete every checkpoint row and the files with these suffixes."""
    connection = sqlite3.connect(data_dir / "meta.sqlite")
    with connection:
        connection.execute("DELETE FROM state_entry WHERE kind = 'checkpoint'")
    connection.close()
    for path in (data_dir / "partitions").glob("*/*"):
        if path.suffix in suffixes:
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-recovery-", dir=arguments.directory))
    result: dict[str, object] = {"megabytes": arguments.megabytes}
    try:
        gateway = GatewayProcess(base / "data").start()
        result["empty_s"] = round(gateway.start_s, 3)
        create_topic(gateway, TOPIC, PARTITIONS)
        count = (arguments.megabytes << 20) // BATCH_BYTES
        began = time.perf_counter()
        fill(gateway, TOPIC, PARTITIONS, count)
        result["fill_s"] = round(time.perf_counter() - began, 1)
        gateway.kill()
        for name, suffixes in (
            ("default_checkpoints_s", None),
            ("no_checkpoints_or_indexes_s", (".index", ".timeindex", ".state")),
            ("no_side_files_either_s", (".index", ".timeindex", ".state", ".checksums")),
        ):
            if suffixes is not None:
                forget(gateway.data_dir, *suffixes)
            gateway.start(timeout_s=120)
            result[name] = round(gateway.start_s, 3)
            found = count_records(gateway, TOPIC, PARTITIONS)
            if found != count:
                raise RuntimeError(f"{name}: {found} of {count} records are there")
            gateway.kill()
        print(json.dumps(result))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
