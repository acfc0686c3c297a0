"""What a run of pytest with brokers leaves in its process: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

TESTS = """
import asyncio
import socket

import pytest
from kgw.client import AsyncClient, client_security

left = []

@pytest.mark.kgw_topics("orders")
@pytest.mark.parametrize("number", range(3))
def test_passes(kgw_server, kgw_broker, number):
    kgw_broker.produce("orders", ["a"])
    assert [b"a"] == kgw_broker.values("orders")
    kgw_broker.restart()

@pytest.mark.kgw_backend("embedded")
@pytest.mark.kgw_topics("orders")
def test_on_disk(kgw_broker):
    kgw_broker.produce("orders", ["a"])
    kgw_broker.restart(kill=True)

@pytest.mark.kgw_topics("orders")
def test_fails_in_the_middle(kgw_broker):
    kgw_broker.faults.delay("ApiVersions", 3600)
    kgw_broker.faults.refuse_connections()
    assert [b"a"] == kgw_broker.values("orders")

def test_leaves_a_client(kgw_broker):
    left.append(socket.create_connection(("127.0.0.1", kgw_broker.port)))
    kgw_broker.faults.delay("ApiVersions", 3600)
    left[0].sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
    while not kgw_broker.faults.struck():
        pass

def test_the_client_was_told(kgw_broker):
    with left.pop() as client:
        client.settimeout(600)
        try:
            assert b"" == client.recv(1)
        except ConnectionError:
            pass

@pytest.mark.kgw_security("SASL_SSL", users={"alice": "secret"})
def test_leaves_a_client_in_its_handshake(kgw_broker):
    left.append(socket.create_connection(("127.0.0.1", kgw_broker.port)))
    security = client_security(kgw_broker.client_config())
    async def ask():
        async with AsyncClient([("127.0.0.1", kgw_broker.port)], security=security) as client:
            await client.topics()
    asyncio.run(ask())
    kgw_broker.restart()
    asyncio.run(ask())
    left.pop().close()

def test_of_a_client_in_the_loop(kgw_broker):
    async def ask():
        async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
            await client.topics()
    asyncio.run(ask())
"""
INTERRUPTED = """
def test_is_interrupted(kgw_server, kgw_broker):
    kgw_broker.produce("orders", ["a"]) if kgw_broker.topics() else None
    raise KeyboardInterrupt
"""
PROGRAM = """
import gc, json, os, pathlib, sys, threading, warnings
import pytest

def open_files():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except FileNotFoundError:
            pass  # that of the listing
    return sorted(found)

def state():
    gc.collect()
    return {
        "threads": sorted(one.name for one in threading.enumerate()),
        "tasks": len(os.listdir("/proc/self/task")),
        "files": open_files(),
        "below tmp": sorted(os.listdir(os.environ["TMPDIR"])),
    }

warnings.simplefilter("error")
states = [state()]
codes = []
for name in sys.argv[1:]:
    codes.append(int(pytest.main(
        [name, "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:asyncio",
         "--basetemp", "base"]
    )))
    states.append(state())
pathlib.Path("states.json").write_text(json.dumps([codes, states]))
"""


DROPS = """
import socket
from kgw.testing.broker import Broker

with Broker() as broker, socket.create_connection(("127.0.0.1", broker.port)) as client:
    broker.faults.drop("ApiVersions", must_strike=True)
    client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
    try:
        client.recv(1)
    except ConnectionError:
        pass
    broker.faults.check()
"""


def test_nothing_is_said_where_nobody_has_set_up_logging() -> None:
    """Python would print a broker's warnings into the output of unittest."""
    ran = subprocess.run([sys.executable, "-c", DROPS], check=False, capture_output=True, text=True)
    assert (0, "", "") == (ran.returncode, ran.stdout, ran.stderr)


def test_runs_leave_nothing(tmp_path: Path) -> None:
    """No thread, socket, file or warning: tests that pass, fail, leave clients, are interrupted."""
    for name, text in (
        ("test_runs.py", TESTS),
        ("test_interrupted.py", INTERRUPTED),
        ("program.py", PROGRAM),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "tmp").mkdir()
    # The first run imports what pytest and uvloop keep open for as long as the process lasts.
    runs = ["test_runs.py", "test_runs.py", "test_interrupted.py"]
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "program.py", *runs],
        check=False,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
    )
    assert (0, "") == (ran.returncode, ran.stderr), ran.stdout
    codes, states = json.loads((tmp_path / "states.json").read_text())
    assert ([1, 1, 2], 2) == (codes, ran.stdout.count("1 failed, 8 passed")), ran.stdout
    assert "warning" not in ran.stdout
    assert [["MainThread"]] * 4 == [one["threads"] for one in states]
    assert [states[1]] * 3 == states[1:]
    assert [[]] * 4 == [one["below tmp"] for one in states]
