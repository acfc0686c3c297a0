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
from typing import TYPE_CHECKING, Any

from kgw.backend.embedded.files.fs import RealFile, RealFs
from kgw.backend.embedded.files.sync_batch import SyncBatch
from kgw.cli.main import main
from kgw.gateway import Gateway
from kgw.state.sql.commit_note import CountedConnection

if TYPE_CHECKING:
    from collections.abc import Sequence


DELAY_FILE = "KGW_CAMPAIGN_DELAY"
SYNC = "KGW_CAMPAIGN_SYNC"
REPORT_SUFFIX = ".report"
LOOK_S = 0.005
NOTED_LAG_S = 0.02


def set_delay(path: Path, delay_ms: int, stalled_until_s: float = 0.0) -> None:
    """Have each sync that begins from now on take so long, and none end before that moment."""
    new = path.with_suffix(".new")
    new.write_text(f"{delay_ms} {stalled_until_s}")
    new.replace(path)


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


class RunQueueWaits:
    """For how long the threads of this process could run and had no processor, by the kernel.

    Each thread is followed by itself: what an ended one had waited is in no sum any more, and the
    difference of two sums would take it from what the others waited.
    """

    def __init__(self, threads: Path = Path("/proc/self/task")) -> None:
        self._threads = threads
        self._waited_ns: dict[str, int] = {}
        self.take_s()

    def take_s(self) -> float:
        """Return what all threads have waited since this was asked last."""
        before, self._waited_ns = self._waited_ns, {}
        added_ns = 0
        for thread in self._threads.iterdir():
            try:
                waited_ns = int((thread / "schedstat").read_text().split()[1])
            except OSError:
                continue  # it has ended
            self._waited_ns[thread.name] = waited_ns
            known_ns = before.get(thread.name, 0)
            # Less than before is another thread, with the id of one that has ended.
            added_ns += waited_ns - known_ns if waited_ns >= known_ns else waited_ns
        return added_ns / 1e9


def _slow_down(disk: _SlowDisk) -> None:
    fdatasync, sync_directory = RealFile.fdatasync, RealFs.sync_directory
    sync_some, commit = SyncBatch._sync, CountedConnection.commit
    start, aclose = Gateway.start, Gateway.aclose

    def slow_fdatasync(self: RealFile) -> None:
        fdatasync(self)
        disk.wait("file")

    def slow_directory(self: RealFs, path: str) -> None:
        sync_directory(self, path)
        disk.wait("directory")

    def slow_some(
        self: SyncBatch, descriptors: Sequence[int], operation: int
    ) -> list[OSError | None]:
        outcomes = sync_some(self, descriptors, operation)
        disk.wait("batch")
        return outcomes

    def slow_commit(self: CountedConnection) -> None:
        if self.in_transaction:
            disk.wait("database")
        commit(self)

    watching: list[asyncio.Task[None]] = []

    async def watched_start(self: Gateway) -> None:
        await start(self)
        watching.append(asyncio.ensure_future(disk.watch_loop()))

    async def watched_aclose(self: Gateway) -> None:
        for task in watching:
            task.cancel()
        disk.write_report()
        await aclose(self)

    replacements: list[tuple[Any, str, Any]] = [
        (RealFile, "fdatasync", slow_fdatasync),
        (RealFs, "sync_directory", slow_directory),
        (SyncBatch, "_sync", slow_some),
        (CountedConnection, "commit", slow_commit),
        (Gateway, "start", watched_start),
        (Gateway, "aclose", watched_aclose),
    ]
    for owner, name, slow in replacements:
        setattr(owner, name, slow)


if __name__ == "__main__":
    _slow_down(_SlowDisk(Path(os.environ[DELAY_FILE]), os.environ.get(SYNC, "")))
    main(prog_name="kgw")
