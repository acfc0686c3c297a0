"""Commands connect as the file of --command-config says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from tests.cli.conftest import Commands
from tests.cli.test_completion import offered
from tests.cli.test_main import LEAVES
from tests.client.certificates import make_authority, make_identity
from tests.client.fake_broker import BrokerThread, FakeBroker, UserStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import click

CANARY = "c4nary-s3cret"
PASSWORD = "pencil"
MECHANISMS = ("SCRAM-SHA-512",)


class SecuredBroker(BrokerThread):
    """A broker that wants TLS and a login."""

    def __init__(self, folder: Path) -> None:
        authority = make_authority()
        self.trust = folder / "trust.pem"
        """The file with its authority."""
        self.trust.write_text(authority.pem)
        identity = make_identity(authority, "127.0.0.1")
        super().__init__(FakeBroker(mechanisms=MECHANISMS), identity.server_context(folder))
        self.broker.answer = UserStore().answers


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker for the tests of this module."""
    with SecuredBroker(tmp_path_factory.mktemp("tls")) as broker:
        yield broker


@pytest.fixture
def secured(broker: SecuredBroker) -> Commands:
    """Commands that talk to this broker."""
    return Commands(broker.address)


def written(
    folder: Path,
    broker: SecuredBroker,
    *,
    password: str = PASSWORD,
    mode: int = 0o600,
    more: str = "",
) -> str:
    """Write a properties file as Kafka's tools take it, and return its path."""
    file = folder / "client.properties"
    file.write_text(
        f"""# How Kafka's tools connect.
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" \\
    password="{password}";
ssl.truststore.location={broker.trust}
client.id=someone
{more}"""
    )
    file.chmod(mode)
    return str(file)


def test_a_command_logs_in_over_tls(
    secured: Commands, broker: SecuredBroker, tmp_path: Path
) -> None:
    """By the option, or the environment variable."""
    file = written(tmp_path, broker)
    assert [] == secured.json("topics", "list", "--command-config", file)
    result = secured.run("topics", "list", "--json", environment={"KGW_COMMAND_CONFIG": file})
    assert (0, "[]\n", "") == (result.exit_code, result.stdout, result.stderr)


def test_doctor_logs_in_at_every_address(
    secured: Commands, broker: SecuredBroker, tmp_path: Path
) -> None:
    """Those that the server advertises, too."""
    file = written(tmp_path, broker)
    result = secured.run("doctor", broker.address, "--json", "--command-config", file)
    told = json.loads(result.stdout)
    assert [True] == [one["reachable"] for one in told["brokers"]]


def test_without_the_file_a_command_fails(secured: Commands) -> None:
    """Nothing is tried in its place."""
    message = secured.fail(ExitCode.CANNOT_CONNECT, "topics", "list")
    assert "does it speak TLS (security.protocol)" in message


def test_a_refused_login_fails_with_kafkas_error(
    secured: Commands, broker: SecuredBroker, tmp_path: Path
) -> None:
    """For programs, too; the password is not told."""
    file = written(tmp_path, broker, password=CANARY)
    command = ("topics", "list", "--command-config", file)
    message = secured.fail(ExitCode.FAILED, *command)
    assert f"{broker.address} refused the login of alice: SASL_AUTHENTICATION_FAILED" in message
    result = secured.run(*command, "--json")
    assert "SASL_AUTHENTICATION_FAILED" == json.loads(result.stderr)["kafka_error"]
    assert CANARY not in message + result.stderr


def test_a_certificate_that_is_not_trusted_is_no_connection(
    secured: Commands, broker: SecuredBroker, tmp_path: Path
) -> None:
    """The exit code is that of a server that cannot be reached."""
    (tmp_path / "other.pem").write_text(make_authority().pem)
    file = written(tmp_path, broker, more=f"ssl.truststore.location={tmp_path}/other.pem\n")
    message = secured.fail(ExitCode.CANNOT_CONNECT, "topics", "list", "--command-config", file)
    assert f"{broker.address} is not trusted" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("security.protocl=SSL", "1: security.protocl: the property is none of a connection that"),
        ("\n\nsecurity.protocol=TLS", "3: security.protocol: it is none of PLAINTEXT, SSL"),
        (f"security.protocol=SSL\n{CANARY}", "2: the line is not KEY=VALUE"),
        (f'security.protocol=SSL\npassword="{CANARY}";', "2: a name without a dot: the property"),
        (f'"{CANARY}";=', "1: a name without a dot: the property is none"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanisms=GSSAPI",
            "2: sasl.mechanism: the mechanism is refused: Kerberos",
        ),
        (
            f"""security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="{CANARY}"
""",
            "3: sasl.jaas.config: the semicolon at the end is missing",
        ),
    ],
)
def test_an_error_names_the_file_and_the_line(
    offline: Commands, tmp_path: Path, text: str, expected: str
) -> None:
    """It is wrong usage, and no part of a password is told."""
    file = tmp_path / "client.properties"
    file.write_text(text)
    command = ("topics", "list", "--command-config", str(file))
    message = offline.fail(ExitCode.USAGE, *command)
    assert message.startswith(f"{file}:{expected}")
    assert CANARY not in message


def test_a_file_that_cannot_be_read_is_an_error(offline: Commands, tmp_path: Path) -> None:
    """One that is not there, and one that is not text."""
    file = tmp_path / "client.properties"
    command = ("topics", "list", "--command-config", str(file))
    expected = f"cannot read {file}: no such file or directory"
    assert expected == offline.fail(ExitCode.USAGE, *command)
    file.write_bytes(b"sasl.password=\xfc")
    assert f"{file} is not UTF-8" in offline.fail(ExitCode.USAGE, *command)


def test_a_password_that_everybody_can_read_is_warned_of(
    secured: Commands, broker: SecuredBroker, tmp_path: Path
) -> None:
    """Once, on standard error; for programs as JSON. A file without a password may be read."""
    file = written(tmp_path, broker, mode=0o644)
    command = ("topics", "list", "--command-config", file)
    result = secured.run(*command)
    expected = f"{file} has a password, and everybody on this machine can read it: chmod 600 {file}"
    assert [f"warning: {expected}", "There are no topics."] == result.stderr.splitlines()
    result = secured.run(*command, "--json")
    assert {"warning": expected} == json.loads(result.stderr)
    harmless = tmp_path / "harmless.properties"
    harmless.write_text("security.protocol=PLAINTEXT\n")
    harmless.chmod(0o644)
    message = secured.fail(
        ExitCode.CANNOT_CONNECT, "topics", "list", "--command-config", str(harmless)
    )
    assert "warning" not in message


def test_names_are_completed_over_a_login(broker: SecuredBroker, tmp_path: Path) -> None:
    """With the option on the line; a file that cannot be read offers nothing."""
    file = written(tmp_path, broker)
    secured = Commands(broker.address)
    (tmp_path / "password").write_text("pencil\n")
    options = ("--command-config", file)
    secured.succeed("users", "add", "bob", "--password-file", f"{tmp_path}/password", *options)
    line = f"kgw users delete -b {broker.address} --command-config"
    assert ["bob"] == offered(f"{line} {file} b")
    assert [] == offered(f"{line} {tmp_path}/none b")
    assert ["file,"] == offered(f"{line} ")


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_every_command_that_connects_can_log_in(
    path: tuple[str, ...], command: click.Command
) -> None:
    """The jobs of the pipeline, too. No password is given on the line."""
    options = {option for parameter in command.params for option in parameter.opts}
    if "--bootstrap" in options or path == ("doctor",):
        assert "--command-config" in options
    assert "--password" not in options
