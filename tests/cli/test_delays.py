"""Commands say at once that something fails and is tried again, long before they give up."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import pytest

import kgw.cli
from kgw.cli.shared.errors import ExitCode
from kgw.client import AsyncClient
from kgw.config import parse_address
from tests import patience
from tests.cli.conftest import Commands
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = "127.0.0.1:1"
REFUSED = f"cannot connect to {NOWHERE}: connection refused"
ADVERTISED = f"{REFUSED} (the address that the server advertises for node 0)"


@pytest.fixture(scope="module")
def misleading() -> Iterator[Commands]:
    """Commands that talk to a server whose clients are sent to where nobody listens."""
    with ServerThread(advertised_listeners=(NOWHERE,)) as server:
        asyncio.run(create_events(server.address))
        yield Commands(server.address)


async def create_events(address: str) -> None:
    """Create a topic in the one way that asks nobody at an advertised address."""
    async with AsyncClient([parse_address(address)]) as client:
        await client.topic("events", auto_create=True)


def first_line(bootstrap: str, *arguments: str) -> str:
    """Return the first line that a command writes to standard error, and end it there."""
    with subprocess.Popen(
        [sys.executable, "-m", "kgw", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "KGW_BOOTSTRAP": bootstrap},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        limit = Timer(patience.seconds(15), process.kill)
        limit.start()
        process.stdin.write("a\n")
        process.stdin.flush()
        line = process.stderr.readline()
        limit.cancel()
        process.kill()
    return line.removesuffix("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "events"],
        ["consume", "events"],
        ["topics", "describe", "events"],
        ["offsets", "describe", "events"],
        ["groups", "lag", "readers"],
        ["producers", "events"],
        ["transactions", "describe", "mine"],
    ],
    ids=" ".join,
)
def test_an_advertised_address_that_is_wrong_is_told_at_once(
    misleading: Commands, arguments: list[str]
) -> None:
    """The first failure is on standard error, with the address and how long it is tried again."""
    line = first_line(misleading.bootstrap, *arguments)
    expected = re.escape(ADVERTISED) + "; trying again, for [0-9]+ s at most"
    assert re.fullmatch(expected, line), line


@pytest.mark.slow
def test_a_server_that_is_away_is_told_at_once_by_the_pipeline(tmp_path: Path) -> None:
    """A job that outlives a restart of the server says that it waits for one."""
    line = first_line(
        NOWHERE, "pipeline", "archive", "--topic", "events", "--out", str(tmp_path / "archive")
    )
    assert f"{REFUSED}; trying again, for 30 s at most" == line


@pytest.mark.slow
def test_a_delay_is_json_where_errors_are(misleading: Commands) -> None:
    """With --json each line of standard error is an object, the error the last of them."""
    line = first_line(misleading.bootstrap, "topics", "describe", "events", "--json")
    assert ADVERTISED == json.loads(line)["delay"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["top", "--once"], ["top", "--json"]], ids=" ".join)
def test_an_admin_side_that_swallows_what_it_is_sent_is_told(arguments: list[str]) -> None:
    """Soon, with its address and how long is left, and as JSON where errors are."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        line = first_line(NOWHERE, *arguments, "--admin", where)
    expected = f"http://{where} does not answer"
    if "--json" in arguments:
        assert {"delay": expected, "left_s": 9.0} == json.loads(line)
    else:
        assert f"{expected}; waiting, for 9 s at most" == line


def test_a_server_that_is_away_is_an_error_at_once(offline: Commands) -> None:
    """Nobody waits for a server that a command names itself."""
    assert REFUSED == offline.fail(ExitCode.CANNOT_CONNECT, "topics", "list")


def test_no_command_has_a_client_that_is_silent() -> None:
    """Each client of the command line tells its delays; only completion has nobody to tell."""
    silent = {
        path.name
        for path in Path(kgw.cli.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"AsyncClient", "WireClient"}
        and not {"delays", "tell"} & {one.arg for one in node.keywords}
    }
    assert {"suggestions.py"} == silent
