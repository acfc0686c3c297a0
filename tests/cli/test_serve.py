from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.config import SERVER_SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands


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
