"""`kgw top` against a server: snapshots, JSON, and a terminal with a person's keys."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

RESTORED = b"\x1b[?1049l"
"""What ends the alternative screen of an xterm."""

IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Makes its standard input the terminal that Ctrl-C comes from, and becomes another program."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A server with an admin side, three records in a topic, and a group that has read none."""
    data_dir = tmp_path_factory.mktemp("top") / "data"
    with GatewayProcess(data_dir, "kgw.admin.listeners=127.0.0.1:0") as running:
        commands = Commands(running.bootstrap)
        commands.succeed("topics", "create", "orders", "-p", "2")
        commands.succeed("produce", "orders", "-p", "1", data="a\nb\nc\n")
        reset = ("groups", "reset-offsets", "readers", "-t", "orders", "--to-earliest")
        undo_file = str(data_dir.with_name("undo"))
        commands.succeed(*reset, "--execute", "--undo-file", undo_file)
        yield running


def admin_of(gateway: GatewayProcess) -> str:
    """What --admin is given."""
    return f"127.0.0.1:{gateway.admin_port}"


def test_a_snapshot_without_a_terminal(
    gateway: GatewayProcess, offline: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what the server is and does, with rates, and ends."""
    monkeypatch.setenv("COLUMNS", "120")
    shown = offline.succeed("top", "--admin", admin_of(gateway), "--interval", "0.2")
    lines = [one.split() for one in shown.splitlines()]
    assert lines[0][:4] == ["kgw", "0.1.0", "at", admin_of(gateway)]
    assert ["orders", "0", "0", "B", "3"] == next(one for one in lines if one[:1] == ["orders"])[:5]
    readers = next(one for one in lines if one[:1] == ["readers"])
    assert ("3", "2") == (readers[1], readers[-2])
    assert "errors 0/s" in shown


def test_json(gateway: GatewayProcess, offline: Commands) -> None:
    """One object: the same figures, under their names."""
    options = ("--once", "--interval", "0.2")
    figures = offline.json("top", "--admin", admin_of(gateway), *options)
    assert ["orders"] == [one["topic"] for one in figures["topics"]]
    assert [("readers", 3)] == [(one["group"], one["lag"]) for one in figures["groups"]]
    assert (True, 0, []) == (
        figures["server"]["ready"],
        figures["server"]["node_id"],
        figures["alarms"],
    )
    produce = next(one for one in figures["requests"] if one["api"] == "PRODUCE")
    assert (1, 0.0) == (produce["requests"], produce["requests_per_s"])


def test_no_admin_side(offline: Commands) -> None:
    """Without one it says how there would be one."""
    error = offline.fail(ExitCode.CANNOT_CONNECT, "top", "--admin", "127.0.0.1:1")
    assert "cannot ask http://127.0.0.1:1: Connection refused; start the server" in error
    assert "kgw serve --set kgw.admin.listeners=127.0.0.1:9644" in error


class Terminal:
    """`kgw top` in a terminal of its own."""

    def __init__(self, *arguments: str, term: str = "xterm") -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(30, 100)
        self._before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, "-m", "kgw", "top", *arguments],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**os.environ, "TERM": term},
            start_new_session=True,
        )
        self.shown = b""

    def resize(self, height: int, width: int) -> None:
        """Have another size; the program is told of it."""
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)

    def until(self, text: bytes) -> None:
        """Read until a text is shown, of what came since the last one."""
        limit = patience.Limit(10)
        while text not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], limit.left_s)
            assert ready or not limit.is_over, f"{text!r} is not in {self.shown!r}"
            if ready:
                self.shown += os.read(self._ours, 65_536)
        self.shown = self.shown.partition(text)[2]

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._ours, keys)

    def end(self) -> int:
        """Return the exit code, when the terminal is as it was before."""
        self.until(RESTORED)
        code = self.process.wait(patience.seconds(10))
        assert self._before == termios.tcgetattr(self._theirs)
        return code

    def close(self) -> None:
        """End what a failed test has left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(gateway: GatewayProcess) -> Iterator[Terminal]:
    """A terminal in which `kgw top` watches the server."""
    opened = Terminal("--admin", admin_of(gateway), "--interval", "0.2")
    yield opened
    opened.close()


def test_a_person_at_a_terminal(terminal: Terminal) -> None:
    """It draws, obeys keys and another size, and gives the terminal back."""
    terminal.until(b"readers")
    terminal.press(b"4")
    terminal.until(b"vrecords/s")
    terminal.press(b"\x1bOC")
    terminal.until(b"v")
    # Now all of it is drawn anew, and not only what has changed.
    terminal.resize(20, 90)
    terminal.until(b"vpartition")
    terminal.press(b"h")
    terminal.until(b"another column")
    terminal.press(b"h ")
    terminal.until(b"paused")
    terminal.resize(10, 60)
    terminal.until(b"kgw 0.1.0 at")
    terminal.press(b"q")
    assert 0 == terminal.end()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_an_end_by_a_signal(terminal: Terminal, number: int, expected: int) -> None:
    """The terminal is given back then, too."""
    terminal.until(b"readers")
    terminal.process.send_signal(number)
    assert expected == terminal.end()


def test_ctrl_c(terminal: Terminal) -> None:
    """It ends without a traceback."""
    terminal.until(b"readers")
    terminal.press(b"\x03")
    assert ExitCode.INTERRUPTED == terminal.end()


def test_a_terminal_that_nobody_knows(gateway: GatewayProcess) -> None:
    """One line says what to do instead."""
    terminal = Terminal("--admin", admin_of(gateway), term="nothing-like-it")
    try:
        terminal.until(b"use --once or --json")
        assert ExitCode.FAILED == terminal.process.wait(patience.seconds(10))
    finally:
        terminal.close()
