"""The gateway that kills itself at a place that a file names.

`KGW_CAMPAIGN_FAILPOINT=FILE python -m tests.campaigns.failpoint_serve serve ...`

The file is written once the gateway serves: a place of `PLACES` and a number n. At the n-th time
that the gateway comes by there, it is gone: nothing is flushed, closed or answered any more.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from kgw.backend.append import Append
from kgw.backend.embedded.files.fs import RealFile, RealFs
from kgw.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.append import AppendResult
    from kgw.backend.embedded.files.fs import File
    from kgw.completion import Completion
    from kgw.types import Buffer

FAILPOINT_FILE = "KGW_CAMPAIGN_FAILPOINT"
PLACES = ("write", "written", "synced", "answering")
"""Before bytes go to a file, after that, after a sync and before anybody knows of it, before the
result of an append is told."""


def arm(failpoint: Path, place: str, nth: int) -> None:
    """Have a gateway die when it comes by a place for the n-th time from now on."""
    new = failpoint.with_suffix(".new")
    new.write_text(f"{place} {nth}")
    new.replace(failpoint)


class _Failpoint:
    """Counts how often the gateway has come by the place, in any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place: str | None = None
        self._left = 0
        self._lock = Lock()

    def pass_by(self, place: str) -> None:
        """Die, if it is the place and the time."""
        with self._lock:
            if self._place is None and self._path.exists():
                self._place, left = self._path.read_text().split()
                self._left = int(left)
            if place == self._place:
                self._left -= 1
                if self._left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    failpoint = _Failpoint(Path(os.environ[FAILPOINT_FILE]))
    write_once, fdatasync = RealFile.write_once, RealFile.fdatasync
    sync_all, finish = RealFs.sync_all, Append.finish

    def failing_write(self: RealFile, buffers: Sequence[Buffer], position: int) -> int:
        """Write."""
        failpoint.pass_by("write")
        written = write_once(self, buffers, position)
        failpoint.pass_by("written")
        return written

    def failing_fdatasync(self: RealFile) -> None:
        """Sync one."""
        fdatasync(self)
        failpoint.pass_by("synced")

    def failing_sync_all(
        self: RealFs, files: Sequence[File], directories: Sequence[str]
    ) -> list[OSError | None]:
        """Sync many."""
        outcomes = sync_all(self, files, directories)
        failpoint.pass_by("synced")
        return outcomes

    def failing_finish(self: Completion[AppendResult]) -> None:
        """Tell what became of an append."""
        failpoint.pass_by("answering")
        finish(self)

    RealFile.write_once = failing_write  # type: ignore[method-assign]
    RealFile.fdatasync = failing_fdatasync  # type: ignore[method-assign]
    RealFs.sync_all = failing_sync_all  # type: ignore[method-assign]
    Append.finish = failing_finish  # type: ignore[method-assign]
    main(prog_name="kgw")
