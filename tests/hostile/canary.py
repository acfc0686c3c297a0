"""A well-behaved client in a process of its own, which measures how it is served meanwhile.

    python -m tests.hostile.canary HOST PORT [stay]

Asks ApiVersions and Metadata in turn over one connection and, now and then unless it is to stay
with the one, over a new one. When
standard input ends, prints how that went as one line of JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from tests import patience

API_VERSIONS_V0 = bytes.fromhex("0000000a00120000") + b"\0\0\0\7\xff\xff"
METADATA_V1_OF_NOTHING = bytes.fromhex("0000000e00030001") + b"\0\0\0\7\xff\xff\0\0\0\0"
INTERVAL_S = 0.005
RECONNECT_EVERY = 40


def ask(connection: socket.socket, request: bytes) -> None:
    """Send a request and read its whole answer; raises OSError when there is none."""
    connection.sendall(request)
    size = int.from_bytes(_read(connection, 4), "big")
    if _read(connection, size)[:4] != b"\0\0\0\7":
        raise OSError("an answer to something else")


def _read(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise OSError("closed")
    return data


def main() -> None:
    """Measure until standard input ends."""
    address = (sys.argv[1], int(sys.argv[2]))
    reconnects = "stay" not in sys.argv[3:]
    latencies: list[float] = []
    errors: list[str] = []
    connection: socket.socket | None = socket.create_connection(
        address, timeout=patience.seconds(10)
    )
    print("ready", flush=True)
    number = 0
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        began = time.perf_counter()
        try:
            if connection is None or (reconnects and number % RECONNECT_EVERY == 0):
                if connection is not None:
                    connection.close()
                connection = socket.create_connection(address, timeout=patience.seconds(10))
            ask(connection, (API_VERSIONS_V0, METADATA_V1_OF_NOTHING)[number % 2])
        except OSError as error:
            errors.append(repr(error))
            connection = None
        latencies.append((time.perf_counter() - began) * 1000)
        number += 1
    latencies = sorted(latencies) or [0.0]
    print(
        json.dumps(
            {
                "requests": number,
                "errors": len(errors),
                "first_error": errors[0] if errors else "",
                "p50_ms": round(latencies[len(latencies) // 2], 2),
                "p99_ms": round(latencies[len(latencies) * 99 // 100], 2),
                "max_ms": round(latencies[-1], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
