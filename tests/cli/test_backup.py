"""`kgw backup` and `kgw restore`, as users run them beside a server of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture(autouse=True)
def _no_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run in this process, which has other tests to run."""
    monkeypatch.setattr("kgw.cli.storage.backup._give_way", lambda **_: None)


def consumed(process: GatewayProcess, topic: str) -> list[str]:
    """Return the values of a topic, in the order of their numbers."""
    text = Commands(process.bootstrap).succeed("consume", topic)
    return sorted(text.splitlines(), key=int)


def test_a_served_directory_is_backed_up_listed_verified_and_restored(
    offline: Commands, tmp_path: Path
) -> None:
    """Twice: the second backup shares what the first one has."""
    data_dir, place = str(tmp_path / "data"), str(tmp_path / "place")
    restored_dir = tmp_path / "restored"
    with GatewayProcess(tmp_path / "data") as process:
        kgw = Commands(process.bootstrap)
        kgw.succeed("topics", "create", "orders", "-p", "2")
        kgw.succeed("produce", "orders", data="\n".join(map(str, range(100))))
        first = offline.json("backup", data_dir, "--to", place)
        kgw.succeed("produce", "orders", data="\n".join(map(str, range(100, 150))))
        text = offline.succeed("backup", "create", data_dir, "--to", place, "--copy")
        assert f"shares files with {first['name']}" in text
        kgw.succeed("produce", "orders", data="200")
    assert (1, 2, None) == (first["topics"], first["partitions"], first["parent"])

    listed = offline.json("backup", "list", place)
    assert [first["name"], None] == [listed[0]["name"], listed[0]["problem"]]
    assert first["name"] == listed[1]["parent"]
    assert listed[1]["name"] in offline.succeed("backup", "list", place)
    assert "No problems found in 2 backups." in offline.succeed("backup", "verify", place)
    report = offline.json("backup", "verify", place, "--backup", first["name"])
    assert [[first["name"]], []] == [report["verified"], report["problems"]]

    text = offline.succeed("restore", place, "--to", str(restored_dir))
    assert f"log.dirs={restored_dir}" in text
    assert [] == offline.json("log", "check", str(restored_dir))["problems"]
    with GatewayProcess(restored_dir) as process:
        assert list(map(str, range(150))) == consumed(process, "orders")
    first_dir = tmp_path / "first"
    offline.json("restore", place, "--to", str(first_dir), "--backup", first["name"])
    with GatewayProcess(first_dir) as process:
        assert list(map(str, range(100))) == consumed(process, "orders")

    assert {"removed": [first["name"]]}.items() <= offline.json(
        "backup", "prune", place, "--keep", "1"
    ).items()
    assert "Nothing to remove." in offline.run("backup", "prune", place, "--keep", "1").stderr
    kept = offline.json("backup", data_dir, "--to", place, "--keep", "1", "--rate", "100m")
    assert [listed[1]["name"]] == kept["pruned"]


def test_what_is_damaged_ends_with_1(offline: Commands, tmp_path: Path) -> None:
    """Each problem is a line with the file; restoring it is refused."""
    place = tmp_path / "place"
    with GatewayProcess(tmp_path / "data") as process:
        Commands(process.bootstrap).succeed("topics", "create", "orders")
    name = offline.json("backup", str(tmp_path / "data"), "--to", str(place))["name"]
    path = place / name / "meta.sqlite"
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    (place / "20260101T000000Z.unfinished").mkdir()
    result = offline.run("backup", "verify", str(place))
    assert (ExitCode.FAILED, f"problem: {path}: fails its checksum\n") == (
        result.exit_code,
        result.stdout,
    )
    assert "fails its checksum" in offline.fail(
        ExitCode.FAILED, "restore", str(place), "--to", str(tmp_path / "restored")
    )
    manifest = place / name / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-2])
    result = offline.run("backup", "verify", str(place), "--json")
    assert [{"path": str(place / name), "detail": "the manifest fails its checksum"}] == json.loads(
        result.stdout
    )["problems"]
    listed = {one["name"]: one["problem"] for one in offline.json("backup", "list", str(place))}
    assert {
        name: "the manifest fails its checksum",
        "20260101T000000Z.unfinished": "it was not finished",
    } == listed


def test_what_cannot_be_is_one_line_and_an_exit_code(offline: Commands, tmp_path: Path) -> None:
    """The operator reads what to do."""
    place, nothing = str(tmp_path / "place"), str(tmp_path / "nothing")
    assert "is not a data directory" in offline.fail(
        ExitCode.DATA_DIRECTORY, "backup", nothing, "--to", place
    )
    assert "no place of backups" in offline.fail(ExitCode.DATA_DIRECTORY, "backup", "list", nothing)
    for command in (
        ("backup", "seaweedmq://127.0.0.1:8888/kgw", "--to", place),
        ("restore", place, "--to", "seaweedmq://127.0.0.1:8888/kgw"),
    ):
        said = offline.fail(ExitCode.USAGE, *command)
        assert "SeaweedFS's own tools" in said
        assert "docs/backup.md" in said
    result = offline.run("backup", nothing)
    assert ExitCode.USAGE == result.exit_code
    assert "missing option '--to'" in result.stderr
    result = offline.run("backup", nothing, "--to", place, "--rate", "fast")
    assert ExitCode.USAGE == result.exit_code
    assert "not a number of bytes" in result.stderr
    with GatewayProcess(tmp_path / "data") as process:
        Commands(process.bootstrap).succeed("topics", "create", "orders")
    offline.succeed("backup", str(tmp_path / "data"), "--to", place)
    assert "has no backup x" in offline.fail(
        ExitCode.DATA_DIRECTORY, "backup", "verify", place, "--backup", "x"
    )
    assert "has no backup x" in offline.fail(
        ExitCode.DATA_DIRECTORY, "restore", place, "--to", nothing, "--backup", "x"
    )
    assert "has backups, which are not served" in offline.fail(
        ExitCode.DATA_DIRECTORY, "serve", "--data-dir", place, "--listen", "127.0.0.1:0"
    )
