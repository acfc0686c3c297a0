from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from tests import patience
from tests.cli.conftest import Commands
from tests.client.fake_broker import BrokerThread, FakeBroker, UserStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "c4nary s3cret"


@pytest.fixture
def store() -> UserStore:
    """The users of the broker."""
    return UserStore()


@pytest.fixture
def commands(store: UserStore) -> Iterator[Commands]:
    """Commands that talk to a broker with these users."""
    broker = FakeBroker()
    broker.answer = store.answers
    with BrokerThread(broker) as thread:
        yield Commands(thread.address)


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    """A file with a password that only its owner can read."""
    file = tmp_path / "password"
    file.write_text(f"{CANARY}\n")
    file.chmod(0o600)
    return str(file)


def test_a_user_comes_and_goes(commands: Commands, password_file: str) -> None:
    """Add, list and delete, for people and for programs."""
    expected = "Set the password of alice for SCRAM-SHA-512.\n"
    assert expected == commands.succeed("users", "add", "alice", "--password-file", password_file)
    added = {"name": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192}
    assert added == commands.json(
        "users",
        "add",
        "alice",
        "--mechanism",
        "scram-sha-256",
        "--iterations",
        "8192",
        "--password-file",
        password_file,
    )
    assert [added, added | {"mechanism": "SCRAM-SHA-512", "iterations": 4096}] == commands.json(
        "users", "list"
    )
    table = commands.succeed("users", "list").splitlines()
    assert "NAME   MECHANISM      ITERATIONS" == table[0]
    assert "alice  SCRAM-SHA-256        8192" == table[1]
    expected = "Deleted the password of alice for SCRAM-SHA-256.\n"
    assert expected == commands.succeed("users", "delete", "alice", "--mechanism", "SCRAM-SHA-256")
    deleted = [{"name": "alice", "mechanism": "SCRAM-SHA-512"}]
    assert deleted == commands.json("users", "delete", "alice")
    assert [] == commands.json("users", "list")
    assert "There are no users.\n" == commands.run("users", "list").stderr
    for options in ((), ("--mechanism", "SCRAM-SHA-512")):
        message = commands.fail(ExitCode.FAILED, "users", "delete", "alice", *options)
        assert "user alice: RESOURCE_NOT_FOUND" in message


def test_every_mechanism_of_a_user_is_deleted(commands: Commands, password_file: str) -> None:
    """In one request, and of this user alone."""
    for name, mechanism in (("a", "SCRAM-SHA-256"), ("a", "SCRAM-SHA-512"), ("b", "SCRAM-SHA-512")):
        commands.succeed(
            "users", "add", name, "--mechanism", mechanism, "--password-file", password_file
        )
    assert ["SCRAM-SHA-256", "SCRAM-SHA-512"] == [
        one["mechanism"] for one in commands.json("users", "delete", "a")
    ]
    assert ["b"] == [one["name"] for one in commands.json("users", "list")]


def test_a_dry_run_deletes_nothing(commands: Commands, password_file: str) -> None:
    """It says which passwords would be deleted, and whether tokens would be."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        given = ("--mechanism", mechanism, "--password-file", password_file)
        commands.succeed("users", "add", "alice", *given)
    every = commands.json("users", "list")
    assert (
        "Would delete the password of alice for SCRAM-SHA-256.\n"
        "Would delete the password of alice for SCRAM-SHA-512.\n"
        "Would delete the delegation tokens that alice owns or has requested.\n"
    ) == commands.succeed("users", "delete", "alice", "--dry-run")
    one = ("--mechanism", "SCRAM-SHA-512", "--dry-run")
    expected = "Would delete the password of alice for SCRAM-SHA-512.\n"
    assert expected == commands.succeed("users", "delete", "alice", *one)
    expected_rows = [{"name": "alice", "mechanism": "SCRAM-SHA-512"}]
    assert expected_rows == commands.json("users", "delete", "alice", *one)
    assert every == commands.json("users", "list")
    commands.fail(ExitCode.FAILED, "users", "delete", "bob", "--dry-run")
    commands.succeed("users", "delete", "alice", "--mechanism", "SCRAM-SHA-256")
    gone = ("--mechanism", "SCRAM-SHA-256", "--dry-run")
    message = commands.fail(ExitCode.FAILED, "users", "delete", "alice", *gone)
    assert "the user alice has no password for SCRAM-SHA-256" == message


def test_the_question_names_the_tokens(
    commands: Commands, password_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are deleted with the last password alone; without a yes everything stays."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        given = ("--mechanism", mechanism, "--password-file", password_file)
        commands.succeed("users", "add", "alice", *given)
    stdin = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("kgw.cli.shared.client.sys", SimpleNamespace(stdin=stdin))
    tokens = ", and the delegation tokens that alice owns or has requested? [y/N]: "
    sha_256 = ("--mechanism", "SCRAM-SHA-256")
    result = commands.run("users", "delete", "alice", data="n\n")
    both = "Delete the user alice for SCRAM-SHA-256 and SCRAM-SHA-512"
    assert (ExitCode.INTERRUPTED, f"{both}{tokens}n") == (
        result.exit_code,
        result.stderr.splitlines()[0],
    )
    assert 2 == len(commands.json("users", "list"))
    result = commands.run("users", "delete", "alice", *sha_256, data="y\n")
    expected = "Delete the password of alice for SCRAM-SHA-256? [y/N]: y\n"
    assert (0, expected) == (result.exit_code, result.stderr)
    result = commands.run("users", "delete", "alice", data="y\n")
    assert f"Delete the user alice for SCRAM-SHA-512{tokens}y\n" == result.stderr
    assert [] == commands.json("users", "list")


def test_a_principal_is_no_name(commands: Commands, password_file: str) -> None:
    """A warning says which principal the user would have; the user is added."""
    given = ("users", "add", "User:bob", "--password-file", password_file)
    text = "the principal of this user is User:User:bob: a name has no User: before it"
    result = commands.run(*given)
    assert (0, f"warning: {text}\n") == (result.exit_code, result.stderr)
    assert {"warning": text} == json.loads(commands.run(*given, "--json").stderr)
    for name in ("bob", "Userbob"):
        assert "" == commands.run("users", "add", name, *given[3:]).stderr
    assert "User:bob" in [one["name"] for one in commands.json("users", "list")]


def test_the_server_is_sent_a_salted_password(
    commands: Commands, store: UserStore, password_file: str
) -> None:
    """Hashed as RFC 5802 says, with a new salt each time, in the form of an unknown user's."""
    salts = set()
    for _ in range(2):
        commands.succeed("users", "add", "alice", "--password-file", password_file)
        (sent,) = store.credentials.values()
        expected = hashlib.pbkdf2_hmac("sha512", CANARY.encode(), sent.salt, 4096)
        assert expected == sent.salted_password
        assert (2, 4096) == (sent.mechanism, sent.iterations)
        assert re.fullmatch(rb"[0-9a-z]{20,26}", sent.salt)
        salts.add(sent.salt)
    assert 2 == len(salts)


@pytest.mark.parametrize("content", ["c4nary s3cret", "c4nary s3cret\n", "c4nary s3cret\r\n"])
def test_a_password_comes_from_standard_input(
    commands: Commands, store: UserStore, content: str
) -> None:
    """With or without the end of its line."""
    commands.succeed("users", "add", "alice", "--password-file", "-", data=content)
    (sent,) = store.credentials.values()
    assert hashlib.pbkdf2_hmac("sha512", CANARY.encode(), sent.salt, 4096) == sent.salted_password


@pytest.mark.parametrize("content", [b"", b"\n", b"c4nary\ns3cret\n", b"c4nary\xff"])
def test_what_is_no_password_is_refused(commands: Commands, content: bytes) -> None:
    """It is not told which one it was."""
    message = commands.fail(
        ExitCode.USAGE, "users", "add", "alice", "--password-file", "-", data=content
    )
    assert message.startswith("standard input: ")
    assert "c4nary" not in message


def test_a_password_is_asked_for_only_at_a_terminal(commands: Commands, tmp_path: Path) -> None:
    """A script is told what to give; it is no argument, and a missing file is an error."""
    message = commands.fail(ExitCode.USAGE, "users", "add", "alice", data=f"{CANARY}\n")
    assert "give --password-file FILE, or - for standard input" in message
    message = commands.fail(ExitCode.USAGE, "users", "add", "alice", "--password", CANARY)
    assert "--password-file" in message
    missing = str(tmp_path / "none")
    message = commands.fail(ExitCode.USAGE, "users", "add", "alice", "--password-file", missing)
    assert f"cannot read {missing}: no such file or directory" == message


def test_a_password_file_that_everybody_can_read_is_warned_of(
    commands: Commands, tmp_path: Path
) -> None:
    """The command goes on."""
    file = tmp_path / "password"
    file.write_text(CANARY)
    file.chmod(0o604)
    result = commands.run("users", "add", "alice", "--password-file", str(file))
    assert (0, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert result.stderr.startswith(f"warning: {file} has a password, and everybody")


@pytest.mark.parametrize("iterations", ["4095", "16385"])
def test_iterations_that_kafka_refuses_are_not_sent(commands: Commands, iterations: str) -> None:
    """They are wrong usage."""
    message = commands.fail(ExitCode.USAGE, "users", "add", "alice", "--iterations", iterations)
    assert "4096<=x<=16384" in message


@pytest.mark.slow
def test_a_password_is_asked_for_twice(commands: Commands, store: UserStore) -> None:
    """At a terminal, which does not show it; two different ones are asked for again."""
    terminal, far_end = pty.openpty()
    command = [sys.executable, "-m", "kgw", "users", "add", "alice", "-b", commands.bootstrap]
    # On a terminal that is its own, the command can switch off that it shows what is typed.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=far_end, stdout=far_end, stderr=far_end
    )
    os.close(far_end)
    shown = b""
    for prompt, typed in (
        (b"Password: ", CANARY),
        (b"Repeat for confirmation: ", "another"),
        (b"Password: ", CANARY),
        (b"Repeat for confirmation: ", CANARY),
    ):
        said = b""
        while prompt not in said:
            said += os.read(terminal, 1 << 12)
        shown += said
        os.write(terminal, typed.encode() + b"\n")
    assert 0 == process.wait(patience.seconds(10))
    shown += os.read(terminal, 1 << 12)
    os.close(terminal)
    assert b"Set the password of alice for SCRAM-SHA-512." in shown
    assert CANARY.encode() not in shown
    (sent,) = store.credentials.values()
    assert hashlib.pbkdf2_hmac("sha512", CANARY.encode(), sent.salt, 4096) == sent.salted_password
