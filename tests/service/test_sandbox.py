"""The units before systemd's own tools, and the server under their system call filter."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import patience
from tests.app.test_app import API_VERSIONS_V0, Serving
from tests.cli.conftest import Commands
from tests.service.test_units import FOLDER, SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.full]

EXPOSURE_MAX = 2.0
KGW = Path(sys.executable).parent / "kgw"


@pytest.fixture
def units(tmp_path: Path) -> list[str]:
    """The units, with the program of this environment in place of /opt/kgw/bin/kgw."""
    paths = []
    for name in ("kgw.service", "kgw.socket"):
        text = (FOLDER / name).read_text(encoding="utf-8")
        path = tmp_path / name
        path.write_text(text.replace("/opt/kgw/bin/kgw", str(KGW)), encoding="utf-8")
        paths.append(str(path))
    # What docs/systemd.md puts beside the service.
    drop_ins = tmp_path / "kgw.service.d"
    drop_ins.mkdir()
    (drop_ins / "tls.conf").write_text((FOLDER / "tls.conf").read_text(encoding="utf-8"))
    return paths


def test_verified(units: list[str]) -> None:
    """Systemd understands every line, and says so without a warning."""
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_exposure(units: list[str]) -> None:
    """What systemd makes of the hardening, from 0 (none is left) to 10."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
    command += [f"--threshold={EXPOSURE_MAX * 10:.0f}", units[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout.splitlines()[-1])
    assert 0 == done.returncode, done.stdout


class Sandboxed(Serving):
    """`kgw serve` under the unit's filter: what that forbids ends it."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        sandbox = [sys.executable, "-m", "tests.service.sandbox", str(SERVICE)]
        self.process = subprocess.Popen(
            [*sandbox, str(KGW), "serve", "--data-dir", str(data_dir), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[list[Sandboxed]]:
    """Collects what a test starts, and ends it."""
    started: list[Sandboxed] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def compactions(port: int) -> float:
    """Return how many runs of compaction the server has counted."""
    with closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=patience.seconds(15))
    ) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    named = [line for line in lines if line.startswith('kgw_compactions_total{result="complete"}')]
    return sum(float(line.split()[-1]) for line in named)


@pytest.mark.timeout(120)
def test_under_the_filter(tmp_path: Path, serving: list[Sandboxed]) -> None:
    """Records, compaction in its process, a kill, a recovery: nothing else is needed."""
    arguments = ["--json", "--listen", "127.0.0.1:0", "--set", "kgw.admin.listeners=127.0.0.1:0"]
    arguments += ["--set", "log.cleaner.backoff.ms=100"]
    arguments += ["--set", "log.initial.task.delay.ms=100"]
    arguments += ["--set", "kgw.checkpoint.interval.ms=100"]
    serving.append(first := Sandboxed(tmp_path / "data", *arguments))
    ready = json.loads(first.ready())
    port, admin = ready["listeners"][0]["port"], ready["admin"][0]["port"]
    kgw = Commands(f"127.0.0.1:{port}")
    kgw.succeed("topics", "create", "plain", "-p", "3")
    kgw.succeed(
        *("topics", "create", "compacted", "--set", "cleanup.policy=compact"),
        *("--set", "segment.bytes=1048576", "--set", "min.cleanable.dirty.ratio=0.01"),
    )
    lines = "".join(f"key\t{'x' * 1000}\n" for _ in range(3_000))
    kgw.succeed("produce", "compacted", "--key-separator", "\t", data=lines)
    kgw.succeed("produce", "plain", data="value\n" * 1_000)
    assert 1_000 == len(kgw.succeed("consume", "plain").splitlines())
    while not compactions(admin):
        assert first.process.poll() is None, first.wait()
    first.process.kill()
    first.wait()
    serving.append(second := Sandboxed(tmp_path / "data", *arguments))
    port = json.loads(second.ready())["listeners"][0]["port"]
    kgw = Commands(f"127.0.0.1:{port}")
    assert 1_000 == len(kgw.succeed("consume", "plain").splitlines())
    code, errors = second.end(signal.SIGTERM)
    assert 0 == code, errors
    levels = {json.loads(line)["level"] for line in errors.splitlines()}
    assert not levels & {"error", "critical"}, errors


def test_the_filter_bites(tmp_path: Path) -> None:
    """Control: what the unit forbids ends a program, so that the test above says something."""
    forbidden = {
        "a namespace": "import os; os.unshare(os.CLONE_NEWUTS)"
        if sys.version_info >= (3, 12)
        else "import ctypes; ctypes.CDLL(None).unshare(0x04000000)",
        "a module": "import ctypes; ctypes.CDLL(None).syscall(175, 0, 0, 0)",
        "memory to execute": "from mmap import mmap; mmap(-1, 4096, prot=7)",
        "a packet socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    }
    ended = {}
    for what, program in forbidden.items():
        command = [sys.executable, "-m", "tests.service.sandbox", str(SERVICE), sys.executable]
        done = subprocess.run([*command, "-c", program], capture_output=True, check=False)
        ended[what] = -done.returncode
    assert dict.fromkeys(forbidden, signal.SIGSYS) == ended


@pytest.mark.timeout(60)
def test_socket_activate(tmp_path: Path, serving: list[Sandboxed]) -> None:
    """Systemd's own tool opens the socket, and starts kgw for the first client, who is served."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", str(KGW), "serve"]
    command += ["--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
    one = Sandboxed.__new__(Sandboxed)
    one.process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    serving.append(one)
    assert one.process.stderr is not None
    assert "Listening on" in one.process.stderr.readline()
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(API_VERSIONS_V0)
        assert 4 == len(client.recv(4))
    assert port == one.port()
    assert 0 == one.end()[0]
