"""Signals to processes that may just have ended: that is no error, and the sender is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process; False where there is none of this id any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def send_to_group(group: int, number: signal.Signals) -> bool:
    """Send a signal to all processes of a group; False where all of them have ended."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
