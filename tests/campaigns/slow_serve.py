"""The gateway on a disk whose syncs take as long as a file says.

`KGW_CAMPAIGN_DELAY=FILE python -m tests.campaigns.slow_serve serve ...`

The file holds milliseconds, and a moment of monotonic time before which no sync ends (a stall).
Every way to sync is slowed down behind the real sync: the kernel's queue that the event loop asks,
the sets of files that threads wait for, single files and directories, commits of SQLite. At its end
the gateway writes beside the file how often each was slowed down, and how long its event loop was
held up.

Two controls: with `KGW_CAMPAIGN_SYNC=loop` the event loop waits for each of these syncs, too, and
with `KGW_CAMPAIGN_SYNC=hasty` nobody waits for any.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path

from kgw.cli.main import main
from kgw.gateway import Gateway
from tests.campaigns.machine import RunQueueWaits
from tests.campaigns.serve_hooks import hook_syncs, replace_file

DELAY_FILE = "KGW_CAMPAIGN_DELAY"
SYNC = "KGW_CAMPAIGN_SYNC"
REPORT_SUFFIX = ".report"
LOOK_S = 0.005
NOTED_LAG_S = 0.02


def set_delay(path: Path, delay_ms: int, stalled_until_s: float = 0.0) -> None:
    """Have each sync that begins from now on take so long, and none end before that moment."""
    replace_file(path, f"{delay_ms} {stalled_until_s}")


class _SlowDisk:
    """When a sync is done, and what was slowed down."""

    def __init__(self, path: Path, how: str) -> None:
        self._path = path
        self.how = how
        self._loop: asyncio.AbstractEventLoop | None = None
        self.slowed: Counter[str] = Counter()
        self.lags: list[tuple[float, float]] = []
        """Moments, and for how many seconds the loop was held up then."""

    def delay_s(self, kind: str) -> float:
        """Return how long a sync takes that begins now."""
        delay_ms, stalled_until_s = self._path.read_text().split()
        delay_s = max(int(delay_ms) / 1_000, float(stalled_until_s) - time.monotonic())
        self.slowed[kind] += delay_s > 0
        return max(0.0, delay_s)

    def wait(self, kind: str) -> None:
        """Be slow, in a thread that syncs."""
        delay_s = self.delay_s(kind)
        if self.how == "hasty":
            return
        if self.how == "loop" and self._loop is not None:
            self._loop.call_soon_threadsafe(_sleep_until, time.monotonic() + delay_s)
        time.sleep(delay_s)

    async def watch_loop(self) -> None:
        """Note how long the event loop is held up, but for the time that others had the processor.

        A thread that could run and may not waits for other processes: that is none of ours. Those
        of all threads count, as the loop also waits for the interpreter's lock, which any may have.
        """
        self._loop = asyncio.get_running_loop()
        before_s, waits = time.monotonic(), RunQueueWaits()
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = time.monotonic()
            lag_s = now_s - before_s - LOOK_S
            if lag_s > NOTED_LAG_S:
                lag_s -= waits.take_s()
                if lag_s > NOTED_LAG_S:
                    self.lags.append((now_s, lag_s))
            elif before_s % 0.1 > now_s % 0.1:
                waits.take_s()
            before_s = now_s

    def write_report(self) -> None:
        """Say what was done."""
        report = {"slowed": self.slowed, "lags": self.lags}
        self._path.with_suffix(REPORT_SUFFIX).write_text(json.dumps(report))


def _sleep_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.monotonic()))


def _slow_down(disk: _SlowDisk) -> None:
    start, aclose = Gateway.start, Gateway.aclose
    watching: list[asyncio.Task[None]] = []

    async def watched_start(self: Gateway) -> None:
        await start(self)
        watching.append(asyncio.ensure_future(disk.watch_loop()))

    async def watched_aclose(self: Gateway) -> None:
        for task in watching:
            task.cancel()
        disk.write_report()
        await aclose(self)

    hook_syncs(lambda kind, _: disk.wait(kind))
    Gateway.start = watched_start  # type: ignore[method-assign]
    Gateway.aclose = watched_aclose  # type: ignore[method-assign]


if __name__ == "__main__":
    _slow_down(_SlowDisk(Path(os.environ[DELAY_FILE]), os.environ.get(SYNC, "")))
    main(prog_name="kgw")
