"""Campaign A11: no secret is told anywhere, whichever way it came in.

The secrets of `secrets.py` come in through the configuration, the environment, logins, APIs and
commands, right ones and wrong ones. The outputs are the log at level debug, answers, errors, the
admin side, what commands print, the list of processes, a crash, and files. The control is each
secret, written in each way that it could be told.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kgw.cli.main import main
from kgw.config import SERVER_SETTINGS
from kgw.protocol.api_keys import ApiKey
from kgw.records.builder import BatchBuilder
from kgw.testing.certificates import CertificateAuthority
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience, signals
from tests.handlers.support import START_MS
from tests.hostile.attacker import Attacker, Sent, read_ports
from tests.hostile.secrets import SECRETS, canary, leaks, written
from tests.security.sasl.scram_client import ScramClient

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDS = ("value of a record", "key of a record", "header of a record")
"""These are stored, and given to consumers."""
ADMIN_PATHS = (
    "/metrics",
    "/api/v1",
    "/api/v1/server",
    "/api/v1/metrics",
    "/api/v1/loop",
    "/api/v1/offsets",
    "/api/v1/lag",
    "/health/ready",
    "/nothing",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Place:
    """A folder with certificates and files, and everything that was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs: dict[str, bytes] = {}
        self.authority = CertificateAuthority("kgw test", time.time())
        self.server = self.authority.issue_server(["localhost", "127.0.0.1"])
        key_password = canary("password of the private key in the environment")
        self.private_key = self.server.key_pem(key_password)
        self.environment = {
            "KGW_SSL_KEYSTORE_KEY": self.private_key,
            "KGW_SSL_KEYSTORE_CERTIFICATE_CHAIN": self.server.chain_pem,
            "KGW_SSL_KEY_PASSWORD": key_password,
            "KGW_STATE_PASSWORD": canary("password of the state store in the environment"),
            "KGW_DELEGATION_TOKEN_SECRET_KEY": 2
            * canary("secret of delegation tokens in the environment"),
            "PYTHONFAULTHANDLER": "1",
        }
        self.token = self.file("token", canary("token of the admin side"))
        self.headers = self.file(
            "headers", f"Authorization: Bearer {canary('header of the OTLP export')}"
        )

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def toml(self, name: str, **settings: str) -> Path:
        lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items()]
        return self.file(name, "\n".join(lines))

    def told(self, name: str, output: bytes | str) -> None:
        data = output if isinstance(output, bytes) else output.encode()
        self.outputs[name] = self.outputs.get(name, b"") + data

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> int:
        """Run a command in this process; return its exit code."""
        result = CliRunner(env={"KGW_CONFIG": None, **(env or {})}).invoke(
            main, [*arguments], prog_name="kgw"
        )
        self.told(" ".join(["kgw", *arguments[:2]]), result.stdout + result.stderr)
        if result.exception is not None:
            self.told("exceptions of commands", repr(result.exception))
        return result.exit_code

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> int:
        """Start a server that refuses its configuration; return its exit code."""
        ended = subprocess.run(
            [sys.executable, "-m", "kgw", "serve", *arguments],
            capture_output=True,
            env={**os.environ, **(env or {})},
            timeout=patience.seconds(20),
            check=False,
        )
        self.told("refused starts", ended.stdout + ended.stderr)
        return ended.returncode


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give the folder."""
    return Place(tmp_path)


@pytest.mark.campaign
async def test_no_secret_is_told(place: Place) -> None:
    """Every secret goes in, and none comes out."""
    await asyncio.to_thread(configurations, place)
    settings = (
        "kgw.log.level=debug",
        "kgw.debug.slow.callback.ms=1",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        "kgw.sasl.plain.without.tls=true",
        "super.users=User:ANONYMOUS",
        "connection.failed.authentication.delay.ms=0",
        "kgw.admin.listeners=127.0.0.1:0",
        f"kgw.admin.token.file={place.token}",
        "kgw.otel.endpoint=http://127.0.0.1:1",
        "kgw.otel.interval.ms=1000",
        f"kgw.otel.headers.file={place.headers}",
    )
    listeners = ("--listen", "SASL_SSL://127.0.0.1:0", "--listen", "SASL_PLAINTEXT://127.0.0.1:0")
    gateway = GatewayProcess(
        place.folder / "data", *settings, command=[*SERVE, *listeners], env=place.environment
    )
    await asyncio.to_thread(gateway.start)
    try:
        ports = read_ports(gateway)
        await asyncio.to_thread(commands, place, gateway)
        await logins(place, ports["SASL_PLAINTEXT"])
        await requests(place, ports["PLAINTEXT"])
        await asyncio.to_thread(admin_side, place, gateway)
        processes(place, gateway.pid)
        place.told("data directory", stored(place.folder / "data"))
    finally:
        # A crash, with what Python says then.
        signals.send(gateway.pid, signal.SIGABRT)
        limit = patience.Limit(10)
        while not (gateway.ended or limit.is_over):  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.01)
        await asyncio.to_thread(gateway.kill)
    log = gateway.log_path.read_bytes()
    assert b"Current thread" in log
    assert b"a login failed" in log
    place.told("log", log)
    assert [] == leaks(place.outputs)
    lines = [one.encode() for one in place.private_key.splitlines() if len(one) == 64]
    assert lines
    assert [] == [name for name, output in place.outputs.items() for one in lines if one in output]


def configurations(place: Place) -> None:
    """Configurations that are printed, that are used, and that are refused."""
    password = canary("password of the keystore in the configuration file")
    trust = canary("password of the truststore in the configuration file")
    keystore = place.file("server.p12", place.server.keystore_pkcs12(password))
    truststore = place.file("trust.p12", place.authority.truststore_pkcs12(trust))
    files = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": password,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(truststore),
        "ssl.truststore.password": trust,
        "ssl.client.auth": "required",
    }
    good = str(place.toml("good.toml", **files))
    for more in ((), ("--json",)):
        assert 0 == place.run("config", "print", "--config", good, *more)
        assert 0 == place.run("config", "print", *more, env=place.environment)
        assert 0 == place.run("serve", "--config", good, "--print-config", *more)
        assert 0 == place.run("config", "list", *more)
    with GatewayProcess(
        place.folder / "first",
        "kgw.log.level=debug",
        command=[*SERVE, "--config", good, "--listen", "SSL://127.0.0.1:0"],
    ) as gateway:
        assert 0 == gateway.stop()
    place.told("log of a server with PKCS12", gateway.log())
    wrong = canary("password of a keystore that it does not open")
    bad = str(place.toml("bad.toml", **{**files, "ssl.keystore.password": wrong}))
    data = ("--data-dir", str(place.folder / "none"))
    assert 2 == place.start(*data, "--config", bad, "--listen", "SSL://127.0.0.1:0")
    broken = place.file(
        "broken.toml",
        f'"ssl.key.password" = {canary("password in a configuration file that is not TOML")}',
    )
    assert 2 == place.run("serve", *data, "--config", str(broken))
    misspelt = {"KGW_SSL_KEY_PASSWORDS": canary("password in a misspelt environment variable")}
    assert 2 == place.run("serve", *data, env=misspelt)
    flag = canary("password as a flag, which is refused")
    assert 2 == place.run("serve", *data, "--set", f"ssl.key.password={flag}")
    address = canary("password in the address of the state store")
    url = f"kgw.state.url=postgresql://kgw:{address}@db/state"
    assert 2 == place.run("serve", *data, "--set", url)
    told = canary("header file of the OTLP export that cannot be read")
    headers = place.file("bad headers", f"Authorization Bearer {told}")
    exported = ("kgw.otel.endpoint=http://127.0.0.1:1", f"kgw.otel.headers.file={headers}")
    arguments = [one for setting in exported for one in ("--set", setting)]
    assert 0 != place.start(*data, *arguments, "--listen", "127.0.0.1:0")


def commands(place: Place, gateway: GatewayProcess) -> None:
    """Users and settings through commands, with good and bad properties."""
    ports = read_ports(gateway)
    env = {"KGW_BOOTSTRAP": f"127.0.0.1:{ports['PLAINTEXT']}"}
    for user, secret in (
        ("alice", "password of a PLAIN login"),
        ("bob", "password of a SCRAM login"),
        ("carol", "password of a user in a file of the command line"),
    ):
        file = str(place.file(f"{user}.password", canary(secret)))
        arguments = ("--mechanism", "SCRAM-SHA-256", "--password-file", file)
        assert 0 == place.run("users", "add", user, *arguments, env=env)
    assert 0 == place.run("users", "list", "--json", env=env)
    assert 0 == place.run("config", "describe", "--json", env=env)
    secured = {"KGW_BOOTSTRAP": f"127.0.0.1:{ports['SASL_PLAINTEXT']}"}
    wrong = place.file(
        "wrong.properties",
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
        f"sasl.password={canary('password in the properties of the command line')}\n",
    )
    assert 0 != place.run("topics", "list", "--command-config", str(wrong), env=secured)
    unread = place.file(
        "unread.properties",
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka"
        ".common.security.plain.PlainLoginModule required username=alice "
        f"password={canary('password in properties that cannot be read')}\n",
    )
    assert 0 != place.run("topics", "list", "--command-config", str(unread), env=secured)
    assert 0 != place.run("doctor", "--command-config", str(wrong), env=secured)


async def logins(place: Place, port: int) -> None:
    """Logins that succeed, that fail, and messages that are none."""

    async def plain(token: str | bytes, *, handshake: bool = True, version: int = 1) -> None:
        data = token if isinstance(token, bytes) else token.encode()
        chosen = Sent(ApiKey.SASL_HANDSHAKE, version, {"mechanism": "PLAIN"}, "secrets")
        async with Attacker(port) as client:
            if handshake:
                place.told("answers", repr(await client.send(chosen)))
            if version == 0:
                await client.send_bytes(len(data).to_bytes(4, "big") + data)
            else:
                answer = await client.send(Sent(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": data}))
                place.told("answers", repr(answer))

    await plain(f"\0alice\0{canary('password of a PLAIN login')}")
    await plain(f"\0alice\0{canary('wrong password of a PLAIN login')}")
    await plain(f"alice\0{canary('password in a PLAIN message without a name')}")
    await plain(f"\0a\0{canary('password in a PLAIN message with too many parts')}\0b\0c")
    await plain(f"\0alice\0{canary('password in a token without a header')}", version=0)
    await plain(f"\0alice\0{canary('password in a token before the handshake')}", handshake=False)
    await plain(canary("password in a token that is too long").encode() * 5_000)
    for secret, form in (
        ("password of a SCRAM login", "c={binding},r={nonce},p={proof}"),
        ("wrong password of a SCRAM login", "c={binding},r={nonce},p={proof}"),
        ("extension of a SCRAM message", "c={binding},r={nonce},x=%s,p={proof}"),
    ):
        scram = ScramClient("SCRAM-SHA-256", canary(secret), bare="n=bob,r=fyko+d2lbbFgONRv9qkxd")
        template = form.replace("%s", canary("extension of a SCRAM message"))
        async with Attacker(port) as client:
            await client.send(Sent(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"}))
            first = await client.send(
                Sent(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": scram.first()})
            )
            final = scram.final(first.auth_bytes, template=template)
            answer = await client.send(Sent(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": final}))
        assert (answer.error_code == 0) == (secret == "password of a SCRAM login")
        place.told("answers", repr(answer))


async def requests(place: Place, port: int) -> None:
    """APIs that take secrets, and those that show settings and users."""
    client = Attacker(port)

    async def ask(api: ApiKey, version: int, **fields: Any) -> Any:
        answer = await client.send(Sent(api, version, fields, "secrets"))
        place.told("answers", repr(answer))
        return answer

    def user(secret: str, **fields: Any) -> dict[str, Any]:
        salted = canary(secret).encode().ljust(32, b"x")[:32]
        whole = {"name": "dave", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16}
        return {"upsertions": [{**whole, "salted_password": salted, **fields}]}

    stored_user = user("salted password of a user through the API")
    assert (await ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **stored_user)).results
    few = user("salted password of a user with too few iterations", iterations=5)
    assert (await ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **few)).results[0].error_code
    await ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    for name, value in (
        ("ssl.key.password", canary("password as a setting through the API")),
        ("ssl.key.passwords", canary("password as an unknown setting through the API")),
        (
            "listener.name.sasl_ssl.plain.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required password="
            + canary("password in the JAAS configuration of a listener through the API"),
        ),
    ):
        for where in ("0", ""):
            settings = [{"name": name, "config_operation": 0, "value": value}]
            one = {"resource_type": 4, "resource_name": where, "configs": settings}
            changed = await ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[one])
            assert changed.responses[0].error_code
            one = {**one, "configs": [{"name": name, "value": value}]}
            changed = await ask(ApiKey.ALTER_CONFIGS, 2, resources=[one])
            assert changed.responses[0].error_code
    for where in ("0", ""):
        every: dict[str, Any] = {"resource_type": 4, "configuration_keys": None}
        shown = await ask(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=[every | {"resource_name": where}],
            include_synonyms=True,
            include_documentation=True,
        )
        named = {each.name: each for each in shown.results[0].configs}
        for name, setting in SERVER_SETTINGS.items():
            if setting.is_sensitive and name in named:
                assert (None, True) == (named[name].value, named[name].is_sensitive)
    await produce(ask)
    await client.aclose()


async def produce(ask: Any) -> None:
    """Produce a record, and a batch that is refused."""
    await ask(ApiKey.METADATA, 4, topics=[{"name": "orders"}], allow_auto_topic_creation=True)
    builder = BatchBuilder()
    builder.add(
        key=canary("key of a record").encode(),
        value=canary("value of a record").encode(),
        headers=[("h", canary("header of a record").encode())],
        timestamp_ms=START_MS,
    )
    refused = BatchBuilder()
    refused.add(value=canary("record of a batch that is refused").encode(), timestamp_ms=START_MS)
    damaged = refused.build()
    damaged[-1] ^= 1
    for records in (builder.build(), damaged):
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
        await ask(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=1000, topic_data=data)


def admin_side(place: Place, gateway: GatewayProcess) -> None:
    """Ask for everything with the token, and with one that is not known."""
    unknown = canary("token that the admin side does not know")
    for token in (canary("token of the admin side"), unknown, ""):
        for path in (*ADMIN_PATHS, f"/api/v1/{unknown[:3]}"):
            connection = http.client.HTTPConnection("127.0.0.1", gateway.admin_port)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            place.told("admin side", repr(answer.getheaders()).encode() + answer.read())
            connection.close()
            assert answer.status != 200 or token != unknown or path == "/health/ready"


def processes(place: Place, pid: int) -> None:
    """Read what everybody on the machine sees of the server and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (str(pid), *children):
        for name in ("cmdline", "comm", "status"):
            place.told("list of processes", Path(f"/proc/{one}/{name}").read_bytes())


def stored(data: Path) -> bytes:
    """Return all files of the data directory, without what was sent as records."""
    content = b"".join(one.read_bytes() for one in data.rglob("*") if one.is_file())
    for secret in RECORDS:
        content = content.replace(canary(secret).encode(), b"")
    return content


# --- the campaign itself --------------------------------------------------------------------------


def test_there_are_enough_secrets() -> None:
    """At least thirty, each with a text of its own, and every secret setting is among them."""
    assert 30 <= len(SECRETS)
    assert len(SECRETS) == len({canary(one) for one in SECRETS})
    covered = {
        "ssl.keystore.password",
        "ssl.truststore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "kgw.state.password",
        "delegation.token.secret.key",
    }
    public = {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}
    sensitive = {name for name, setting in SERVER_SETTINGS.items() if setting.is_sensitive}
    assert sensitive == covered | public


@pytest.mark.parametrize("secret", SECRETS)
def test_control_a_secret_that_is_told(secret: str) -> None:
    """It is found in each of its forms, in the middle of others, and by its name."""
    forms = [*written(secret)]
    assert 10 <= len(forms)
    for form in forms:
        found = leaks({"log": b"a line\n" + form + b"\nanother line"})
        assert f"{secret}: in log" in found
    assert [] == leaks({"log": b"a line\nanother line"})
