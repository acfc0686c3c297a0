from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from kgw.cli.errors import ExitCode
from kgw.config import SERVER_SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands

SERVE = [sys.executable, "-m", "kgw", "serve", "--listen", "127.0.0.1:0"]


def test_flags_are_settings(offline: Commands) -> None:
    """Each flag of its own sets what it stands for, and says so."""
    found = offline.json(
        "serve",
        *("--listen", "127.0.0.1:9095", "--listen", "INTERNAL://[::1]:9096"),
        *("--data-dir", "there", "--advertise", "kgw.example:9092", "--node-id", "3"),
        *("--set", "num.partitions=4", "--set", "kgw.cache.bytes=64MB", "--print-config"),
    )
    assert SERVER_SETTINGS.keys() == found.keys()
    assert {
        "value": ["PLAINTEXT://127.0.0.1:9095", "INTERNAL://[::1]:9096"],
        "origin": "--listen",
    } == found["listeners"]
    assert {"value": "there", "origin": "--data-dir"} == found["log.dirs"]
    assert ["PLAINTEXT://kgw.example:9092"] == found["advertised.listeners"]["value"]
    assert {"value": 3, "origin": "--node-id"} == found["node.id"]
    assert {"value": 64 << 20, "origin": "--set"} == found["kgw.cache.bytes"]
    assert {"value": 10_000, "origin": "default"} == found["kgw.shutdown.timeout.ms"]


def test_nameless_listeners_are_numbered(offline: Commands) -> None:
    """Two plain addresses are two listeners, and are advertised in the same order."""
    found = offline.json(
        *("serve", "--print-config", "--listen", "127.0.0.1:1", "--listen", "[::1]:1"),
        *("--advertise", "a:1", "--advertise", "b:1"),
    )
    assert ["PLAINTEXT://127.0.0.1:1", "PLAINTEXT_2://[::1]:1"] == found["listeners"]["value"]
    assert ["PLAINTEXT://a:1", "PLAINTEXT_2://b:1"] == found["advertised.listeners"]["value"]


def test_the_printed_configuration_is_a_configuration(offline: Commands, tmp_path: Path) -> None:
    """What --print-config prints, --config takes, and it means the same."""
    printed = offline.succeed("serve", "--print-config", "--set", "num.partitions=4")
    assert 4 == tomllib.loads(printed)["num.partitions"]
    file = tmp_path / "kgw.toml"
    file.write_text(printed, encoding="utf-8")
    again = offline.json("config", "print", "--config", str(file))
    assert {"value": 4, "origin": f"file {file}"} == again["num.partitions"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "num.partition=1"], "did you mean num.partitions?"),
        (["--set", "default.replication.factor=3"], "kgw.lenient.replication"),
        (["--set", "nothing"], "KEY=VALUE"),
        (["--listen", "nowhere"], "--listen: 'nowhere' has no port"),
        (["--advertise", "0.0.0.0:1"], "no address that a client could connect to"),
        (["--config", "missing.toml"], "cannot read missing.toml"),
    ],
)
def test_bad_settings_are_wrong_usage(
    offline: Commands, arguments: list[str], expected: str
) -> None:
    """Nothing starts with a configuration that is not understood."""
    assert expected in offline.fail(ExitCode.USAGE, "serve", *arguments)


@pytest.mark.slow
def test_a_server_serves_until_it_is_told_to_stop(offline: Commands, tmp_path: Path) -> None:
    """One ready line, then service, then exit code 0 after SIGTERM; the records stay."""
    for start in range(2):
        with subprocess.Popen(
            [*SERVE, "--data-dir", str(tmp_path / "data"), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert "ready" == ready["event"]
            address = f"127.0.0.1:{ready['listeners'][0]['port']}"
            offline.succeed("produce", "events", "-b", address, data=f"{start}\n")
            consumed = offline.succeed("consume", "events", "-b", address)
            assert "".join(f"{number}\n" for number in range(start + 1)) == consumed
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(10)
            assert b"" == process.stdout.read()


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A file in the place of the data directory is named in one line, with the exit code for it."""
    in_the_way = tmp_path / "data"
    in_the_way.touch()
    command = [*SERVE, "--data-dir", str(in_the_way)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert (ExitCode.DATA_DIRECTORY, "") == (ended.returncode, ended.stdout)
    assert f"error: {in_the_way}: File exists\n" == ended.stderr
