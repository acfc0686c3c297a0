"""`kgw doctor` at a server with TLS, logins and access rules: it finds what is set wrongly."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.testing.certificates import DAY_S, CertificateAuthority
from tests.cli.conftest import Commands
from tests.client.certificates import make_authority, make_identity
from tests.client.fake_broker import BrokerThread, FakeBroker
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

CANARY = "canary-8812"
NOW_S = time.time()
LISTENERS = ("OPEN", "SECURED", "LOGIN")


class Secured(NamedTuple):
    """A server with a listener of each protocol, and the files for its clients."""

    server: ServerThread
    folder: Path
    authority: CertificateAuthority

    def address(self, name: str, host: str = "localhost") -> str:
        """Return the address of a listener."""
        return f"{host}:{self.server.ports[name]}"

    def file(self, text: str, *, name: str = "client.properties") -> str:
        """Write a file for --command-config, with the server's authority unless it says other."""
        if "ssl.truststore" not in text and "SSL\n" in text:
            text += f"ssl.truststore.location={self.folder / 'ca.pem'}\n"
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)


def keystore(folder: Path, authority: CertificateAuthority, name: str, **dates: float) -> str:
    """Write a certificate for localhost with its key, and return the path."""
    path = folder / f"{name}.pem"
    path.write_text(authority.issue_server(["localhost"], **dates).keystore_pem())
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server for the tests of this module, with the user alice and the super user admin."""
    folder = tmp_path_factory.mktemp("secured")
    authority = CertificateAuthority("kgw test", NOW_S)
    (folder / "ca.pem").write_text(authority.truststore_pem)
    settings: dict[str, Any] = {
        "listeners": tuple(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener_security_protocol_map": (
            "OPEN:PLAINTEXT",
            "SECURED:SASL_SSL",
            "LOGIN:SASL_PLAINTEXT",
        ),
        "advertised_listeners": ("SECURED://localhost:0",),
        "ssl_keystore_location": keystore(folder, authority, "server"),
        "super_users": "User:admin;User:ANONYMOUS;User:nobody",
    }
    with ServerThread(**settings) as server:
        one = Secured(server, folder, authority)
        kgw = Commands(one.address("OPEN", "127.0.0.1"))
        for user in ("alice", "admin"):
            kgw.succeed("users", "add", user, "--password-file", "-", data=CANARY)
        kgw.succeed("topics", "create", "orders")
        yield one


def doctor(address: str, *arguments: str, file: str | None = None) -> Result:
    """Run the doctor."""
    config = () if file is None else ("--command-config", file)
    return Commands("127.0.0.1:1").run("doctor", "-b", address, *arguments, *config)


def problems(address: str, *arguments: str, file: str | None = None) -> list[str]:
    """Return the problems that the doctor finds, of which no text has the password."""
    result = doctor(address, "--json", *arguments, file=file)
    assert CANARY not in result.output
    assert result.stdout, (result.stderr, result.exception)
    found: list[str] = json.loads(result.stdout)["problems"]
    assert (ExitCode.FAILED if found else ExitCode.OK) == result.exit_code
    return found


LOGS_IN = f"""security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.username=%s
sasl.password={CANARY}
"""


def test_a_user_who_may_do_what_is_wanted_has_no_problem(secured: Secured) -> None:
    """TLS, the login, the advertised address and the rights are in order."""
    address = secured.address("SECURED")
    found = problems(
        address, "--producer", "--topic", "orders", file=secured.file(LOGS_IN % "admin")
    )
    expected = (
        f"super.users of {address} has User:nobody, and no user is called so: correct it, or kgw "
        "users add nobody"
    )
    assert [expected] == found


def test_each_way_of_connecting_wrongly_is_named(secured: Secured) -> None:
    """TLS to a plain port and the reverse; no login, a login too much; the mechanism."""
    tls, plain, login = (secured.address(one) for one in ("SECURED", "OPEN", "LOGIN"))
    expected = (
        f"{tls} speaks TLS, and the client does not: name a file with security.protocol=SASL_SSL "
        "in --command-config and sasl.mechanism, which may be SCRAM-SHA-256 or SCRAM-SHA-512"
    )
    assert [expected] == problems(tls)
    file = secured.file(LOGS_IN % "alice")
    expected = (
        f"{plain} does not speak TLS, and the client does: set security.protocol=PLAINTEXT "
        f"({file}:1), or connect to the port of a listener with TLS"
    )
    assert [expected] == problems(plain, file=file)
    (found,) = problems(login)
    assert f"{login} asks for a login, and the client has none: name a file with" in found
    file = secured.file((LOGS_IN % "alice").replace("SASL_SSL", "SASL_PLAINTEXT"))
    expected = (
        f"{plain} asks for no login, and the client logs in: set security.protocol=PLAINTEXT "
        f"({file}:1)"
    )
    assert [expected] == problems(plain, file=file)
    file = secured.file((LOGS_IN % "alice").replace("SCRAM-SHA-512", "PLAIN"))
    (found,) = problems(tls, file=file)
    assert f"does not take sasl.mechanism=PLAIN ({file}:2): set one of SCRAM-SHA-256" in found


def test_a_wrong_password_and_an_unknown_user_are_told_alike(secured: Secured) -> None:
    """As the server does: the user's line is named."""
    address = secured.address("SECURED")
    for user, password in (("alice", "wrong"), ("alise", CANARY)):
        text = (LOGS_IN % user).replace(CANARY, password)
        file = secured.file(text)
        (found,) = problems(address, file=file)
        assert f"{address} refuses the login of {user} ({file}:3): there is no such user" in found


def test_an_authority_that_is_not_trusted_is_named(secured: Secured) -> None:
    """The one that signed, and those of the truststore; by the system's own, too."""
    address = secured.address("SECURED")
    other = secured.folder / "other.pem"
    other.write_text(CertificateAuthority("another", NOW_S).truststore_pem)
    file = secured.file(f"{LOGS_IN % 'alice'}ssl.truststore.location={other}\n")
    (found,) = problems(address, file=file)
    assert (
        f"the certificate of {address} was signed by CN=kgw test, and ssl.truststore.location "
        f"({file}:5) trusts CN=another: put the certificate of that authority there"
    ) in found
    other.write_text(CertificateAuthority("kgw test", NOW_S).truststore_pem)
    (found,) = problems(address, file=file)
    assert "of this name in ssl.truststore.location" in found
    plain = secured.folder / "system.properties"
    plain.write_text(LOGS_IN % "alice")
    (found,) = problems(address, file=str(plain))
    assert "which this system does not trust: add ssl.truststore.location=FILE" in found


def test_no_login_goes_to_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    """The doctor looks at it without a user, and without a password."""
    authority, other = (make_authority(one) for one in ("one", "other"))
    trust = tmp_path / "trust.pem"
    trust.write_text(other.pem)
    identity = make_identity(authority, "127.0.0.1")
    server = FakeBroker(mechanisms=("PLAIN",))
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        f"sasl.password={CANARY}\nssl.truststore.location={trust}\n"
    )
    file.chmod(0o600)
    with BrokerThread(server, identity.server_context(tmp_path)) as broker:
        (found,) = problems(broker.address, file=str(file))
    assert "was signed by CN=one" in found
    assert [] == server.tokens
    assert "SASL_AUTHENTICATE" not in server.seen


def test_a_certificate_for_other_hosts_is_named(secured: Secured) -> None:
    """The hosts that it is for, and the one that was connected to."""
    address = secured.address("SECURED", "127.0.0.1")
    (found,) = problems(address, file=secured.file(LOGS_IN % "alice"))
    assert (
        f"the certificate of {address} is for localhost: connect to one of these, or put a "
        "certificate for 127.0.0.1 into ssl.keystore.location of the server"
    ) == found


def test_the_rules_that_a_user_lacks_are_named_with_their_commands(secured: Secured) -> None:
    """Those commands add them; what is not asked for is not looked at."""
    address = secured.address("SECURED")
    file = secured.file(LOGS_IN % "alice", name="alice.properties")
    wanted = ("--producer", "--consumer", "--topic", "orders", "--group", "billing")
    found = problems(address, *wanted, file=file)
    assert ["WRITE topic orders", "READ topic orders", "READ group billing"] == [
        one.partition("User:alice to ")[2].partition(",")[0] for one in found
    ]
    admin = Commands(secured.address("OPEN", "127.0.0.1"))
    for one in found:
        command = one.partition(": kgw ")[2].partition(" -b ")[0]
        admin.succeed(*command.split())
    assert [] == problems(address, *wanted, file=file)
    admin.succeed(
        *("acls", "add", "--deny", "User:alice", "--operation", "DESCRIBE", "--topic", "orders")
    )
    (denied,) = problems(address, "--producer", "--topic", "orders", file=file)
    assert "or a rule denies that or DESCRIBE (kgw acls list --topic orders" in denied
    assert [] == problems(address, file=file)


def test_a_topic_that_does_not_exist_is_told(secured: Secured) -> None:
    """To those who may see it."""
    file = secured.file(LOGS_IN % "admin")
    found = problems(secured.address("SECURED"), "--producer", "--topic", "new", file=file)
    assert any("topic new does not exist: kgw topics create new" in one for one in found)


def test_a_key_of_the_client_that_everybody_reads_is_told(secured: Secured) -> None:
    """With its line."""
    key = secured.folder / "own.pem"
    key.write_text(secured.authority.issue_client([("CN", "alice")]).keystore_pem())
    key.chmod(0o644)
    file = secured.file(f"ssl.keystore.location={key}\n{LOGS_IN % 'alice'}")
    (found,) = problems(secured.address("SECURED"), file=file)
    assert f"ssl.keystore.location ({file}:1): everybody on this machine can read" in found


def test_the_text_has_the_failure_and_the_problems(secured: Secured) -> None:
    """For people; a server that can be used is described as ever."""
    address = secured.address("SECURED")
    result = doctor(address)
    assert result.stdout.startswith(f"Cannot use {address}: ")
    assert "\nproblem: " in result.stdout
    assert "Connected to" in doctor(address, file=secured.file(LOGS_IN % "alice")).stdout


@pytest.mark.parametrize(
    ("begins_s", "ends_s", "words"),
    [
        (-9 * DAY_S, -DAY_S, "expired on"),
        (DAY_S, 9 * DAY_S, "is not valid before"),
    ],
)
def test_the_dates_of_a_certificate_are_told(
    tmp_path: Path, begins_s: float, ends_s: float, words: str
) -> None:
    """With the clock of this machine, which may be what is wrong."""
    authority = CertificateAuthority("kgw test", NOW_S)
    (tmp_path / "ca.pem").write_text(authority.truststore_pem)
    path = keystore(
        tmp_path, authority, "server", not_before_s=NOW_S + begins_s, not_after_s=NOW_S + ends_s
    )
    with ServerThread(listeners=("SSL://127.0.0.1:0",), ssl_keystore_location=path) as server:
        one = Secured(server, tmp_path, authority)
        (found,) = problems(one.address("SSL"), file=one.file("security.protocol=SSL\n"))
    assert words in found
    assert "by the clock of this machine" in found or "by which it is" in found


def test_an_advertised_address_that_the_certificate_does_not_have_is_told(tmp_path: Path) -> None:
    """A client that has connected by the right name is sent to the wrong one."""
    authority = CertificateAuthority("kgw test", NOW_S)
    (tmp_path / "ca.pem").write_text(authority.truststore_pem)
    path = keystore(tmp_path, authority, "server")
    with ServerThread(listeners=("SSL://127.0.0.1:0",), ssl_keystore_location=path) as server:
        one = Secured(server, tmp_path, authority)
        (found,) = problems(one.address("SSL"), file=one.file("security.protocol=SSL\n"))
    assert (
        f"node 0 advertises 127.0.0.1:{server.ports['SSL']}, and the server's certificate is for "
        "localhost: start the server with --advertise and one of these, or put a certificate for "
        "127.0.0.1 into its ssl.keystore.location"
    ) == found


def test_certificates_of_clients_are_told(tmp_path: Path) -> None:
    """One that is missing, one that is refused, one that expires soon at the server."""
    authority, stranger = (CertificateAuthority(one, NOW_S) for one in ("kgw test", "stranger"))
    (tmp_path / "ca.pem").write_text(authority.truststore_pem)
    path = keystore(tmp_path, authority, "server", not_after_s=NOW_S + DAY_S)
    own = tmp_path / "own.pem"
    own.write_text(stranger.issue_client([("CN", "alice")]).keystore_pem())
    own.chmod(0o600)
    settings: dict[str, Any] = {
        "listeners": ("SSL://127.0.0.1:0",),
        "advertised_listeners": ("SSL://localhost:0",),
        "ssl_keystore_location": path,
        "ssl_truststore_location": str(tmp_path / "ca.pem"),
        "ssl_client_auth": "required",
        "super_users": "User:CN=boss",
    }
    with ServerThread(**settings) as server:
        one = Secured(server, tmp_path, authority)
        address = one.address("SSL")
        file = one.file("security.protocol=SSL\n")
        (found,) = problems(address, file=file)
        assert f"{address} asks for a client's certificate: add ssl.keystore.location" in found
        file = one.file(f"security.protocol=SSL\nssl.keystore.location={own}\n")
        (found,) = problems(address, file=file)
        assert f"{address} refuses the client's certificate ({file}:2)" in found
        own.write_text(authority.issue_client([("CN", "alice")]).keystore_pem())
        result = doctor(address, "--json", "--producer", "--topic", "t", file=file)
        told = json.loads(result.stdout)
        assert "expires on" in told["notes"][0]
        (found,) = told["problems"]
        assert "no rule allows User:CN=alice to WRITE topic t" in found


def test_clocks_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tells its time to clients who may read its settings."""
    with ServerThread() as server:
        assert [] == problems(server.address)
        monkeypatch.setattr("kgw.client.AdminClient.clock_ms", late_clock, raising=True)
        (found,) = problems(server.address)
    assert f"the clock of {server.address} is 120 s behind the clock of this machine" in found


async def late_clock(*_: object) -> int:
    """Stand for a server whose clock is two minutes late."""
    return round((time.time() - 120) * 1000)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--topic", "a"),
        ("--producer",),
        ("--group", "a"),
        ("-b", "127.0.0.1:1", "--data-dir", "x"),
    ],
)
def test_options_that_mean_nothing_are_refused(offline: Commands, arguments: tuple[str]) -> None:
    """Rights are looked at with a topic and an intention; files without a server."""
    assert ExitCode.USAGE == offline.run("doctor", *arguments).exit_code
