"""What a commit of the state store costs: SQLite, PostgreSQL, MariaDB, and memory beside them.

The servers are those of the tests, started for this with their defaults (every commit is synced)
on the same machine and disk. `serial`: sets of one row of 200 bytes, one after the other.
`shared`: sets of one row submitted 1,000 at a time. `load`: that many rows read and verified.
Imports are measured in fresh processes, on top of asyncio and ssl.

    scripts/bench --micro state [--stores NAME ...] [--commits N] [--rounds N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.clock import SystemClock
from kgw.state.base import Change
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import server_store
from tests.state.servers import MariadbServer, NoServerError, PostgresqlServer

if TYPE_CHECKING:
    from kgw.state.base import StateStore

SERVERS = {"postgresql": PostgresqlServer, "mysql": MariadbServer}
VALUE = bytes(200)
SHARED = 1_000
MODULES = (
    "asyncpg",
    "psycopg",
    "pymysql",
    "aiomysql",
    "asyncmy",
    "mysql.connector.aio",
    "sqlalchemy",
    "sqlalchemy.ext.asyncio",
)


def disk_sync_ms(directory: Path) -> float:
    """Return the median time to append a page and sync it."""
    descriptor = os.open(directory / "disk", os.O_CREAT | os.O_WRONLY)
    times = []
    for _ in range(300):
        started = time.perf_counter()
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - started)
    os.close(descriptor)
    return statistics.median(times) * 1000


async def measure(store: StateStore, commits: int, rounds: int) -> dict[str, float]:
    started = time.perf_counter()
    await store.open()
    open_ms = (time.perf_counter() - started) * 1000
    for number in range(commits // 10):  # statements are prepared, caches are filled
        await store.apply([Change("warm", str(number), VALUE)])
    times = []
    for number in range(commits):
        started = time.perf_counter()
        await store.apply([Change("serial", str(number), VALUE)])
        times.append((time.perf_counter() - started) * 1000)
    shared = []
    for number in range(rounds):
        started = time.perf_counter()
        await asyncio.gather(
            *(store.apply([Change("shared", f"{number}-{key}", VALUE)]) for key in range(SHARED))
        )
        shared.append(SHARED / (time.perf_counter() - started))
    started = time.perf_counter()
    rows = await store.load("shared")
    load_ms = (time.perf_counter() - started) * 1000
    assert len(rows) == SHARED * rounds
    await store.aclose()
    quantiles = statistics.quantiles(times, n=100)
    return {
        "open_ms": round(open_ms, 1),
        "serial_p50_ms": round(statistics.median(times), 3),
        "serial_p99_ms": round(quantiles[98], 3),
        "shared_sets_per_s": round(statistics.median(shared)),
        "load_rows": len(rows),
        "load_ms": round(load_ms, 1),
    }


def imports() -> dict[str, list[float]]:
    """Return milliseconds and megabytes that the import of each installed library takes."""
    program = (
        "import asyncio, ssl, sys, time, importlib\n"
        "def kilobytes():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return int(next(line for line in lines if line.startswith('VmRSS')).split()[1])\n"
        "before = kilobytes(); started = time.perf_counter()\n"
        "importlib.import_module(sys.argv[1])\n"
        "print((time.perf_counter() - started) * 1000, (kilobytes() - before) / 1000)"
    )
    found = {}
    for module in MODULES:
        runs = []
        for _ in range(7):
            with suppress(subprocess.CalledProcessError):
                text = subprocess.check_output(
                    [sys.executable, "-c", program, module], text=True, stderr=subprocess.DEVNULL
                )
                runs.append([float(number) for number in text.split()])
        if runs:
            found[module] = [
                round(statistics.median(column), 1) for column in zip(*runs, strict=True)
            ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("memory", "sqlite", *SERVERS)
    parser.add_argument("--stores", nargs="*", choices=names, default=names)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--directory", help="where SQLite writes; the servers use /var/tmp")
    arguments = parser.parse_args()
    result: dict[str, object] = {"imports_ms_mb": imports()}
    directory = Path(tempfile.mkdtemp(dir=arguments.directory or "/var/tmp"))
    result["disk_sync_ms"] = round(disk_sync_ms(directory), 3)
    try:
        for name in arguments.stores:
            server = None
            if name in SERVERS:
                try:
                    server = SERVERS[name]()
                except NoServerError as error:
                    result[name] = str(error)
                    continue
            try:
                store: StateStore
                if server is not None:
                    store = server_store(server.url(server.new_place()), SystemClock())
                elif name == "sqlite":
                    store = SqliteStateStore(directory / "meta.sqlite")
                else:
                    store = MemoryStateStore()
                result[name] = asyncio.run(measure(store, arguments.commits, arguments.rounds))
            finally:
                if server is not None:
                    server.remove()
    finally:
        shutil.rmtree(directory)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
