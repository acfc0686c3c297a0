"""A gateway whose disk and clock do what a file says, while it runs.

`KGW_CAMPAIGN_FAULTS=FILE python -m tests.campaigns.faulty_serve MODULE [ARGUMENT ...]`

MODULE is what is run with these arguments: `kgw serve ...`, or one of the gateways that are broken
on purpose. The file says how long each sync takes, how wrong the wall clock is, and whether the
next sync of records, or the next write, fails with EIO, once. A file beside it says what has
struck: a sync that was slow, a look at a clock that was wrong, a call that has failed.
"""

from __future__ import annotations

import errno
import os
import runpy
import sys
import time
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from tests.campaigns.serve_hooks import hook_clock, hook_syncs, hook_writes, replace_file

FAULTS_FILE = "KGW_CAMPAIGN_FAULTS"
STRUCK_SUFFIX = ".struck"
FAILURES = ("sync", "write")
"""What can fail: a sync of records or of the journal, or a write there."""
NOTHING = "nothing"
_RECORDS = (".log", ".journal")


class Told(NamedTuple):
    """What the file says."""

    order: int = 0
    """The number of this order, by which it is known what of it has struck."""
    sync_ms: int = 0
    clock_wrong_by_ms: int = 0
    fails: str = NOTHING
    """What fails once, of `FAILURES`."""


def tell(path: Path, told: Told) -> None:
    """Have a gateway behave so from now on."""
    replace_file(path, " ".join(map(str, told)))


def struck(path: Path, order: int) -> set[str]:
    """Return what of an order has struck: "slow_disk", "clock" and "eio"."""
    noted = path.with_suffix(STRUCK_SUFFIX)
    lines = noted.read_text().splitlines() if noted.exists() else []
    return {line.split()[1] for line in lines if line.split()[0] == str(order)}


def command(path: Path, *arguments: str) -> tuple[str, ...]:
    """Return what to run: a module with its arguments, told by this file."""
    python = (sys.executable, "-m", "tests.campaigns.faulty_serve")
    return ("env", f"{FAULTS_FILE}={path}", *python, *arguments)


class _Faults:
    """What the process does of what the file says, in any of its threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        order = self.told().order
        self._struck = {(order, what) for what in struck(path, order)}
        self._lock = Lock()

    def told(self) -> Told:
        """Return what the file says now."""
        order, sync_ms, wrong_by_ms, fails = self._path.read_text().split()
        return Told(int(order), int(sync_ms), int(wrong_by_ms), fails)

    def wrong_by_ms(self) -> int:
        """Return how wrong the clock is that somebody looks at."""
        told = self.told()
        if told.clock_wrong_by_ms:
            self._note(told, "clock")
        return told.clock_wrong_by_ms

    def synced(self, kind: str, path: str) -> None:
        """Be slow, and fail if it is time."""
        told = self.told()
        if told.sync_ms:
            self._note(told, "slow_disk")
            time.sleep(told.sync_ms / 1_000)
        if kind == "batch" or path.endswith(_RECORDS):
            # It may have been healed meanwhile: then nobody expects a failure any more.
            self._strike("sync", self.told())

    def writing(self, path: str) -> None:
        """Fail if it is time."""
        if path.endswith(_RECORDS):
            self._strike("write", self.told())

    def _strike(self, what: str, told: Told) -> None:
        if told.fails == what and self._note(told, "eio"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _note(self, told: Told, what: str) -> bool:
        """Say that something has struck; whether that is the first time since it was ordered."""
        with self._lock:
            if (told.order, what) in self._struck:
                return False
            self._struck.add((told.order, what))
            with self._path.with_suffix(STRUCK_SUFFIX).open("a") as noted:
                noted.write(f"{told.order} {what}\n")
            return True


if __name__ == "__main__":
    faults = _Faults(Path(os.environ[FAULTS_FILE]))
    hook_syncs(faults.synced)
    hook_writes(faults.writing)
    hook_clock(faults.wrong_by_ms)
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
