"""What the compose file starts are command lines that the programs take."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from tests.seaweedfs.binary import weed
from tests.seaweedfs.fixtures import seaweedfs_or_skip

ROOT = Path(__file__).resolve().parents[2]
# Written as JSON, which YAML is, so that they are read here without a library for YAML.
COMMANDS = [
    [str(word) for word in json.loads(found)]
    for found in re.findall(
        r"^    command: (\[.*?\])$",
        (ROOT / "compose.seaweedfs.yaml").read_text(),
        re.DOTALL | re.MULTILINE,
    )
]
OF_KGW = [one for one in COMMANDS if one[0].startswith("--")]
OF_WEED = [one for one in COMMANDS if not one[0].startswith("--")]


def test_every_service_is_looked_at() -> None:
    """Master, volume server and filer; the gateway and its stand-by."""
    assert ["master", "volume", "filer"] == [one[0] for one in OF_WEED]
    assert 2 == len(OF_KGW)


def test_a_gateway_keeps_its_lock_when_it_is_started_again() -> None:
    """Nothing else of its container can be written to."""
    text = (ROOT / "compose.seaweedfs.yaml").read_text()
    (kgw,) = re.findall(r"^x-kgw:.*?^services:", text, re.DOTALL | re.MULTILINE)
    assert "  read_only: true\n" in kgw
    assert '  volumes: ["/tmp"]\n' in kgw


@pytest.mark.parametrize("command", OF_KGW, ids=" ".join)
def test_kgw_takes_its_command_line(command: list[str]) -> None:
    """With the entry point of the compose file, which gives no data directory."""
    assert 'entrypoint: ["kgw", "serve"]' in (ROOT / "compose.seaweedfs.yaml").read_text()
    result = CliRunner().invoke(main, ["serve", *command, "--print-config", "--json"])
    assert (0, "") == (result.exit_code, result.stderr)
    printed = json.loads(result.stdout)
    assert "seaweedmq://filer:8888/kafka" == printed["kgw.backend"]["value"]
    assert "default" == printed["log.dirs"]["origin"]


@pytest.mark.parametrize("command", OF_WEED, ids=lambda one: one[0])
def test_weed_knows_the_options(command: list[str]) -> None:
    """Of the version that kgw is tried with."""
    kind, *options = command
    with seaweedfs_or_skip():
        program = weed()
    known = subprocess.run(
        [program, "help", kind], capture_output=True, text=True, check=False, timeout=20
    )
    names = set(re.findall(r"^  -([\w.]+)", known.stdout + known.stderr, re.MULTILINE))
    assert [] == [one for one in options if one[1:].partition("=")[0] not in names]
