"""Two processes of one namespace of a real SeaweedFS, as users start and kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.shared.admin_http import get
from kgw.cli.shared.errors import CommandError
from kgw.version import install_command
from tests import patience
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

LEASE_MS = 3_000
EARLY = """
import os, kgw.__main__, kgw.cli.main
main = kgw.cli.main.main
kgw.cli.main.main = lambda **options: (os.kill(os.getpid(), {number}), main(**options))
kgw.__main__.run()
"""
TIMEOUT_S = 40


class Server:
    """`kgw serve` over a SeaweedFS."""

    def __init__(
        self,
        url: str,
        node_id: int,
        *arguments: str,
        machine: Path | None = None,
        early: signal.Signals | None = None,
    ) -> None:
        """Those that share a `machine` see when another one of them has ended.

        An `early` signal comes before it can take any.
        """
        settings = {
            "kgw.seaweedmq.lease.ms": LEASE_MS,
            "kgw.handover.ms": 12_000,
            "kgw.admin.listeners": "127.0.0.1:0",
        }
        program = ["-m", "kgw"] if early is None else ["-c", EARLY.format(number=int(early))]
        command = [sys.executable, *program, "serve", "--json", "--backend", url]
        command += ["--listen", "127.0.0.1:0", "--node-id", str(node_id), *arguments]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **({} if machine is None else {"TMPDIR": str(machine)})},
        )

    def ready(self) -> Commands:
        """Wait until it serves; return commands that ask it."""
        assert self.process.stdout is not None
        (listener,) = json.loads(self.process.stdout.readline())["listeners"]
        return Commands(f"127.0.0.1:{listener['port']}")

    def said(self, *events: str) -> dict[str, Any]:
        """Wait for a line of its log that begins with one of these, and return it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            fields: dict[str, Any] = json.loads(line)
            if fields.get("event", "").startswith(events):
                return fields
        raise AssertionError(f"it never said {events!r}")

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, if one is given; return the exit code and the rest of the log."""
        if number is not None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=patience.seconds(TIMEOUT_S))
        return self.process.returncode, errors


@pytest.fixture
def started() -> Iterator[list[Server]]:
    """Collects what a test starts, and ends it."""
    servers: list[Server] = []
    yield servers
    for one in servers:
        with one.process:
            one.process.kill()


def test_from_one_server_to_the_next(
    seaweedfs: Cluster, started: list[Server], tmp_path: Path
) -> None:
    """A stand-by, a take-over on demand, a kill, an orderly stop; every record is there."""
    url = seaweedfs.url("two-servers")
    started.append(first := Server(url, 1))
    asked = first.ready()
    asked.succeed("topics", "create", "orders", "-p", "1")
    asked.succeed("produce", "orders", data="one")

    # It waits, says for whom, sends clients there, and can be told to end.
    started.append(idle := Server(url, 3))
    said = idle.said("standing by")
    assert said["leader"].startswith("node 1 at 127.0.0.1:")
    with pytest.raises(CommandError, match="503"):
        get(("127.0.0.1", int(said["admin"].rpartition(":")[2])), "/health/ready")
    through_idle = Commands(said["listeners"].rpartition("/")[2])
    assert "orders" in through_idle.succeed("topics", "list")
    through_idle.succeed("produce", "orders", data="two")
    assert "node 3" in first.said("gateways that stand by")["nodes"]
    assert 0 == idle.end(signal.SIGTERM)[0]

    # Who is told to take over does so at once; the first one sends its clients there, stands by,
    # and leads again when that one is killed: it is one process, at one address.
    started.append(second := Server(url, 2, "--take-over"))
    second.ready()
    asked.succeed("produce", "orders", data="three")
    first.said("another server has taken over")
    first.said("standing by")
    assert "two" in asked.succeed("consume", "orders")
    second.end(signal.SIGKILL)
    asked = first.ready()
    asked.succeed("produce", "orders", data="four")

    # Who stands by elsewhere follows a killed one when the lease has ended.
    started.append(third := Server(url, 4, machine=tmp_path))
    third.said("standing by")
    first.end(signal.SIGKILL)
    asked = third.ready()
    asked.succeed("produce", "orders", data="five")

    # One that is stopped has the other one take over first.
    started.append(last := Server(url, 5))
    last.said("standing by")
    third.said("gateways that stand by")
    third.process.send_signal(signal.SIGTERM)
    third.said("stopping: a server that stands by is to take over first")
    assert third.said("clients are sent to the server")["leader"].startswith("node 5 at ")
    assert 0 == third.end()[0]
    asked = last.ready()
    asked.succeed("produce", "orders", data="six")
    written = ["one", "two", "three", "four", "five", "six"]
    assert written == asked.succeed("consume", "orders").split()
    assert 0 == last.end(signal.SIGTERM)[0]


def test_a_stop_without_anybody_who_stands_by(seaweedfs: Cluster, started: list[Server]) -> None:
    """It ends as one that is alone, and waits for nobody."""
    started.append(alone := Server(seaweedfs.url("alone"), 1))
    alone.ready()
    code, errors = alone.end(signal.SIGTERM)
    assert 0 == code
    assert "take over" not in errors


def test_a_standby_with_the_leaders_node_id(seaweedfs: Cluster, started: list[Server]) -> None:
    """Both say what has to be changed; clients are told of the leader alone."""
    url = seaweedfs.url("one-id")
    started.append(first := Server(url, 1))
    first.ready()
    started.append(second := Server(url, 1))
    second.said("clients are not told of the stand-by node 1 at 127.0.0.1:")
    assert "standbys" == first.said("problem")["reason"]


def test_who_is_told_to_take_over_while_it_starts_does_so(
    seaweedfs: Cluster, started: list[Server]
) -> None:
    """What came before it could be taken is not lost, and does not end the process."""
    url = seaweedfs.url("told-early")
    started.append(first := Server(url, 1))
    first.ready()
    started.append(second := Server(url, 2, early=signal.SIGUSR1))
    second.ready()
    first.said("another server has taken over")
    first.said("standing by")
    assert 0 == first.end(signal.SIGTERM)[0]
    assert 0 == second.end(signal.SIGTERM)[0]


def test_who_took_over_and_is_replaced_does_not_take_over_again(
    seaweedfs: Cluster, started: list[Server], tmp_path: Path
) -> None:
    """It was told so once. The one that leads again says so to operators, too."""
    url = seaweedfs.url("told-once")
    started.append(first := Server(url, 1, machine=tmp_path))
    first.ready()
    started.append(second := Server(url, 2, "--take-over"))
    second.ready()
    admin = "127.0.0.1", int(first.said("standing by")["admin"].rpartition(":")[2])
    with pytest.raises(CommandError, match="503"):
        get(admin, "/health/ready")
    first.process.send_signal(signal.SIGUSR1)
    first.ready()
    second.said("another server has taken over")
    assert second.said("standing by", "this gateway leads")["event"].startswith("standing by")
    get(admin, "/health/ready")
    assert 0 == second.end(signal.SIGTERM)[0]
    assert 0 == first.end(signal.SIGTERM)[0]
    # What it was before it stood by is closed, too.
    assert [] == list(tmp_path.iterdir())


def test_a_killed_server_is_started_again(
    seaweedfs: Cluster, started: list[Server], tmp_path: Path
) -> None:
    """On its machine it does not wait for its own lease, while a live one is waited for."""
    url = seaweedfs.url("started-again")
    started.append(Server(url, 1, machine=tmp_path))
    asked = started[0].ready()
    asked.succeed("topics", "create", "orders", "-p", "1")
    for value in ("one", "two"):
        asked.succeed("produce", "orders", data=value)
        started.append(idle := Server(url, 2, machine=tmp_path))
        idle.said("standing by")
        assert 0 == idle.end(signal.SIGTERM)[0]
        started[0].end(signal.SIGKILL)
        assert 1 == len(list(tmp_path.iterdir()))
        started[0] = again = Server(url, 1, machine=tmp_path)
        again.said("the gateway that led has ended")
        asked = again.ready()
    assert ["one", "two"] == asked.succeed("consume", "orders").split()
    assert 0 == started[0].end(signal.SIGTERM)[0]
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--backend", "seaweedmq://127.0.0.1:1/kafka"], 4, "127.0.0.1:1"),
        (["--backend", "seaweedmq://127.0.0.1:8888"], 2, "the namespace is missing"),
        (["--backend", "seaweedmq://a:1,b:1/kafka"], 2, "more than one filer"),
        (["--backend", "seaweedmq://a:1/kafka", "--data-dir", "d"], 2, "log.dirs (--data-dir)"),
        (["--backend", "memory", "--take-over"], 2, "nothing to take over"),
    ],
)
def test_what_cannot_be_served(arguments: list[str], code: int, why: str) -> None:
    """One line says why, and the exit code whose business it is."""
    command = [sys.executable, "-m", "kgw", "serve", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=patience.seconds(40), check=False
    )
    assert code == ended.returncode, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert why in last


def test_the_packages_that_it_needs_are_named() -> None:
    """Where `kgw-broker[seaweedmq]` is not installed, pip's command is in the error."""
    program = "import sys; sys.modules['grpc'] = None; from kgw.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--backend", "seaweedmq://a:1/kafka"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=patience.seconds(40), check=False
    )
    assert 4 == ended.returncode, ended.stderr
    assert install_command("seaweedmq") in ended.stderr
