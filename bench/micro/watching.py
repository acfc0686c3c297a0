"""What it costs to be watched: by `kgw top`, and with metrics exported over OTLP.

A server with many partitions and groups that does nothing else. Processor time and memory of the
server alone, while `kgw top` shows it each second in a terminal of its own, and while it exports
each second; and what `kgw top` itself takes.

    scripts/bench --micro watching [--partitions N] [--groups N] [--seconds N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.cli.shared.admin_http import get
from kgw.client import AdminClient, AsyncClient, GroupClient
from kgw.testing.process import GatewayProcess, process_usage
from tests.otel.receiver import Receiver

if TYPE_CHECKING:
    from kgw.testing.process import Usage

TOPICS = 10
SETTLES_S = 2.0
EXPORTS = {
    "nothing_on": (),
    "exporting": ("kgw.otel.endpoint={endpoint}", "kgw.otel.interval.ms=1000"),
}
"""Settings by what is measured."""


async def fill(gateway: GatewayProcess, partitions: int, groups: int) -> None:
    """Create topics, and groups that have committed in every partition of one of them."""
    each = partitions // TOPICS
    async with AsyncClient([(gateway.host, gateway.port)]) as client:
        for number in range(TOPICS):
            await AdminClient(client).create_topic(f"topic-{number}", partitions=each)
        for number in range(groups):
            topic = f"topic-{number % TOPICS}"
            offsets = {(topic, index): 0 for index in range(each)}
            await GroupClient(client).commit(f"group-{number}", offsets)


def used(before: Usage, after: Usage, seconds: float) -> dict[str, float]:
    """Return what a process has used in a time, a second."""
    return {
        "cpu_ms_per_s": round((after.cpu_s - before.cpu_s) / seconds * 1000, 2),
        "anonymous_mb": round(after.anonymous_bytes / 1e6, 1),
        "resident_mb": round((after.anonymous_bytes + after.file_bytes) / 1e6, 1),
    }


def measured(gateway: GatewayProcess, seconds: float) -> dict[str, float]:
    """Return what the server uses from now on."""
    before = gateway.usage()
    time.sleep(seconds)
    return used(before, gateway.usage(), seconds)


def loop_lag(gateway: GatewayProcess) -> dict[str, float]:
    """Return how late the server's loop was at most since its start."""
    return {"loop_lag_max_ms": get(("127.0.0.1", gateway.admin_port), "/api/v1/loop")["lag_max_ms"]}


def with_top(gateway: GatewayProcess, seconds: float) -> dict[str, object]:
    """Return what the server and `kgw top` use while it is shown."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kgw", "top", "--interval", "1"]
    top = subprocess.Popen(
        [*command, "--admin", f"127.0.0.1:{gateway.admin_port}"],
        stdin=theirs,
        stdout=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    sent = [0]

    def drain() -> None:
        try:
            while chunk := os.read(ours, 65_536):
                sent[0] += len(chunk)
        except OSError:
            return  # the other side is closed

    threading.Thread(target=drain, daemon=True).start()
    time.sleep(SETTLES_S)
    before, sent_before = process_usage(top.pid), sent[0]
    server = measured(gateway, seconds)
    of_top = used(before, process_usage(top.pid), seconds)
    sent_bytes = (sent[0] - sent_before) / seconds
    os.write(ours, b"q")
    top.wait()
    os.close(ours)
    return {"server": server, "top": {**of_top, "terminal_bytes_per_s": round(sent_bytes)}}


def exporting(data_dir: Path, settings: tuple[str, ...], seconds: float) -> dict[str, float]:
    """Return what a server uses that is started with some settings, and what it exports."""
    with Receiver() as receiver:
        told = [one.format(endpoint=receiver.endpoint) for one in settings]
        with GatewayProcess(data_dir, *told) as gateway:
            time.sleep(SETTLES_S)
            found = measured(gateway, seconds)
            found["ready_ms"] = round(gateway.start_s * 1000)
        exports = [receiver.exports.get() for _ in range(receiver.exports.qsize())]
        if exports:
            # Not the last one, which comes when everything ends.
            one = exports[-2]
            found |= {"export_bytes": one.unpacked_bytes, "export_bytes_gzip": one.sent_bytes}
        return {**found, "exports": len(exports)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-watching-", dir=arguments.directory))
    seconds = arguments.seconds
    result: dict[str, object] = {"partitions": arguments.partitions, "groups": arguments.groups}
    try:
        plain = GatewayProcess(directory / "data", "kgw.admin.listeners=127.0.0.1:0")
        with plain as gateway:
            asyncio.run(fill(gateway, arguments.partitions, arguments.groups))
        with plain as gateway:
            time.sleep(SETTLES_S)
            loop_lag(gateway)
            result["alone"] = measured(gateway, seconds)
            result["watched"] = {**with_top(gateway, seconds), **loop_lag(gateway)}
        for name, settings in EXPORTS.items():
            result[name] = exporting(directory / "data", settings, seconds)
        print(json.dumps(result, indent=2))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
