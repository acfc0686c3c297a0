"""Campaign A8: names that clients choose neither leave the data directory nor forge a line.

Each name is used as a topic, a group, a transactional id, a client id, a member, a user, a resource
and a principal of access rules, a setting and its value, and in a client's certificate. The
controls are a log that escapes nothing, and a file that a path trick would have made.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.x509.oid import NameOID

from kgw import logs
from kgw.cli.main import main
from kgw.protocol.api_keys import ApiKey
from kgw.security.tls.principals import PrincipalMapper
from kgw.testing.certificates import CertificateAuthority
from kgw.testing.process import SERVE, GatewayProcess
from tests.handlers.support import batch
from tests.hostile.attacker import Attacker, Sent, read_ports
from tests.hostile.names import (
    FORGED,
    MARKER,
    RULES,
    escaped_files,
    forged_lines,
    has_control_characters,
    hostile_names,
)
from tests.hostile.test_hostile import FULL, sizes
from tests.security.tls.handshakes import NOW_S, client_context

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = hostile_names()
SLOW_MAPPING_S = 0.010
LONGEST_COMMON_NAME = 64

pytestmark = pytest.mark.timeout(120)


def requests(name: str, number: int) -> Iterator[Sent]:
    """Yield a request for each place of the protocol in which a client can write the name."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    yield Sent(ApiKey.CREATE_TOPICS, 7, {"topics": [topic]})
    fetched = [{"name": name}]
    yield Sent(ApiKey.METADATA, 4, {"topics": fetched, "allow_auto_topic_creation": True})
    named = {"name": name, "partition_data": [{"index": 0, "records": batch()}]}
    yield Sent(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 1000, "topic_data": [named]})
    joined = {
        "group_id": name,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "group_instance_id": name,
        "protocol_type": name,
        "protocols": [{"name": name, "metadata": name.encode()}],
    }
    yield Sent(ApiKey.JOIN_GROUP, 5, joined)
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": name}
    committed = {"name": "orders", "partitions": [partition]}
    commit = {"group_id": name, "generation_id_or_member_epoch": -1, "topics": [committed]}
    yield Sent(ApiKey.OFFSET_COMMIT, 8, commit)
    yield Sent(ApiKey.HEARTBEAT, 4, {"group_id": "g", "generation_id": 0, "member_id": name})
    begun = {"transactional_id": name, "transaction_timeout_ms": 1000}
    yield Sent(ApiKey.INIT_PRODUCER_ID, 4, begun)
    yield Sent(ApiKey.FIND_COORDINATOR, 2, {"key": name, "key_type": 0})
    who = {"client_software_name": name, "client_software_version": name}
    yield Sent(ApiKey.API_VERSIONS, 3, who, client_id=name)
    for resource_type, resource in ((2, name), (4, name), (8, name), (16, name), (32, name)):
        setting = {"name": name, "config_operation": 0, "value": name}
        one = {"resource_type": resource_type, "resource_name": resource, "configs": [setting]}
        yield Sent(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [one]})
    value = {"name": "retention.ms", "config_operation": 0, "value": name}
    one = {"resource_type": 2, "resource_name": "orders", "configs": [value]}
    yield Sent(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [one]})
    for resource_type in (2, 3, 5):
        rule = {
            "resource_type": resource_type,
            "resource_name": name,
            "resource_pattern_type": 3 + number % 2,
            "principal": f"User:{name}",
            "host": name if number % 3 == 0 else "*",
            "operation": 3,
            "permission_type": 2 + number % 2,
        }
        yield Sent(ApiKey.CREATE_ACLS, 3, {"creations": [rule]})
    user = {
        "name": name,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt" * 4,
        "salted_password": b"x" * 32,
    }
    yield Sent(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"upsertions": [user]})
    directory = {"path": name, "topics": [{"name": name, "partitions": [0]}]}
    yield Sent(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [directory]})
    if number % 2:
        yield Sent(ApiKey.DELETE_TOPICS, 5, {"topic_names": [name]})
    # A frame that breaks the protocol is told in the log, with the client id.
    yield Sent(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": name}, client_id=name)


class Attacked:
    """A process with a listener of each kind, and the folder around its data directory."""

    def __init__(self, folder: Path, style: str) -> None:
        self.folder = folder
        self.style = style
        self.authority = CertificateAuthority("kgw test", NOW_S)
        keystore, truststore = folder / "server.pem", folder / "clients.pem"
        keystore.write_text(self.authority.issue_server(["localhost"]).keystore_pem())
        keystore.chmod(0o600)
        truststore.write_text(self.authority.truststore_pem)
        listeners = ("SSL://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0")
        settings = (
            f"kgw.log.format={style}",
            "kgw.log.level=debug",
            "super.users=User:ANONYMOUS",
            f"ssl.keystore.location={keystore}",
            f"ssl.truststore.location={truststore}",
            "ssl.client.auth=required",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            "kgw.sasl.plain.without.tls=true",
            "connection.failed.authentication.delay.ms=0",
            "kgw.failed.logins.per.minute=0",
            "kgw.admin.listeners=127.0.0.1:0",
            "group.initial.rebalance.delay.ms=0",
        )
        command = [*SERVE, *(one for name in listeners for one in ("--listen", name))]
        self.gateway = GatewayProcess(folder / "data", *settings, command=command)
        self.before = self.entries()

    def entries(self) -> set[str]:
        """Return the paths around the data directory."""
        return {str(one.relative_to(self.folder)) for one in self.folder.iterdir()}

    def places(self) -> list[Path]:
        """Return the folders in which a path trick would make a file."""
        here = Path.cwd()
        data = self.folder / "data"
        inside = [one for one in data.rglob("*") if one.is_dir()]
        # The names of topics are in the data directory only as the ids of topics.
        return [
            Path("/"),
            Path("/tmp"),
            Path("/etc"),
            Path.home(),
            here,
            here.parent,
            *self.folder.parents,
            self.folder,
            data,
            *inside,
        ]


def certificate(authority: CertificateAuthority, name: str) -> Any:
    """Return a client's certificate whose common name is this, as far as there is room."""
    cut = name.encode()[:LONGEST_COMMON_NAME].decode(errors="ignore") or "-"
    return authority.issue_client(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cut)]))


@pytest.mark.slow
@sizes(8, 1)
@pytest.mark.parametrize("style", ["json", "text"])
async def test_names(tmp_path: Path, style: str, scale: int) -> None:
    """No file outside the data directory, no forged line; the server serves on.

    In the short form each style has every eighth name, and few of them in certificates.
    """
    names = NAMES[style == "text" :: scale]
    attacked = Attacked(tmp_path, style)
    with attacked.gateway as gateway:
        ports = read_ports(gateway)
        async with Attacker(ports["PLAINTEXT"]) as plain:
            created = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}
            await plain.send(Sent(ApiKey.METADATA, 4, created))
            for number, name in enumerate(names):
                for sent in requests(name, number):
                    await plain.send(sent)
                await log_in(ports["SASL_PLAINTEXT"], name)
            assert plain.answers > 15 * len(names)
            for name in names[::scale]:
                tls = client_context(certificate(attacked.authority, name), attacked.authority)
                async with Attacker(ports["SSL"], tls) as holder:
                    for sent in requests(name, 0):
                        await holder.send(sent)
            await asyncio.to_thread(commands, f"127.0.0.1:{ports['PLAINTEXT']}")
            await asyncio.to_thread(exposed, gateway)
            listed = await plain.send(Sent(ApiKey.METADATA, 4, {"topics": None}))
            assert "orders" in {one.name for one in listed.topics}
            assert {one.name for one in listed.topics} <= {*NAMES, "orders"}
        assert gateway.running
    # After a stop in order, and so with everything written that the names have changed.
    log = gateway.log_path.read_bytes()
    print(f"names={len(names)} answers={plain.answers} lines={log.count(chr(10).encode())}")
    assert [] == forged_lines(log, style)
    assert b"bug of kgw" not in log
    assert [] == escaped_files(attacked.places())
    assert attacked.entries() == attacked.before | {"data", "data.log"}
    assert [] == [str(one) for one in (tmp_path / "data").rglob("*") if one.is_symlink()]


async def log_in(port: int, name: str) -> None:
    """Log in by this name, with both kinds of mechanisms, and with a name that nobody takes."""
    for mechanism, token in (
        ("PLAIN", f"\0{name}\0wrong".encode()),
        ("SCRAM-SHA-256", f"n,,n={name.replace('=', '=3D').replace(',', '=2C')},r=abc".encode()),
        (name, name.encode()),
    ):
        async with Attacker(port) as client:
            await client.send(Sent(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}, name))
            await client.send(Sent(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}, name))


def commands(bootstrap: str) -> None:
    """Run the commands that print names: none of them reaches a terminal as it is."""
    runner = CliRunner(env={"KGW_BOOTSTRAP": bootstrap, "KGW_CONFIG": None})
    for command in (
        ("topics", "list"),
        ("groups", "list"),
        ("acls", "list"),
        ("users", "list"),
        ("transactions", "list"),
        ("groups", "offsets", "--all"),
        ("topics", "describe", f"../{MARKER}\x1b[2J"),
        ("topics", "create", f"../{MARKER}\x1b[2J\n{FORGED}"),
        ("groups", "describe", f"\x1b[2J\n{FORGED}"),
    ):
        for option in ((), ("--json",)):
            result = runner.invoke(main, [*command, *option], prog_name="kgw")
            for line in (result.stdout + result.stderr).split("\n"):
                assert not has_control_characters(line), (command, repr(line))
                assert not line.startswith(FORGED)


def exposed(gateway: GatewayProcess) -> None:
    """Ask for the metrics, in whose labels there are names of topics and groups."""
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    forged = f"{FORGED.replace('-', '_')}_total"
    assert [] == [one for one in lines if one.startswith(forged) or one == "# HELP x"]
    assert [] == [one for one in lines if not re.match(r"(# (HELP|TYPE) )?[a-z_]+(\{| )", one)]


# --- log lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["json", "text"])
def test_every_name_in_every_place_of_a_line(style: str) -> None:
    """As an event, a field and in the text of an error, with its traceback."""
    out = io.StringIO()
    root = logging.getLogger()
    kept = root.handlers[:], root.level, logging.raiseExceptions
    try:
        logs.configure(style, "debug", out)
        log = logs.EventLogger("kgw.a8")
        for name in NAMES:
            log.info("closed", client_id=name, why=f"{name!s} is refused")
            logging.getLogger("asyncio").warning("%s took %d ms", name, 5)
        said = out.getvalue().encode()
        assert 2 * len(NAMES) == said.count(b"\n")
        assert [] == [one for one in forged_lines(said, style) if "asyncio" not in one]
        for name in NAMES:
            try:
                raise ValueError(name)
            except ValueError as error:
                log.error("failed", error=error)  # noqa: TRY400 - not of logging
    finally:
        root.handlers[:], logging.raiseExceptions = kept[0], kept[2]
        root.setLevel(kept[1])
    for line in out.getvalue().split("\n"):
        assert not has_control_characters(line), repr(line)
        assert not line.startswith((FORGED, "12:00:00.000", '{"event"'))


@pytest.mark.parametrize("style", ["json", "text"])
def test_control_a_log_that_escapes_nothing(style: str) -> None:
    """Its lines are found, at least one for each kind of name that forges some."""
    found = 0
    for name in NAMES:
        if style == "json":
            begin = '{"time": "t", "level": "info", "logger": "kgw", "event": "closed", "id": "'
            line = f'{begin}{name}"}}'
        else:
            line = f"12:00:00.000 info    kgw.server  closed  client_id={name}"
        found += bool(forged_lines(f"{line}\n".encode(errors="replace"), style))
    assert found > 60


def test_control_a_file_that_left_the_data_directory(tmp_path: Path) -> None:
    """A path trick that works is found."""
    data = tmp_path / "data"
    data.mkdir()
    (data / ".." / MARKER).write_text("out")
    assert [str(tmp_path / MARKER)] == escaped_files([tmp_path, data])


# --- mapping rules --------------------------------------------------------------------------------


def mapped(mapper: PrincipalMapper, certificates: list[bytes]) -> Iterator[float]:
    """Map the names of certificates; yield how long each took."""
    for one in certificates:
        began_s = time.perf_counter()
        with suppress(ValueError):
            mapper.principal_of(one, NOW_S)
        yield time.perf_counter() - began_s


def der_of_names() -> list[bytes]:
    """Return a certificate for each name, in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding

    authority = CertificateAuthority("kgw test", NOW_S)
    return [certificate(authority, one).certificate.public_bytes(Encoding.DER) for one in NAMES]


def test_no_rule_goes_back() -> None:
    """Rules and names on which other matchers take a time that doubles with each character.

    One that takes exponential time would never end: the limit of the test is its judge.
    """
    certificates = der_of_names()[::4]
    for rule in RULES:
        assert len(certificates) == len([*mapped(PrincipalMapper(rule), certificates)])


@pytest.mark.parametrize("rule", [pytest.param(one, marks=FULL) for one in RULES])
def test_mapping_takes_no_time(rule: str) -> None:
    """In full size no name takes more than 10 ms, of five tries the quickest."""
    certificates = der_of_names()
    mapper = PrincipalMapper(rule)
    rounds = [[*mapped(mapper, certificates)] for _ in range(5)]
    slowest = max(min(times) for times in zip(*rounds, strict=True))
    print(f"slowest={slowest * 1000:.2f} ms of {len(certificates)} names")
    assert slowest <= SLOW_MAPPING_S
