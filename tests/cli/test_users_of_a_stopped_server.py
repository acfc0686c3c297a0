"""Users are set before the first start, and log in after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.offline.opening import opened_state
from kgw.cli.shared.errors import ExitCode
from kgw.security.principal import Principal
from kgw.security.sasl.tokens import TokenLimits, TokenRules
from kgw.state.base import Change
from kgw.state.kinds import DELEGATION_TOKEN
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "before the first start"
ONLY_LOGINS = "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT"
"""The protocol of the listener that a `GatewayProcess` opens."""


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    """A file with the password."""
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    return str(file)


def properties(tmp_path: Path, user: str, password: str) -> str:
    """Return a file with the properties of a client that logs in."""
    file = tmp_path / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={user}\nsasl.password={password}\n"
    )
    file.chmod(0o600)
    return str(file)


def test_the_first_user_logs_in_at_a_server_that_asks_everybody_for_a_login(
    tmp_path: Path, password_file: str, offline: Commands
) -> None:
    """The password that is set before the first start holds after it, and after a kill."""
    data = tmp_path / "data"
    where = ("--data-dir", str(data))
    added = offline.run("users", "add", "alice", "--password-file", password_file, *where)
    assert (ExitCode.OK, "") == (added.exit_code, added.stderr)
    alice = properties(tmp_path, "alice", PASSWORD)
    wrong = properties(tmp_path, "mallory", PASSWORD)
    gateway = GatewayProcess(data, ONLY_LOGINS)
    for _ in range(2):
        with gateway:
            kgw = Commands(gateway.bootstrap)
            listed = kgw.json("users", "list", "--command-config", alice)
            assert [("alice", "SCRAM-SHA-512")] == [
                (one["name"], one["mechanism"]) for one in listed
            ]
            refused = kgw.run("topics", "list", "--command-config", wrong)
            assert ExitCode.OK != refused.exit_code
            assert "refused the login of mallory" in refused.stderr
            busy = offline.run("users", "list", *where)
            assert ExitCode.OK != busy.exit_code
            assert "is in use" in busy.stderr
            gateway.kill()


def test_users_of_a_stopped_server_are_listed_and_deleted(
    tmp_path: Path, password_file: str, offline: Commands
) -> None:
    """All passwords of a user go at once, or one of them; a user who is not there is told."""
    where = ("--data-dir", str(tmp_path / "data"))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        given = ("--mechanism", mechanism, "--password-file", password_file)
        assert ExitCode.OK == offline.run("users", "add", "bob", *given, *where).exit_code
    expected = [
        {"name": "bob", "mechanism": f"SCRAM-SHA-{number}", "iterations": 4096}
        for number in (256, 512)
    ]
    assert expected == offline.json("users", "list", *where)
    deleted = offline.json("users", "delete", "bob", "--mechanism", "SCRAM-SHA-256", *where)
    assert [{"name": "bob", "mechanism": "SCRAM-SHA-256"}] == deleted
    assert expected[1:] == offline.json("users", "list", *where)
    assert ExitCode.OK == offline.run("users", "delete", "bob", "-y", *where).exit_code
    assert [] == offline.json("users", "list", *where)
    gone = offline.run("users", "delete", "bob", "-y", *where)
    assert (ExitCode.FAILED, "error: the user bob has no password\n") == (
        gone.exit_code,
        gone.stderr,
    )


def test_a_dry_run_counts_the_tokens(tmp_path: Path, password_file: str, offline: Commands) -> None:
    """They would be deleted with the last password; nothing is."""
    data = tmp_path / "data"
    where = ("--data-dir", str(data))
    command = ("users", "delete", "bob", "--dry-run", *where)
    offline.succeed("users", "add", "bob", "--password-file", password_file, *where)
    line = "Would delete the password of bob for SCRAM-SHA-512.\n"
    assert line == offline.succeed(*command)
    for count, noun in ((1, "1 delegation token"), (2, "2 delegation tokens")):
        asyncio.run(add_token(data, f"token-{count}"))
        told = f"Would delete {noun} that bob owns or has requested.\n"
        assert line + told == offline.succeed(*command)
    sha_256 = ("--mechanism", "SCRAM-SHA-256")
    offline.succeed("users", "add", "bob", *sha_256, "--password-file", password_file, *where)
    assert line == offline.succeed(*command, "--mechanism", "SCRAM-SHA-512")
    assert 2 == len(offline.json("users", "list", *where))


async def add_token(data: Path, token_id: str) -> None:
    """Store a delegation token that Bob has requested for Carol."""
    bob, carol = Principal("User", "bob"), Principal("User", "carol")
    rules = TokenRules("the secret of the server", TokenLimits(1 << 40, 1 << 40))
    token = rules.create(token_id, carol, bob, [], 0, 1)
    async with opened_state(str(data), may_create=False) as state:
        await state.apply([Change(DELEGATION_TOKEN, token_id, token.encode())])


@pytest.mark.parametrize(
    ("name", "problem"), [("*", "a user cannot be called *"), ("a" * 201, "200")]
)
def test_a_name_that_no_user_may_have(
    tmp_path: Path, password_file: str, offline: Commands, name: str, problem: str
) -> None:
    """The reason is one sentence."""
    where = ("--data-dir", str(tmp_path / "data"))
    refused = offline.run("users", "add", name, "--password-file", password_file, *where)
    assert (ExitCode.FAILED, True) == (refused.exit_code, problem in refused.stderr)
    assert 1 == refused.stderr.count("\n")


def test_a_server_and_a_directory_exclude_each_other(tmp_path: Path, offline: Commands) -> None:
    """Nobody can tell which of them was meant."""
    both = offline.run("users", "list", "--data-dir", str(tmp_path), "-b", "127.0.0.1:1")
    assert "exclude each other" in both.stderr
    assert ExitCode.OK != both.exit_code


def test_the_logs_of_a_killed_server_are_left_to_its_next_start(
    tmp_path: Path, password_file: str, offline: Commands
) -> None:
    """No marker of an orderly stop is written over a crash."""
    data = tmp_path / "data"
    where = ("--data-dir", str(data))
    gateway = GatewayProcess(data)
    with gateway:
        kgw = Commands(gateway.bootstrap)
        kgw.succeed("topics", "create", "records")
        kgw.succeed("produce", "records", data="one\ntwo\n")
        gateway.kill()
    assert not (data / "clean.json").exists()
    given = ("--password-file", password_file)
    assert ExitCode.OK == offline.run("users", "add", "alice", *given, *where).exit_code
    assert not (data / "clean.json").exists()
    with gateway:
        kgw = Commands(gateway.bootstrap)
        assert "one\ntwo\n" == kgw.succeed("consume", "records", "--max-records", "2")
    assert (data / "clean.json").exists()
    assert ExitCode.OK == offline.run("users", "add", "bob", *given, *where).exit_code
    assert (data / "clean.json").exists()
    users = offline.json("users", "list", *where)
    assert ["alice", "bob"] == [one["name"] for one in users]


def test_a_directory_that_is_not_there_is_made_for_the_first_user_alone(
    tmp_path: Path, offline: Commands
) -> None:
    """A slip in its path does not look like a server without users."""
    missing = tmp_path / "missing"
    for command in (("list",), ("delete", "alice", "-y")):
        told = offline.run("users", *command, "--data-dir", str(missing))
        assert ExitCode.FAILED == told.exit_code
        assert f"there is no data directory {missing}" in told.stderr
    assert not missing.exists()
