from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from tests.state.servers import DatabaseServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def topics(process: GatewayProcess) -> list[tuple[str, int]]:
    """Return the topics that a server has, with their numbers of partitions."""
    found = Commands(process.bootstrap).json("topics", "list")
    return [(one["name"], one["partitions"]) for one in found]


def test_a_server_moves_its_state(
    offline: Commands, tmp_path: Path, database_server: DatabaseServer
) -> None:
    """Created over SQLite, copied, served from a database server, checked, and copied back."""
    data_dir = tmp_path / "data"
    url = database_server.url(database_server.new_place())
    with GatewayProcess(data_dir) as process:
        Commands(process.bootstrap).succeed("topics", "create", "first", "-p", "2")

    text = offline.succeed("state", "copy", str(data_dir), "--to", url)
    assert f"Copied from sqlite to {url}, and compared." in text
    assert f"kgw.state.url={url}" in text

    with GatewayProcess(data_dir, f"kgw.state.url={url}") as process:
        assert [("first", 2)] == topics(process)
        Commands(process.bootstrap).succeed("topics", "create", "second", "-p", "2")
        process.kill()
        process.start()
        assert [("first", 2), ("second", 2)] == topics(process)
    assert [] == offline.json("log", "check", str(data_dir))["problems"]
    assert [] == offline.json("log", "adopt", str(data_dir))

    report = offline.json("state", "copy", str(data_dir), "--to", "sqlite")
    assert (url, "sqlite", 2) == (report["source"], report["target"], report["rows"]["topic"])
    with GatewayProcess(data_dir) as process:
        assert [("first", 2), ("second", 2)] == topics(process)


def test_what_cannot_be_copied_is_one_line(offline: Commands, tmp_path: Path) -> None:
    """A wrong address is a usage error, a directory without state one of the data directory."""
    message = offline.run("state", "copy", str(tmp_path), "--to", "somewhere")
    assert ExitCode.USAGE == message.exit_code
    assert "begins with postgresql://" in message.stderr

    assert "has no state" in offline.fail(
        ExitCode.DATA_DIRECTORY, "state", "copy", str(tmp_path), "--to", "sqlite"
    )


def test_a_password_is_not_shown(offline: Commands, tmp_path: Path) -> None:
    """By `kgw config`, in text and in JSON."""
    file = tmp_path / "kgw.toml"
    file.write_text('"kgw.state.password" = "hunter2"\n')

    for option in ((), ("--json",)):
        text = offline.succeed("config", "print", "--config", str(file), *option)
        assert "[hidden]" in text
        assert "hunter2" not in text
