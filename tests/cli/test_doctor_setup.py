"""`kgw doctor --config --data-dir`: what is wrong is read out of the files of a server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.certificates import DAY_S, CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands

CANARY = "canary-2291"
NOW_S = time.time()


class Files:
    """The settings, the certificate and the data directory of a server that does not run."""

    def __init__(self, folder: Path, kgw: Commands) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.config = folder / "kgw.toml"
        self._kgw = kgw
        authority = CertificateAuthority("kgw test", NOW_S)
        self.key = folder / "server.pem"
        self.key.write_text(authority.issue_server(["kafka.example"]).keystore_pem())
        self.key.chmod(0o600)

    def configure(self, **more: object) -> None:
        """Write settings: those of a healthy server, and others."""
        settings = {
            "log.dirs": str(self.data),
            "listeners": ["SASL_SSL://0.0.0.0:9093"],
            "advertised.listeners": ["SASL_SSL://kafka.example:9093"],
            "ssl.keystore.location": str(self.key),
            "super.users": "User:admin",
            **more,
        }
        lines = [f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in settings.items()]
        self.config.write_text("".join(lines))
        self.config.chmod(0o600)

    def add_user(self, name: str = "admin") -> None:
        """Add a user before the first start."""
        given = ("--password-file", "-", "--data-dir", str(self.data))
        result = self._kgw.run("users", "add", name, *given, data=CANARY)
        assert ExitCode.OK == result.exit_code, result.output

    def findings(self, *arguments: str) -> list[tuple[str, str, str]]:
        """Run the doctor over the settings, and return what it says."""
        result = self._kgw.run("doctor", "--json", "--config", str(self.config), *arguments)
        assert CANARY not in result.output
        assert result.stdout, (result.stderr, result.exception)
        found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
        is_wrong = any(one["severity"] == "problem" for one in found)
        assert (ExitCode.FAILED if is_wrong else ExitCode.OK) == result.exit_code
        return [(one["severity"], one["subject"], one["detail"]) for one in found]

    def wrong(self, *arguments: str) -> list[str]:
        """Return what is not in order."""
        return [
            f"{subject}: {detail}"
            for severity, subject, detail in self.findings(*arguments)
            if severity != "ok"
        ]


@pytest.fixture
def files(tmp_path: Path, offline: Commands) -> Files:
    """The files of a healthy server with the user admin."""
    one = Files(tmp_path, offline)
    one.configure()
    one.add_user()
    return one


def test_a_healthy_set_up_has_no_problem(files: Files) -> None:
    """A line for each thing that was looked at."""
    assert [
        ("ok", "listener SASL_SSL"),
        ("ok", "certificate"),
        ("ok", "users"),
    ] == [one[:2] for one in files.findings()]


def test_the_lines_of_the_settings_are_named(files: Files) -> None:
    """In the file; else by flag or variable."""
    files.configure(**{"super.users": "User:root", "advertised.listeners": ["SASL_SSL://a:1"]})
    listener, rules = files.wrong()
    assert f"it advertises a ({files.config}:3), and the certificate is for kafka.example" in (
        listener
    )
    assert f"ssl.keystore.location ({files.config}:4)" in listener
    assert f"super.users of the server ({files.config}:5) has User:root" in rules
    (rules,) = files.wrong(
        *("--set", "super.users=User:boss"),
        *("--set", "advertised.listeners=SASL_SSL://kafka.example:1"),
    )
    assert "super.users of the server (--set) has User:boss" in rules


def test_settings_in_a_table_of_toml_are_named_by_their_file(files: Files) -> None:
    """Their names do not stand there in full."""
    text = files.config.read_text()
    files.config.write_text(
        text.replace('"super.users" =', "[super]\nusers =").replace("admin", "a")
    )
    (rules,) = files.wrong()
    assert f"super.users of the server ({files.config}) has User:a" in rules


def test_a_certificate_that_cannot_be_used_is_told(files: Files) -> None:
    """In the words of a start."""
    files.key.write_text("nothing")
    (found,) = files.wrong()
    assert found == (
        f"certificate: ssl.keystore.location: {files.key} is not PEM: it has no line "
        f"-----BEGIN ...----- ({files.config}:4)"
    )


def test_dates_and_modes_of_files_are_told(files: Files) -> None:
    """The certificate's end once, and a key that others can read."""
    authority = CertificateAuthority("kgw test", NOW_S)
    issued = authority.issue_server(["kafka.example"], not_after_s=NOW_S - DAY_S)
    files.key.write_text(issued.keystore_pem())
    files.key.chmod(0o644)
    key, certificate = files.wrong()
    assert "files of certificates: ssl.keystore.location: " in key
    assert "mode 0644 opens it to other users: set the mode to 0600" in key
    assert "certificate: it expired on " in certificate


def test_a_file_of_settings_with_a_password_that_everybody_reads_is_told(files: Files) -> None:
    """Only if a password is in it."""
    files.config.chmod(0o644)
    assert [] == files.wrong()
    files.configure(**{"ssl.key.password": CANARY})
    files.config.chmod(0o644)
    (found,) = files.wrong()
    assert f"files: everybody on this machine can read the secrets in {files.config}" == found


def test_without_users_nobody_can_log_in(tmp_path: Path, offline: Commands) -> None:
    """With a directory without users, and without a directory."""
    one = Files(tmp_path, offline)
    one.configure()
    (found,) = one.wrong()
    assert "users: they are not known: " in found
    one.add_user()
    offline.run("users", "delete", "admin", "-y", "--data-dir", str(one.data))
    users, rules = one.wrong()
    assert f"kgw users add NAME --data-dir {one.data}" in users
    assert "has User:admin, and no user is called so" in rules


def test_a_directory_that_a_server_has_open_is_told(files: Files) -> None:
    """Its users are then asked for over the network."""
    from kgw.backend.embedded.files.fs import RealFs
    from kgw.backend.embedded.files.lock import DirectoryLock

    with DirectoryLock(RealFs(), str(files.data)):
        (found,) = files.wrong()
    assert "users: they are not known: " in found
    assert "in use" in found


def test_rules_of_users_who_do_not_exist_are_told(files: Files, tmp_path: Path) -> None:
    """The stored rules are read."""
    from kgw.testing.process import GatewayProcess
    from tests.cli.conftest import Commands

    with GatewayProcess(files.data, "super.users=User:ANONYMOUS") as gateway:
        Commands(gateway.bootstrap).succeed(
            *("acls", "add", "--allow", "User:adnim", "--operation", "READ", "--topic", "t")
        )
    (found,) = files.wrong()
    assert "access rules: a rule is for User:adnim, and no user is called so" == found


@pytest.mark.parametrize(
    ("user", "password", "severity", "words"),
    [
        ("admin", CANARY, "ok", "the password is the stored one"),
        ("admin", "wrong", "problem", "is not the stored one"),
        ("adnim", CANARY, "problem", "there is no such user"),
    ],
)
def test_the_login_of_a_client_is_compared(
    files: Files, user: str, password: str, severity: str, words: str
) -> None:
    """With what is stored, which a server tells nobody."""
    client = files.folder / "client.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={user}\nsasl.password={password}\n"
    )
    client.chmod(0o600)
    found = files.findings("--command-config", str(client))[-1]
    assert (severity, f"login of {user}") == found[:2]
    assert words in found[2]
    assert f"({client}:3)" in found[2]


def test_reading_changes_nothing(files: Files) -> None:
    """The directory is as the next start expects it."""

    def contents() -> dict[str, bytes]:
        return {one.name: one.read_bytes() for one in files.data.iterdir() if one.is_file()}

    before = contents()
    files.findings()
    assert before == contents()


def test_a_data_directory_alone_is_enough(files: Files, offline: Commands) -> None:
    """Its settings are the defaults."""
    found = offline.json("doctor", "--data-dir", str(files.data))["findings"]
    assert [("ok", "listener PLAINTEXT")] == [(one["severity"], one["subject"]) for one in found]
