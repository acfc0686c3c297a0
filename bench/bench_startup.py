"""Process start to an answered ApiVersions, and the memory of an idle gateway.

Each run starts on an empty data directory; a first one, not counted, lets Python write its
bytecode, as an installation does. The client connects in a loop from the moment the process is
started, so that the figure is what a user waits, not what the ready line claims.

    python bench/bench_startup.py [--runs N] [--directory DIR] [--backend NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

API_VERSIONS_V0 = bytes.fromhex("0000000a0012000000000007ffff")
POLL_S = 0.002
SETTLE_S = 0.3


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def first_answer(port: int, deadline: float) -> None:
    """Return once ApiVersions has been answered."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                connection.sendall(API_VERSIONS_V0)
                if len(connection.recv(4)) == 4:
                    return
        except OSError:
            if time.perf_counter() > deadline:
                raise
        time.sleep(POLL_S)


def run_once(data_dir: Path, backend: str) -> dict[str, float]:
    """Start, ask, weigh, stop."""
    port = free_port()
    command = [sys.executable, "-m", "kgw", "serve", "--listen", f"127.0.0.1:{port}"]
    command += ["--data-dir", str(data_dir), "--set", f"kgw.backend={backend}"]
    began = time.perf_counter()
    # Without stored bytecode every start would compile: 80 ms that no installation pays.
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            first_answer(port, began + 20)
            answered_ms = (time.perf_counter() - began) * 1000
            time.sleep(SETTLE_S)
            status = Path(f"/proc/{process.pid}/status").read_text()
            sizes = dict(line.split(":", 1) for line in status.splitlines())
            began = time.perf_counter()
        finally:
            process.send_signal(signal.SIGTERM)
        code = process.wait(20)
        assert code == 0, process.stderr and process.stderr.read().decode()
    return {
        "first_answer_ms": round(answered_ms, 1),
        "idle_rss_mb": round(int(sizes["VmRSS"].split()[0]) / 1024, 1),
        "idle_anonymous_mb": round(int(sizes["RssAnon"].split()[0]) / 1024, 1),
        "stop_ms": round((time.perf_counter() - began) * 1000, 1),
    }


def main() -> None:
    """Print the medians as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--backend", default="embedded")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        run_once(parent / "first", options.backend)
        runs = [run_once(parent / str(index), options.backend) for index in range(options.runs)]
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    worst = max(run["first_answer_ms"] for run in runs)
    print(json.dumps({"median_of": len(runs), **medians, "worst_first_answer_ms": worst}))


if __name__ == "__main__":
    main()
