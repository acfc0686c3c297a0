"""A gateway whose disk and clock do what a file says, while it runs.

`KGW_CAMPAIGN_FAULTS=FILE python -m tests.campaigns.faulty_serve MODULE [ARGUMENT ...]`

MODULE is what is run with these arguments: `kgw serve ...`, or one of the gateways that are broken
on purpose. The file says how long each sync takes, how wrong the wall clock is, and whether the
next sync of records, or the next write, fails with EIO, once. A file beside it says which of these
failures have struck.
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
_RECORDS = (".log", ".journal")


class Told(NamedTuple):
    """What the file says."""

    sync_ms: int = 0
    clock_wrong_by_ms: int = 0
    failure: int = 0
    """The number of the failure that is ordered, which strikes once; 0 for none."""
    fails: str = FAILURES[0]


def tell(path: Path, told: Told) -> None:
    """Have a gateway behave so from now on."""
    replace_file(path, " ".join(map(str, told)))


def last_struck(path: Path) -> int:
    """Return the number of the failure that has struck last; 0 for none."""
    struck = path.with_suffix(STRUCK_SUFFIX)
    return int(struck.read_text()) if struck.exists() else 0


def command(path: Path, *arguments: str) -> tuple[str, ...]:
    """Return what to run: a module with its arguments, told by this file."""
    python = (sys.executable, "-m", "tests.campaigns.faulty_serve")
    return ("env", f"{FAULTS_FILE}={path}", *python, *arguments)


class _Faults:
    """What the process does of what the file says, in any of its threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._struck = last_struck(path)
        self._lock = Lock()

    def told(self) -> Told:
        """Return what the file says now."""
        sync_ms, wrong_by_ms, failure, fails = self._path.read_text().split()
        return Told(int(sync_ms), int(wrong_by_ms), int(failure), fails)

    def synced(self, kind: str, path: str) -> None:
        """Be slow, and fail if it is time."""
        told = self.told()
        time.sleep(told.sync_ms / 1_000)
        if kind == "batch" or path.endswith(_RECORDS):
            self._strike("sync", told)

    def writing(self, path: str) -> None:
        """Fail if it is time."""
        if path.endswith(_RECORDS):
            self._strike("write", self.told())

    def _strike(self, what: str, told: Told) -> None:
        with self._lock:
            if told.fails != what or told.failure <= self._struck:
                return
            self._struck = told.failure
            replace_file(self._path.with_suffix(STRUCK_SUFFIX), str(self._struck))
        raise OSError(errno.EIO, os.strerror(errno.EIO))


if __name__ == "__main__":
    faults = _Faults(Path(os.environ[FAULTS_FILE]))
    hook_syncs(faults.synced)
    hook_writes(faults.writing)
    hook_clock(lambda: faults.told().clock_wrong_by_ms)
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
