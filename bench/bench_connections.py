"""Idle connections: what each costs, what they cost together, and how fast they are taken and left.

Every connection has asked ApiVersions once, as a client has that then idles.

    python bench/bench_connections.py [--connections N] [--seconds S] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import socket
import tempfile
import time
from pathlib import Path

from kgw.testing.process import GatewayProcess

API_VERSIONS_V0 = bytes.fromhex("0000000a0012000000000007ffff")
AT_A_TIME = 250


def open_some(gateway: GatewayProcess, count: int) -> list[socket.socket]:
    """Connect, ask and read the answer, for `count` connections at once."""
    opened = [socket.create_connection((gateway.host, gateway.port)) for _ in range(count)]
    for connection in opened:
        connection.sendall(API_VERSIONS_V0)
    for connection in opened:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        assert len(connection.recv(size, socket.MSG_WAITALL)) == size
    return opened


def rss_bytes(gateway: GatewayProcess) -> int:
    """Everything resident, anonymous and file-backed."""
    usage = gateway.usage()
    return usage.anonymous_bytes + usage.file_bytes


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    assert hard > options.connections, f"only {hard} descriptors are allowed here"
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        with GatewayProcess(parent / "data") as gateway:
            for connection in open_some(gateway, AT_A_TIME):
                connection.close()
            before = rss_bytes(gateway)
            began = time.perf_counter()
            held: list[socket.socket] = []
            while len(held) < options.connections:
                held += open_some(gateway, min(AT_A_TIME, options.connections - len(held)))
            opened_s = time.perf_counter() - began
            more = rss_bytes(gateway) - before
            cpu_s = gateway.usage().cpu_s
            time.sleep(options.seconds)
            idle_share = (gateway.usage().cpu_s - cpu_s) / options.seconds
            began = time.perf_counter()
            code = gateway.stop()
            stop_s = time.perf_counter() - began
            assert code == 0, code
            for connection in held:
                connection.close()
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    print(
        json.dumps(
            {
                "connections": options.connections,
                "more_rss_mb": round(more / 1e6, 1),
                "bytes_per_connection": round(more / options.connections),
                "rss_before_mb": round(before / 1e6, 1),
                "opened_per_s": round(options.connections / opened_s),
                "idle_cpu_share": round(idle_share, 4),
                "drain_s": round(stop_s, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
