"""Each error of kgw that docs/troubleshooting.md quotes is caused, and said in these words."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c
import pytest
from click.testing import CliRunner

from kgw.cli.doctor.spark import find_java
from kgw.cli.main import main
from kgw.client import AdminClient, AsyncClient, NewRecord, Producer, ServerRefusedError
from kgw.groups.trace import RebalanceCause
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.docs.pages import blocks, prints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCS / "reference"
PAGE = (DOCS / "troubleshooting.md").read_text()
# The lines of what is shown that begin as an error of a command does.
QUOTES = [
    line
    for block in blocks(PAGE)
    if block.language == "text"
    for line in block.text.splitlines()
    if line.startswith(("error: ", "problem: "))
]
# Those that this module has caused and compared; the last test looks whether it is all of them.
KNOWN = {
    "refused": "error: cannot connect to",
    "advertised": "problem: node 0 advertises",
    "unknown": "error: topic orders: UNKNOWN_TOPIC",
    "storage": "error: cannot produce to orders partition 0: KAFKA_STORAGE",
    "room": "problem: the server says (room)",
    "large": "error: cannot produce to orders partition 0: MESSAGE_TOO_LARGE",
    "replication": "error: cannot create topic orders: INVALID_REPLICATION",
    "served": "error: ssl.provider",
    "variable": "error: environment variable",
    "config": "error: cannot create topic orders: INVALID_CONFIG",
    "offset": "error: partition 0 has no offset",
    "port": "error: cannot listen at",
    "lock": "error: … is in use",
    "format": "error: the data directory has format",
    "file": "error: …: Not a directory",
    "java": "problem: Java",
    "extra": "error: this command needs",
}


def quoted(name: str) -> str:
    """The line of the page that a name stands for."""
    (line,) = [one for one in QUOTES if one.startswith(KNOWN[name])]
    return line


def said(name: str, text: str) -> bool:
    """Whether a line of a text is what the page quotes."""
    return any(prints(quoted(name) + "\n", line + "\n") for line in text.splitlines())


def kgw(bootstrap: str, *arguments: str, data: str = "") -> Result:
    """Run a command in this process."""
    env = {"KGW_BOOTSTRAP": bootstrap, "KGW_CONFIG": None}
    return CliRunner(env=env).invoke(main, arguments, input=data, prog_name="kgw")


def serve(*arguments: str, **variables: str) -> tuple[int, str]:
    """Start a server that must not start; its exit code and what it says."""
    ended = subprocess.run(
        [*SERVE, *arguments], capture_output=True, text=True, check=False,
        timeout=patience.seconds(20), env=os.environ | variables,
    )  # fmt: skip
    return ended.returncode, ended.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A server that lets nobody create a topic by using it."""
    data = tmp_path_factory.mktemp("troubles") / "data"
    with GatewayProcess(data, "auto.create.topics.enable=false") as process:
        yield process


@pytest.mark.slow
def test_errors_of_clients(server: GatewayProcess) -> None:
    """What a server answers to a client that asks for what there is not."""
    at = server.bootstrap
    assert said("unknown", kgw(at, "produce", "orders", data="x").stderr)
    create = ("topics", "create", "orders")
    assert said("replication", kgw(at, *create, "--replication-factor", "3").stderr)
    assert said("config", kgw(at, *create, "--set", "min.insync.replicas=2").stderr)
    assert 0 == kgw(at, *create).exit_code
    assert said("large", kgw(at, "produce", "orders", data="x" * 2_000_000).stderr)
    kgw(at, "produce", "orders", data="x\n" * 10)
    kgw(at, "topics", "delete-records", "orders", "--before", "5", "--yes")
    assert said("offset", kgw(at, "consume", "orders", "--from", "0").stderr)


@pytest.mark.slow
def test_other_protocols_are_named_in_the_log(server: GatewayProcess) -> None:
    """TLS and HTTP are closed at once, with their first bytes taken for a length."""
    for first in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n"):
        with socket.create_connection((server.host, server.port)) as client:
            client.sendall(first)
            assert b"" == client.recv(1)
    assert "a frame of 36929561…: at most 104857600 are read" in PAGE
    assert "`a frame of 1195725856 bytes`" in PAGE
    log = server.log_path.read_text()
    # Of each kind of trouble one line in ten seconds is written.
    assert re.search(r"a frame of 36929561\d bytes: at most 104857600 are read", log)
    assert int.from_bytes(b"GET ", "big") == 1195725856


async def store(port: int) -> None:
    """Store a record, by a client that does not try again, as commands do for half a minute."""
    async with AsyncClient([("127.0.0.1", port)], retry_s=0) as client:
        await AdminClient(client).create_topic("orders")
        async with Producer(client) as producer:
            await (await producer.send("orders", 0, [NewRecord(None, b"x", 0)]))


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """An append is refused while less is free than the reserve."""
    with GatewayProcess(tmp_path / "data", "kgw.min.free.bytes=100TB") as process:
        with pytest.raises(ServerRefusedError) as refused:
            asyncio.run(store(process.port))
        assert said("room", kgw(process.bootstrap, "doctor").stdout)
    assert said("storage", f"error: {refused.value}")


@pytest.mark.slow
def test_an_advertised_address_that_nobody_knows(tmp_path: Path) -> None:
    """`kgw doctor` names it."""
    setting = "advertised.listeners=PLAINTEXT://kgw.invalid:9092"
    with GatewayProcess(tmp_path / "data", setting) as process:
        found = kgw(process.bootstrap, "doctor")
    assert 1 == found.exit_code
    assert said("advertised", found.output)


@pytest.mark.slow
def test_starts_that_are_refused(server: GatewayProcess, tmp_path: Path) -> None:
    """The port, the directory: each with the exit code that the page says."""
    code, errors = serve("--listen", server.bootstrap, "--data-dir", str(tmp_path / "other"))
    assert (5, True) == (code, said("port", errors.replace(server.bootstrap, "127.0.0.1:9092")))
    code, errors = serve("--listen", "127.0.0.1:0", "--data-dir", str(server.data_dir))
    assert (4, True) == (code, said("lock", errors))
    (tmp_path / "file").touch()
    code, errors = serve("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file"))
    assert (4, True) == (code, said("file", errors))


@pytest.mark.slow
@pytest.mark.damages_storage("its format is one of a later time")
def test_a_directory_of_a_newer_program(tmp_path: Path) -> None:
    """It is refused by its format."""
    data = tmp_path / "data"
    GatewayProcess(data).start().stop()
    text = b'{"format":2}\n'
    (data / "format.json").write_bytes(text + b"crc32c %08x\n" % crc32c.crc32c(text))
    code, errors = serve("--listen", "127.0.0.1:0", "--data-dir", str(data))
    assert (4, True) == (code, said("format", errors))


def test_settings_that_are_refused() -> None:
    """By name, with the reason; a variable with the name that was meant."""
    refused = kgw("", "serve", "--set", "ssl.provider=X", "--print-config")
    assert (2, True) == (refused.exit_code, said("served", refused.stderr))


@pytest.mark.slow
def test_a_misspelt_variable() -> None:
    """It ends the start."""
    code, errors = serve("--print-config", KGW_NUM_PARTITION="3")
    assert (2, True) == (code, said("variable", errors))


def test_no_server() -> None:
    """The exit code is 3."""
    result = kgw("127.0.0.1:1", "topics", "list")
    shown = result.stderr.replace("127.0.0.1:1", "127.0.0.1:9092")
    assert (3, True) == (result.exit_code, said("refused", shown))


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kgw doctor --spark` says what to install."""
    monkeypatch.setenv("PATH", "")
    found = find_java({})
    assert said("java", f"{found.severity}: {found.subject}: {found.detail}")


@pytest.mark.slow
def test_a_missing_package() -> None:
    """A command names the extra that brings it."""
    run = "import sys; sys.modules['numpy'] = None; from kgw.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", run, "pipeline", "lag", "--history", "--topic", "orders"],
        capture_output=True, text=True, check=False, timeout=patience.seconds(20),
    )  # fmt: skip
    assert (1, True) == (ended.returncode, said("extra", ended.stderr))


def test_names_exist() -> None:
    """The metrics and the causes of rebalances that the page names."""
    metrics = (REFERENCE / "metrics.md").read_text()
    named = set(re.findall(r"`(kgw_\w+)`", PAGE)) - {"kgw_broker"}
    assert [] == [one for one in sorted(named) if f"`{one}`" not in metrics]
    causes = {cause.value for cause in RebalanceCause}
    assert set(re.findall(r"`((?:member|session)_\w+)`", PAGE)) <= causes


def test_every_quotation_is_caused_here() -> None:
    """No error is quoted that no test of this module causes."""
    assert sorted(QUOTES) == sorted(quoted(name) for name in KNOWN)
