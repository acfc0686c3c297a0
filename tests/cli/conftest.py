"""A server without a disk, and commands run against it in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from click.testing import Result


class Commands:
    """Runs `kgw` commands with the environment of a server."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        env = {"KGW_BOOTSTRAP": bootstrap, "KGW_CONFIG": None, "KGW_COMMAND_CONFIG": None}
        self._runner = CliRunner(env=env)

    def run(
        self,
        *arguments: str,
        data: bytes | str | None = None,
        environment: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Run a command, whatever comes of it."""
        return self._runner.invoke(
            main, arguments, input=data, prog_name="kgw", env=environment or {}
        )

    def succeed(self, *arguments: str, data: bytes | str | None = None) -> str:
        """Run a command that must succeed and return its standard output."""
        result = self.run(*arguments, data=data)
        assert (0, "") == (result.exit_code, result.stderr if result.exit_code else "")
        return result.stdout

    def json(self, *arguments: str, data: bytes | str | None = None) -> Any:
        """Run a command with --json and return the document it prints."""
        return json.loads(self.succeed(*arguments, "--json", data=data))

    def fail(self, exit_code: int, *arguments: str, data: bytes | str | None = None) -> str:
        """Run a command that must fail with this code and return its one line of error."""
        result = self.run(*arguments, data=data)
        assert exit_code == result.exit_code, result.output
        lines = result.stderr.splitlines()
        assert 1 == len(lines), result.stderr
        return lines[0].removeprefix("error: ")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """A server for the tests of one module; topics are told apart by name."""
    with ServerThread() as thread:
        yield thread


@pytest.fixture
def kgw(server: ServerThread) -> Commands:
    """Commands that talk to the server."""
    return Commands(server.address)


@pytest.fixture
def offline() -> Commands:
    """Commands that find no server."""
    return Commands("127.0.0.1:1")
