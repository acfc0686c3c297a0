"""What a service manager says in the environment, and what it is told."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from kgw.config import ConfigError
from kgw.server.service_manager import (
    EXTEND_S,
    TELL_INTERVAL_S,
    Instructions,
    ServiceManager,
    take_instructions,
)
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PID = 4711
MINE, OTHER = str(PID), str(PID + 1)
EXTEND = f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1e6:.0f}"


class TestInstructions:
    @pytest.mark.parametrize(
        ("environ", "expected"),
        [
            ({}, Instructions()),
            ({"NOTIFY_SOCKET": "/run/n"}, Instructions("/run/n")),
            ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "30000000"}, Instructions("@n", 30.0)),
            ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": MINE}, Instructions(watchdog_s=0.5)),
            ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": OTHER}, Instructions()),
            (
                {"LISTEN_PID": MINE, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "PLAINTEXT:admin"},
                Instructions(socket_names=("PLAINTEXT", "admin")),
            ),
            ({"LISTEN_PID": MINE, "LISTEN_FDS": "2"}, Instructions(socket_names=("", ""))),
            ({"LISTEN_PID": OTHER, "LISTEN_FDS": "2"}, Instructions()),
            ({"LISTEN_FDS": "1"}, Instructions()),
            ({"LISTEN_PID": MINE, "LISTEN_FDS": "0"}, Instructions()),
        ],
    )
    def test_what_is_taken(self, environ: dict[str, str], expected: Instructions) -> None:
        """What is meant for this process; nothing of it is left to processes that it starts."""
        left = {"HOME": "/root", **environ}
        assert expected == take_instructions(left, PID)
        assert {"HOME": "/root"} == left

    @pytest.mark.parametrize(
        "environ",
        [
            {"LISTEN_PID": MINE, "LISTEN_FDS": "two"},
            {"LISTEN_PID": "me", "LISTEN_FDS": "1"},
            {"LISTEN_PID": MINE, "LISTEN_FDS": "-1"},
            {"LISTEN_PID": MINE, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "PLAINTEXT"},
            {"WATCHDOG_USEC": "30s"},
            {"NOTIFY_SOCKET": "vsock:2:1"},
            {"NOTIFY_SOCKET": "relative"},
        ],
    )
    def test_what_cannot_be_understood(self, environ: dict[str, str]) -> None:
        """A start that was asked for something else than kgw understands is refused."""
        with pytest.raises(ConfigError, match=r"LISTEN|WATCHDOG|NOTIFY"):
            take_instructions({**environ}, PID)


class Told:
    """A service manager that remembers what it is told."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(address)

    def take(self) -> list[list[str]]:
        """Return every message since the last time, in lines."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """One that listens in the test's directory."""
    manager = Told(str(tmp_path / "notify"))
    yield manager
    manager.close()


class Life:
    """A process whose status a test sets."""

    status = "recovering"

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        self.clock = ManualClock()
        told = Instructions(address, watchdog_s)
        self.manager = ServiceManager(told, self.clock, lambda: self.status)


def test_a_life(told: Told, tmp_path: Path) -> None:
    """The manager hears of each step, and of what is going on as soon as that changes."""
    life = Life(str(tmp_path / "notify"))
    life.manager.starting()
    assert [["STATUS=recovering", EXTEND]] == told.take()
    life.clock.advance(TELL_INTERVAL_S)
    life.status = "recovering, 3 of 10 partitions"
    life.clock.advance(TELL_INTERVAL_S)
    assert [[EXTEND], ["STATUS=recovering, 3 of 10 partitions", EXTEND]] == told.take()
    life.status = "serving on 127.0.0.1:9092"
    life.manager.ready()
    life.clock.advance(10 * TELL_INTERVAL_S)
    assert [["READY=1", "STATUS=serving on 127.0.0.1:9092"]] == told.take()
    life.status = "stopping"
    life.manager.stopping()
    life.clock.advance(TELL_INTERVAL_S)
    assert [["STOPPING=1", "STATUS=stopping", EXTEND], [EXTEND]] == told.take()
    life.manager.close()
    assert 0 == life.clock.pending


def test_signs_of_life(told: Told, tmp_path: Path) -> None:
    """Twice in the time that the manager gives, for as long as the loop makes its calls."""
    life = Life(str(tmp_path / "notify"), watchdog_s=3.0)
    life.manager.starting()
    life.manager.ready()
    told.take()
    life.clock.advance(6.0)
    assert [["WATCHDOG=1"]] * 4 == told.take()
    life.manager.close()


def test_a_status_is_one_line(told: Told, tmp_path: Path) -> None:
    """What another server calls itself cannot say READY in this one's place."""
    life = Life(str(tmp_path / "notify"))
    life.status = "standing by: node 1 at a\nREADY=1 leads"
    life.manager.starting()
    assert [["STATUS=standing by: node 1 at a\\nREADY=1 leads", EXTEND]] == told.take()
    life.manager.close()


def test_an_abstract_socket() -> None:
    """A name that begins with @ is in Linux's abstract namespace."""
    name = f"kgw-test-{os.getpid()}"
    told = Told(f"\0{name}")
    life = Life(f"@{name}")
    life.manager.ready()
    assert [["READY=1", "STATUS=recovering"]] == told.take()
    life.manager.close()
    told.close()


def test_a_manager_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A socket that is not there is a line in the log, at most one in ten seconds."""
    life = Life(str(tmp_path / "none"), watchdog_s=2.0)
    life.manager.ready()
    life.clock.advance(9.0)
    assert ["the service manager cannot be told"] == [one.getMessage() for one in caplog.records]
    life.manager.close()


def test_nobody_to_tell() -> None:
    """A manager that only passes sockets is told nothing, and no timer runs."""
    life = Life("")
    life.manager.starting()
    life.manager.ready()
    life.manager.stopping()
    assert 0 == life.clock.pending
    life.manager.close()
