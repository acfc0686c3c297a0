from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped directory: a compacted topic with 90 records of three keys, and another topic."""
    data_dir = tmp_path_factory.mktemp("compact") / "data"
    with GatewayProcess(data_dir) as process:
        kgw = Commands(process.bootstrap)
        settings = ("--set", "cleanup.policy=compact", "--set", "segment.bytes=1024")
        kgw.succeed("topics", "create", "states", "-p", "2", *settings)
        kgw.succeed("topics", "create", "events")
        lines = "".join(f"key-{number % 3}:value-{number}\n" for number in range(90))
        options = ("-p", "0", "-k", ":", "--batch-records", "1")
        kgw.succeed("produce", "states", *options, data=lines)
    return data_dir


@pytest.fixture
def data_dir(template: Path, tmp_path: Path) -> Path:
    """A copy of the directory."""
    return shutil.copytree(template, tmp_path / "data")


def sizes(data_dir: Path) -> dict[str, int]:
    """Return the size of every segment file that holds records."""
    return {
        str(path.relative_to(data_dir)): path.stat().st_size
        for path in data_dir.glob("partitions/*/*.log")
        if path.stat().st_size
    }


def test_a_dry_run_says_what_a_run_does(offline: Commands, data_dir: Path) -> None:
    """The same figures, first without and then with the effect; a second run finds nothing."""
    before = sizes(data_dir)
    (planned, empty) = offline.json("log", "compact", str(data_dir), "--dry-run")
    assert before == sizes(data_dir)
    assert not planned["compacted"]
    assert planned["records_after"] < planned["records_before"] < 90
    (done, _) = offline.json("log", "compact", str(data_dir), "--topic", "states")
    assert done["compacted"]
    for name in ("records_before", "records_after", "bytes_before", "bytes_after"):
        assert planned[name] == done[name]
    assert sum(sizes(data_dir).values()) < sum(before.values())
    assert (("states", 1), False) == ((empty["topic"], empty["partition"]), empty["compacted"])
    assert "No problems found.\n" == offline.succeed("log", "check", str(data_dir))
    (again, _) = offline.json("log", "compact", str(data_dir))
    assert not again["compacted"]
    assert "0%" in offline.succeed("log", "compact", str(data_dir))


def test_the_servers_settings_hold(
    offline: Commands, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, the environment or --set: what a topic does not say itself comes from there."""
    lag = "log.cleaner.min.compaction.lag.ms"
    file = tmp_path / "kgw.toml"
    file.write_text(f'"{lag}" = "36500d"\n')
    command = ("log", "compact", str(data_dir), "--dry-run", "--topic", "states")
    for options in (("--config", str(file)), ("--set", f"{lag}=36500d")):
        assert offline.json(*command, *options)[0].keys() == offline.json(*command)[1].keys()
    with monkeypatch.context() as patch:
        patch.setenv("KGW_LOG_CLEANER_MIN_COMPACTION_LAG_MS", "36500d")
        assert "records_before" not in offline.json(*command)[0]
    assert "records_before" in offline.json(*command)[0]
    assert "nonsense" in offline.fail(ExitCode.USAGE, *command, "--set", f"{lag}=nonsense")


def test_what_cannot_be_compacted_is_refused(
    offline: Commands, data_dir: Path, tmp_path: Path
) -> None:
    """Topics that are unknown or not compacted, directories that are none or in use."""
    message = offline.fail(ExitCode.FAILED, "log", "compact", str(data_dir), "--topic", "missing")
    assert "there is no topic missing" in message
    message = offline.fail(ExitCode.FAILED, "log", "compact", str(data_dir), "--topic", "events")
    assert "has no compact" in message
    message = offline.fail(ExitCode.DATA_DIRECTORY, "log", "compact", str(tmp_path))
    assert "is not a data directory" in message
    assert not list(tmp_path.glob("*.json"))
    with GatewayProcess(data_dir):
        message = offline.fail(ExitCode.DATA_DIRECTORY, "log", "compact", str(data_dir))
    assert "in use" in message or "uses" in message or "held" in message
