"""Signals to programs that run, and to those that have ended."""

from __future__ import annotations

import signal
import subprocess

from tests import signals


def test_who_runs_gets_a_signal() -> None:
    """A process, and all of a group."""
    for send in (signals.send, signals.send_to_group):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
            assert send(process.pid, signal.SIGTERM)
            assert -signal.SIGTERM == process.wait()


def test_who_has_ended_gets_none() -> None:
    """The sender is told, and nothing is raised."""
    for send in (signals.send, signals.send_to_group):
        with subprocess.Popen(["true"], start_new_session=True) as process:
            process.wait()
            assert not send(process.pid, signal.SIGTERM)
