"""Two processes of one namespace of a real SeaweedFS, as users start and kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.admin_http import get
from kgw.cli.errors import CommandError
from kgw.version import install_command
from tests import patience
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.seaweedfs.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

LEASE_MS = 3_000
TIMEOUT_S = 40


class Server:
    """`kgw serve` over a SeaweedFS."""

    def __init__(
        self, url: str, node_id: int, *arguments: str, machine: Path | None = None
    ) -> None:
        """Those that share a `machine` see when another one of them has ended."""
        settings = {
            "kgw.seaweedmq.lease.ms": LEASE_MS,
            "kgw.handover.ms": 12_000,
            "kgw.admin.listeners": "127.0.0.1:0",
        }
        command = [sys.executable, "-m", "kgw", "serve", "--json", "--backend", url]
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

    def said(self, event: str) -> dict[str, Any]:
        """Wait for a line of its log, and return it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            fields: dict[str, Any] = json.loads(line)
            if fields.get("event", "").startswith(event):
                return fields
        raise AssertionError(f"it never said {event!r}")

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

    # It waits, says for whom, and can be told to end.
    started.append(idle := Server(url, 3))
    said = idle.said("standing by")
    assert said["leader"].startswith("node 1 at 127.0.0.1:")
    with pytest.raises(CommandError, match="503"):
        get(("127.0.0.1", int(said["admin"].rpartition(":")[2])), "/health/ready")
    assert 0 == idle.end(signal.SIGTERM)[0]

    # Who is told to take over does so at once; the first one sends its clients there, and ends.
    started.append(second := Server(url, 2, "--take-over"))
    second.ready()
    asked.succeed("produce", "orders", data="two")
    code, errors = first.end()
    assert 7 == code
    assert "has taken over" in errors.splitlines()[-1]

    # Who stands by elsewhere follows a killed one when the lease has ended, and an orderly one at
    # once.
    for number, end in ((4, signal.SIGKILL), (5, signal.SIGTERM)):
        started.append(following := Server(url, number, machine=tmp_path))
        following.said("standing by")
        started[-2].end(end)
        asked = following.ready()
        asked.succeed("produce", "orders", data=f"from-{number}")
    assert ["one", "two", "from-4", "from-5"] == asked.succeed("consume", "orders").split()
    assert 0 == started[-1].end(signal.SIGTERM)[0]


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
