"""`kgw tokens`, against a server with a login."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from kgw.cli.shared.errors import ExitCode
from tests.cli.conftest import Commands
from tests.client.serving import ServerThread
from tests.security.sasl.logins import MECHANISMS, PASSWORD, credential_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.config import Value

SETTINGS: dict[str, Value] = {
    "listener_security_protocol_map": ("PLAINTEXT:SASL_PLAINTEXT",),
    "delegation_token_secret_key": "a secret of more than 32 characters",
    "connection_failed_authentication_delay_ms": 0,
}


class SaslServer(ServerThread):
    """A server whose users alice, bob and carol log in."""

    def __enter__(self) -> Self:
        super().__enter__()
        asyncio.run_coroutine_threadsafe(self._add_users(), self._loop).result()
        return self

    async def _add_users(self) -> None:
        credentials = await self.gateway.load_credentials()
        await credentials.change(
            {
                (mechanism, user): credential_of(mechanism)
                for mechanism in MECHANISMS
                for user in ("alice", "bob", "carol")
            }
        )


@pytest.fixture(scope="module")
def sasl_server() -> Iterator[SaslServer]:
    """A server for the tests of this module."""
    with SaslServer(**SETTINGS) as server:
        yield server


class LoggedIn(Commands):
    """Commands of one user."""

    def __init__(self, bootstrap: str, folder: Path, user: str) -> None:
        super().__init__(bootstrap)
        self._file = written(folder / f"{user}.properties", user, PASSWORD)

    def run(self, *arguments: str, **options: Any) -> Any:
        """Run a command as the user."""
        return super().run(*arguments, "--command-config", self._file, **options)


def written(file: Path, user: str, password: str, more: str = "") -> str:
    """Write a properties file as Kafka's tools take it, and return its path."""
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}"{more};\n'
    )
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def alice(sasl_server: SaslServer, tmp_path: Path) -> LoggedIn:
    """Alice's commands."""
    return LoggedIn(sasl_server.address, tmp_path, "alice")


@pytest.fixture
def bob(sasl_server: SaslServer, tmp_path: Path) -> LoggedIn:
    """Bob's commands."""
    return LoggedIn(sasl_server.address, tmp_path, "bob")


def with_token(alice: Commands, folder: Path, token: dict[str, Any]) -> Any:
    """Run a command with a token, as Kafka's tools are configured; return its result."""
    more = ' tokenauth="true"'
    file = written(folder / "token.properties", token["token_id"], token["hmac"], more)
    return Commands(alice.bootstrap).run("topics", "list", "--command-config", file)


def test_a_token_comes_and_goes(alice: LoggedIn, tmp_path: Path) -> None:
    """Created, used for a login, listed, renewed, expired."""
    token = alice.json("tokens", "create", "--renewer", "User:carol", "--max-lifetime", "P2D")
    assert 64 == len(b64decode(token["hmac"]))
    assert ("User:alice", "User:alice", ["User:carol"]) == (
        token["owner"],
        token["requester"],
        token["renewers"],
    )
    assert 2 * 86_400_000 == token["max_timestamp_ms"] - token["issue_timestamp_ms"]
    assert 86_400_000 == token["expiry_timestamp_ms"] - token["issue_timestamp_ms"]
    assert 0 == with_token(alice, tmp_path, token).exit_code
    listed = {name: value for name, value in token.items() if name != "hmac"}
    assert listed in alice.json("tokens", "list")
    renewed = alice.json("tokens", "renew", token["token_id"], "--period", "PT1H")
    assert renewed["expiry_timestamp_ms"] < token["expiry_timestamp_ms"]
    later = alice.json("tokens", "renew", token["token_id"])
    assert later["expiry_timestamp_ms"] >= token["expiry_timestamp_ms"]
    sooner = alice.json("tokens", "expire", token["token_id"], "--after", "PT1H")
    assert sooner["expiry_timestamp_ms"] < later["expiry_timestamp_ms"]
    alice.json("tokens", "expire", token["token_id"])
    assert token["token_id"] not in alice.succeed("tokens", "list")
    refused = with_token(alice, tmp_path, token)
    assert "SASL_AUTHENTICATION_FAILED" in refused.stderr


def test_what_people_read(alice: LoggedIn) -> None:
    """Sentences, a table without the HMAC, and the advice to keep the HMAC in a file."""
    result = alice.run("tokens", "create")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    found = re.fullmatch(
        rf"Created the token (\S{{22}}) of User:alice: expires {time}, or {time} if it is renewed\."
        r"\nHMAC: (\S{88})\n",
        result.stdout,
    )
    assert found, result.stdout
    token_id, hmac = found.groups()
    assert result.stderr.startswith("Whoever has the HMAC can log in as the owner")
    table = alice.succeed("tokens", "list")
    assert table.splitlines()[0].split() == [
        *("TOKEN", "ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "LATEST"),
    ]
    assert token_id in table
    assert hmac not in table
    assert hmac not in alice.succeed("tokens", "list", "--json")
    expected = rf"Renewed the token {token_id}: it expires {time}\.\n"
    assert re.fullmatch(expected, alice.succeed("tokens", "renew", token_id))
    expected = rf"The token {token_id} expires {time}\.\n"
    assert re.fullmatch(expected, alice.succeed("tokens", "expire", token_id, "--after", "PT1M"))
    expected = f"Removed the token {token_id}.\n"
    assert expected == alice.succeed("tokens", "expire", token_id, "--yes")
    message = alice.fail(ExitCode.FAILED, "tokens", "expire", token_id)
    assert f"there is no delegation token {token_id} that the client may see" == message


def test_a_dry_run_leaves_the_token(alice: LoggedIn) -> None:
    """It says what would become of the token; the new time is never behind the last one."""
    token = alice.json("tokens", "create", "--max-lifetime", "P2D")
    token_id = token["token_id"]
    command = ("tokens", "expire", token_id, "--dry-run")
    assert f"Would remove the token {token_id}.\n" == alice.succeed(*command)
    found = alice.json(*command, "--after", "PT1H")
    hour_ms = 3_600_000
    assert token["issue_timestamp_ms"] + hour_ms <= found["expiry_timestamp_ms"]
    assert found["expiry_timestamp_ms"] < token["expiry_timestamp_ms"]
    expected = rf"The token {token_id} would expire \S+Z\.\n"
    assert re.fullmatch(expected, alice.succeed(*command, "--after", "PT1H"))
    late = alice.json(*command, "--after", "P9D")
    assert token["max_timestamp_ms"] == late["expiry_timestamp_ms"]
    listed = {name: value for name, value in token.items() if name != "hmac"}
    assert listed in alice.json("tokens", "list")
    message = alice.fail(ExitCode.FAILED, "tokens", "expire", "x", "--dry-run")
    assert "there is no delegation token x that the client may see" == message


def test_a_removal_asks(alice: LoggedIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal the question names the owner."""
    token_id = alice.json("tokens", "create")["token_id"]
    stdin = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("kgw.cli.shared.client.sys", SimpleNamespace(stdin=stdin))
    result = alice.run("tokens", "expire", token_id, data="n\n")
    question = f"Remove the delegation token {token_id} of User:alice? [y/N]: n"
    assert (ExitCode.INTERRUPTED, question) == (result.exit_code, result.stderr.splitlines()[0])
    assert token_id in alice.succeed("tokens", "list")


def test_the_hmac_goes_into_a_file(alice: LoggedIn, tmp_path: Path) -> None:
    """Only its owner can read it, and it is not printed."""
    file = tmp_path / "hmac"
    token = alice.json("tokens", "create", "--hmac-file", str(file))
    assert str(file) == token["hmac_file"]
    assert "hmac" not in token
    assert 0o600 == file.stat().st_mode & 0o777
    hmac = file.read_text().removesuffix("\n")
    assert 0 == with_token(alice, tmp_path, token | {"hmac": hmac}).exit_code
    other = tmp_path / "other"
    result = alice.run("tokens", "create", "--hmac-file", str(other))
    assert (0, "") == (result.exit_code, result.stderr)
    assert other.read_text().strip() not in result.stdout
    assert f"Its HMAC is in {other}." in result.stdout


def test_a_file_that_exists_stays(alice: LoggedIn, tmp_path: Path) -> None:
    """No token is created then; so it is if the file cannot be made."""
    before = alice.json("tokens", "list")
    file = tmp_path / "hmac"
    file.write_text("mine")
    message = alice.fail(ExitCode.USAGE, "tokens", "create", "--hmac-file", str(file))
    assert f"{file} exists: give the name of a new file" == message
    missing = tmp_path / "none" / "hmac"
    message = alice.fail(ExitCode.USAGE, "tokens", "create", "--hmac-file", str(missing))
    assert f"cannot write {missing}: no such file or directory" == message
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    alice.fail(ExitCode.USAGE, "tokens", "create", "--hmac-file", str(link))
    assert "mine" == file.read_text()
    assert not (tmp_path / "elsewhere").exists()
    assert before == alice.json("tokens", "list")


def test_no_file_stays_without_a_token(alice: LoggedIn, tmp_path: Path) -> None:
    """When the server refuses, the empty file is removed."""
    file = tmp_path / "hmac"
    alice.fail(
        ExitCode.FAILED, "tokens", "create", "--renewer", "Group:g", "--hmac-file", str(file)
    )
    assert not file.exists()


def test_for_others(alice: LoggedIn, bob: LoggedIn) -> None:
    """Owner and requester; the requester may not renew. `--owner` finds the tokens of either."""
    token = bob.json("tokens", "create", "--owner", "User:carol")
    assert ("User:carol", "User:bob") == (token["owner"], token["requester"])
    for name, is_found in (("carol", True), ("bob", True), ("dave", False)):
        listed = alice.json("tokens", "list", "--owner", f"User:{name}")
        assert is_found == (token["token_id"] in [one["token_id"] for one in listed])
    message = bob.fail(ExitCode.FAILED, "tokens", "renew", token["token_id"])
    assert "only the owner and the renewers of a token may renew and expire it" == message
    result = alice.run("tokens", "list", "--owner", "User:dave")
    assert "There are no such delegation tokens.\n" == result.stderr


@pytest.mark.parametrize("command", [("create",), ("list",), ("renew", "x"), ("expire", "x")])
def test_a_client_without_a_login(command: tuple[str, ...]) -> None:
    """It is told what is missing."""
    with ServerThread(delegation_token_secret_key="x" * 32) as server:
        message = Commands(server.address).fail(ExitCode.FAILED, "tokens", *command)
    assert "a login with a password or a certificate is needed" in message


def test_a_server_without_tokens(tmp_path: Path) -> None:
    """The message names the setting."""
    with SaslServer(**SETTINGS | {"delegation_token_secret_key": ""}) as server:
        alice = LoggedIn(server.address, tmp_path, "alice")
        for command in ("create", "list"):
            message = alice.fail(ExitCode.FAILED, "tokens", command)
            assert "its setting delegation.token.secret.key switches them on" in message


def test_principals_are_checked_before(alice: LoggedIn) -> None:
    """As in `kgw acls`."""
    for option in ("--owner", "--renewer"):
        message = alice.fail(ExitCode.USAGE, "tokens", "create", option, "carol")
        assert "'carol' is not TYPE:NAME" in message


def test_options_of_kafkas_tool_are_known(alice: LoggedIn) -> None:
    """They lead to those of this command."""
    message = alice.fail(ExitCode.USAGE, "tokens", "create", "--max-life-time-period", "-1")
    assert "Did you mean '--max-lifetime'?" in message
