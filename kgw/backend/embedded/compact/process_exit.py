"""Describes in one line how a Python process has ended."""

from __future__ import annotations

import re
import signal
from typing import Final, NamedTuple

_TRACEBACK: Final = "Traceback (most recent call last):"
_FATAL: Final = "Fatal Python error:"
_PLACE: Final = re.compile(r'  File "(?P<path>[^"]*)", line (?P<line>\d+), in ')
_LONGEST: Final = 500


class ProcessExit(NamedTuple):
    """The exit status and last output of a process that has ended."""

    status: int
    """The status as `subprocess` returns it: below 0 for a signal."""
    complaint: str
    """The end of its output to standard error."""

    @property
    def kind(self) -> str:
        """`killed`, `raised` or `exited`."""
        if self.status < 0:
            return "killed"
        return "raised" if _TRACEBACK in self.complaint else "exited"

    def describe(self) -> str:
        """Return in one line why the process has ended."""
        said = self._said()
        if self.status < 0:
            how = f"killed by {_signal_name(-self.status)}"
            if -self.status == signal.SIGKILL:
                # The kernel kills processes with this signal if memory is short.
                how += ", as the system does for want of memory"
            return f"{how}; {said}" if said else how
        if self.kind == "raised":
            return said
        how = f"exit status {self.status}"
        return f"{how}; {said}" if said else f"{how}, without a word"

    def _said(self) -> str:
        """Return the line of the error output that states the reason."""
        _, traceback, raised = self.complaint.rpartition(_TRACEBACK)
        lines = raised.strip("\n").splitlines()
        if traceback:
            error = next((line for line in lines if line and not line.startswith(" ")), "")
            places = [place for line in lines if (place := _PLACE.match(line))]
            if error and places:
                path = places[-1]["path"].rsplit("/", 1)[-1]
                error = f"{error[:_LONGEST]} ({path}, line {places[-1]['line']})"
            return error or "an exception that is not named"
        fatal = [line for line in lines if line.startswith(_FATAL)]
        return (fatal or lines or [""])[-1].strip()[:_LONGEST]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
