"""`scripts/run` installs what the server that it starts needs, wherever a setting comes from."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.packages.building import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NEEDED_LOCK = 'source scripts/lib.sh; needed_lock "$@"'


def needed_lock(*arguments: str, **variables: str) -> str:
    """Return the lock file that `scripts/run` installs."""
    return subprocess.run(
        ["bash", "-c", NEEDED_LOCK, "run", *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **variables},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--listen", "127.0.0.1:9092", "--data-dir", "my data"],
        ["--set", "num.partitions=3", "--config", "/missing.toml"],
    ],
)
def test_records_and_state_in_a_directory_need_little(arguments: list[str]) -> None:
    """What most people start is ready soonest."""
    assert "serve" == needed_lock(*arguments, KGW_NUM_PARTITIONS="3", KGW_CONFIG="")


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--backend", "seaweedmq://127.0.0.1:8888/orders"], {}),
        (["--smq-agent", "127.0.0.1:16777"], {}),
        (["--set", "kgw.otel.endpoint=http://127.0.0.1:4318"], {}),
        (["--set", "sasl.enabled.mechanisms=OAUTHBEARER"], {}),
        ([], {"KGW_STATE_URL": "postgresql://127.0.0.1/kgw"}),
        # Here the name of the variable alone says it.
        ([], {"KGW_OTEL_ENDPOINT": "http://127.0.0.1:4318"}),
        ([], {"KGW_SMQ_AGENT_LISTENER": "127.0.0.1:16777"}),
    ],
)
def test_what_needs_more_is_seen(arguments: list[str], variables: dict[str, str]) -> None:
    """In arguments and in the environment."""
    assert "run" == needed_lock(*arguments, **variables)


def test_a_file_of_settings_is_looked_at(tmp_path: Path) -> None:
    """However it is named: as an argument of its own, behind an equals sign, by a variable."""
    file = tmp_path / "kgw of mine.toml"
    file.write_text('"kgw.state.url" = "mysql://127.0.0.1/kgw"\n')
    assert ["run"] * 3 == [
        needed_lock("--config", str(file)),
        needed_lock(f"--config={file}"),
        needed_lock(KGW_CONFIG=str(file)),
    ]
