"""Processes that outlive who started them: known by their id and by when they began.

An id is given out again; together with the time of the start it never is. So nothing is signalled
that was not started here, by whichever Python process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STOP_S = 20.0


class RecordedProcess:
    """A process whose id and start time are kept in a file; what it says goes to another."""

    def __init__(self, record: Path, log: Path) -> None:
        self.record = record
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        """Start it, apart from the terminal. One that was started before has ended."""
        if self._child is not None:
            # By itself: nobody has waited for it.
            self._child.wait(patience.seconds(STOP_S))
        with self.log.open("ab") as log:
            child = self._child = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.record.write_text(f"{child.pid} {_started_ticks(child.pid)}\n")

    @property
    def pid(self) -> int | None:
        """Its id while it runs."""
        with self._opened() as found:
            return None if found is None else found[0]

    def words(self, lines: int = 20) -> str:
        """Return the end of what it said."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        with self._opened() as found:
            if found is not None:
                signal.pidfd_send_signal(found[1], number)

    def end(self, number: signal.Signals) -> None:
        """End it by a signal and wait until it is gone; killed when it takes too long."""
        with self._opened() as found:
            for one in (number, signal.SIGKILL):
                if found is not None and not _has_ended(found[1], 0):
                    signal.pidfd_send_signal(found[1], one)
                    _has_ended(found[1], STOP_S)
        if self._child is not None:
            self._child.wait(patience.seconds(STOP_S))
            self._child = None
        self.record.unlink(missing_ok=True)

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, int] | None]:
        """Its id, and a descriptor which stands for it and for no later process of that id."""
        found = self._find()
        try:
            yield found
        finally:
            if found is not None:
                os.close(found[1])

    def _find(self) -> tuple[int, int] | None:
        try:
            pid, started = (int(word) for word in self.record.read_text().split())
            descriptor = os.pidfd_open(pid)
        except (FileNotFoundError, ProcessLookupError):
            return None
        if started == _started_ticks(pid) and not _has_ended(descriptor, 0):
            return pid, descriptor
        os.close(descriptor)
        return None


def _started_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def _has_ended(descriptor: int, timeout_s: float) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])
