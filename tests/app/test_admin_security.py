"""`kgw serve` with TLS and users at the admin side and at the agent, asked by our own commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import grpc
import pytest
from cryptography import x509

from kgw.cli.shared.errors import ExitCode
from kgw.testing.certificates import CertificateAuthority
from tests import patience
from tests.admin.asking import basic
from tests.agent.smq_client import M
from tests.cli.conftest import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

PASSWORD = "canary-3379"
START_SESSION = "/messaging_pb.SeaweedMessagingAgent/StartPublishSession"


class Secured:
    """Certificates, a user, and a server that has TLS everywhere but at Kafka's listener."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority("kgw test", time.time())
        self.keystore = folder / "server.pem"
        self.truststore = folder / "ca.pem"
        self.truststore.write_text(self.authority.truststore_pem)
        self.write_certificate()
        self.commands = Commands("127.0.0.1:1")
        self.process = self._start()
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.kafka = ready["listeners"][0]["port"]
        self.admin = ready["admin"][0]["port"]
        self.agent = ready["smq_agent"]["port"]

    def write_certificate(self) -> None:
        """Issue another certificate, in place of the old one."""
        issued = self.authority.issue_server(["localhost", "127.0.0.1"])
        new = self.keystore.with_suffix(".new")
        new.write_text(issued.keystore_pem())
        new.chmod(0o600)
        new.replace(self.keystore)

    def _start(self) -> subprocess.Popen[str]:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o600)
        data = ("--data-dir", str(self.folder / "data"))
        user = ("users", "add", "alice", "--mechanism", "SCRAM-SHA-512")
        self.commands.succeed(*user, "--password-file", str(secret), *data)
        settings = {
            "kgw.admin.listeners": "https://127.0.0.1:0",
            "kgw.admin.login": "true",
            "kgw.smq.agent.listener": "https://127.0.0.1:0",
            "kgw.smq.agent.login": "true",
            "ssl.keystore.location": str(self.keystore),
            "super.users": "User:alice",
        }
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "kgw", "serve", "--json", "--listen", "127.0.0.1:0", *data),
                *(one for pair in settings.items() for one in ("--set", "=".join(pair))),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def properties(self, password: str = PASSWORD) -> str:
        """Return a file that says how commands connect."""
        file = self.folder / "client.properties"
        file.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\n"
            f"sasl.password={password}\nssl.truststore.location={self.truststore}\n"
        )
        file.chmod(0o600)
        return str(file)

    def serial_number(self, port: int) -> int:
        """Return the number of the certificate that a new connection sees."""
        context = ssl.create_default_context(cafile=str(self.truststore))
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            found = secured.getpeercert(binary_form=True)
        assert found is not None
        return x509.load_der_x509_certificate(found).serial_number

    def start_session(self, password: str) -> str:
        """Start a session at the agent; return the name of the status."""
        credentials = grpc.ssl_channel_credentials(self.truststore.read_bytes())
        with grpc.secure_channel(f"localhost:{self.agent}", credentials) as channel:
            call = channel.unary_unary(
                START_SESSION,
                request_serializer=M["StartPublishSessionRequest"].SerializeToString,
                response_deserializer=M["StartPublishSessionResponse"].FromString,
            )
            topic = M["Topic"](namespace="kafka", name="orders")
            request = M["StartPublishSessionRequest"](topic=topic)
            metadata = (("authorization", basic("alice", password)),)
            try:
                answer = call(request, metadata=metadata, timeout=patience.seconds(20))
            except grpc.RpcError as error:
                return str(error.code().name)
        assert "" == answer.error
        return "OK"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Give the server; end it."""
    one = Secured(tmp_path_factory.mktemp("secured"))
    yield one
    with one.process:
        one.process.kill()


def test_the_whole(secured: Secured) -> None:
    """The user of before the first start is known to `kgw top`, to scripts and to the agent."""
    admin = ("--admin", f"https://localhost:{secured.admin}")
    top = ("top", "--once", "--interval", "0.2", *admin)
    config = ("--command-config", secured.properties())
    assert secured.commands.json(*top, *config)["server"]["ready"] is True
    error = secured.commands.fail(ExitCode.CANNOT_CONNECT, *top)
    assert "is not trusted" in error
    config = ("--command-config", secured.properties("wrong"))
    error = secured.commands.fail(ExitCode.USAGE, *top, *config)
    assert "does not take the user and the password" in error

    probe = subprocess.run(
        [sys.executable, "-m", "kgw.admin.probe"],
        env={**os.environ, "KGW_ADMIN_LISTENERS": f"https://127.0.0.1:{secured.admin}"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (0, '{"ready":true}\n') == (probe.returncode, probe.stdout)

    assert "OK" == secured.start_session(PASSWORD)
    assert "UNAUTHENTICATED" == secured.start_session("wrong")
    for port in (secured.admin, secured.agent):
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in plain.recv(4096)

    ports = (secured.admin, secured.agent)
    old = {secured.serial_number(port) for port in ports}
    assert 1 == len(old)
    secured.write_certificate()
    secured.process.send_signal(signal.SIGHUP)
    limit = patience.Limit(10)
    while any(secured.serial_number(port) in old for port in ports):
        assert not limit.is_over
    assert "OK" == secured.start_session(PASSWORD)

    secured.process.send_signal(signal.SIGTERM)
    _, log = secured.process.communicate(timeout=patience.seconds(30))
    assert 0 == secured.process.returncode
    lines = [json.loads(line) for line in log.splitlines()]
    assert "a login failed" in {one["event"] for one in lines}
    assert "canary" not in log
