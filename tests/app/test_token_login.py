"""`kgw serve` with logins by tokens, as a process, with real client libraries and a key server."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kgw.testing.certificates import CertificateAuthority
from tests import patience
from tests.security.oauth.issuing import AUDIENCE, ISSUER, claims, jwk, key_set, token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What kafka-python does when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(90),
    pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning"),
]
SECRET = "canary-7702"


def fresh(subject: str = "alice", lifetime_s: int = 3600, **header: Any) -> str:
    """Return a token that is good now."""
    now_s = int(time.time())
    times = {"iat": now_s - 5, "nbf": now_s - 5, "exp": now_s + lifetime_s}
    return token(payload=claims(sub=subject, **times), header=header)


class KeyServer:
    """An authorization server over HTTPS: its key set, and tokens for client credentials."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.keys = key_set(jwk("ES256"))
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(outer.keys)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(self.headers["Authorization"])
                self._answer(
                    json.dumps({"access_token": fresh("app"), "expires_in": 3600}).encode()
                )

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_address[1]}"

    @contextmanager
    def served(self) -> Iterator[KeyServer]:
        """Serve in a thread."""
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


class Served:
    """A gateway with OAUTHBEARER over TLS, and its key server."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority("kgw test", time.time())
        self.folder = folder
        self.truststore = folder / "ca.pem"
        self.truststore.write_text(authority.truststore_pem)
        self.keystore = folder / "server.pem"
        self.keystore.write_text(authority.issue_server(["localhost", "127.0.0.1"]).keystore_pem())
        self.keystore.chmod(0o600)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.keystore)
        self.errors = folder / "errors"
        self.port = 0

    def environment(self) -> dict[str, str]:
        """Return an environment in which the system trusts the tests' authority."""
        return {**os.environ, "SSL_CERT_FILE": str(self.truststore)}

    def command(self, url: str, *more: str, listen: str = "SASL_SSL://127.0.0.1:0") -> list[str]:
        """Return the command of a server."""
        settings = {
            "ssl.keystore.location": self.keystore,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        given = [one for pair in settings.items() for one in ("--set", "{}={}".format(*pair))]
        data = str(self.folder / "data")
        return ["serve", "--json", "--data-dir", data, "--listen", listen, *given, *more]

    @contextmanager
    def running(self, keys: KeyServer) -> Iterator[Served]:
        """Run the server."""
        with (
            self.errors.open("w") as errors,
            subprocess.Popen(
                [sys.executable, "-m", "kgw", *self.command(f"{keys.url}/keys?a=b")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment(),
            ) as process,
        ):
            try:
                assert process.stdout is not None
                self.port = json.loads(process.stdout.readline())["listeners"][0]["port"]
                yield self
            finally:
                process.terminate()

    @property
    def bootstrap(self) -> str:
        """The address."""
        return f"localhost:{self.port}"


@pytest.fixture(scope="module")
def keys(served_folder: Served) -> Iterator[KeyServer]:
    """The key server of the tests of this module."""
    with KeyServer(served_folder.tls).served() as one:
        yield one


@pytest.fixture(scope="module")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The certificates and the data directory."""
    return Served(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def served(served_folder: Served, keys: KeyServer) -> Iterator[Served]:
    """The gateway of the tests of this module; at the end its log has no token."""
    with served_folder.running(keys) as one:
        yield one
    written = one.errors.read_text()
    assert "eyJ" not in written
    assert SECRET not in written


def test_confluent_kafka(served: Served) -> None:
    """It asks a callback for the token; with a bad one it is told that the login has failed."""
    good, bad = fresh(), f"{fresh()}AAAA"

    def settings(text: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": served.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "ssl.ca.location": str(served.truststore),
            "oauth_cb": lambda _: (text, time.time() + 3600),
            "log_level": 0,
            **more,
        }

    producer = Producer(settings(good))
    producer.produce("confluent", b"one")
    assert 0 == producer.flush(patience.seconds(20))
    problems: list[Any] = []
    refused = AdminClient(settings(bad, error_cb=problems.append))
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=0.7)
    refused.poll(1)
    assert any("OAUTHBEARER" in str(one) or "uthentication" in str(one) for one in problems)


async def test_aiokafka(served: Served) -> None:
    """It asks a provider for the token, and takes a denial for success: it is not served."""

    class Provider(AioTokenProvider):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            self.text = text

        async def token(self) -> str:
            return self.text

        def extensions(self) -> dict[str, str]:
            return {"traceId": "1"}

    def settings(text: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": served.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "ssl_context": ssl.create_default_context(cafile=str(served.truststore)),
            "sasl_oauth_token_provider": Provider(text),
        }

    async with AIOKafkaProducer(**settings(fresh())) as producer:
        await producer.send_and_wait("aiokafka", b"one")
    async with AIOKafkaConsumer(
        "aiokafka", auto_offset_reset="earliest", **settings(fresh())
    ) as consumer:
        assert b"one" == (await consumer.getone()).value
    async with AIOKafkaProducer(**settings(fresh(kid="unknown"))) as refused:
        assert set() == refused.client.cluster.brokers()


def test_kafka_python(served: Served) -> None:
    """It asks a provider for the token."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            self.text = text

        def token(self) -> str:
            return self.text

        def extensions(self) -> dict[str, str]:
            return {"traceId": "1"}

    def settings(text: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": served.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "ssl_cafile": str(served.truststore),
            "sasl_oauth_token_provider": Provider(text),
        }

    producer = KafkaProducer(**settings(fresh()))
    producer.send("kafka-python", b"one").get(timeout=patience.seconds(20))
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **settings(fresh()))
    assert b"one" == next(consumer).value
    consumer.close()


@pytest.mark.parametrize("kind", ["endpoint", "file", "bad file"])
def test_kgws_commands(served: Served, keys: KeyServer, tmp_path: Path, kind: str) -> None:
    """`--command-config` with the properties of Kafka's tools: a token endpoint, or a file."""
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(served.truststore),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginCallbackHandler",
    }
    if kind == "endpoint":
        properties |= {
            "sasl.oauthbearer.token.endpoint.url": f"{keys.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        }
    else:
        file = tmp_path / "token"
        file.write_text(fresh() if kind == "file" else fresh(lifetime_s=-10))
        properties["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    config.chmod(0o600)
    asked = len(keys.asked)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kgw", "topics", "list"),
            *("--bootstrap", served.bootstrap, "--command-config", str(config)),
        ],
        env=served.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.seconds(30),
    )
    assert (kind == "bad file") == bool(done.returncode), done.stderr
    assert (kind == "endpoint") == (len(keys.asked) == asked + 1)
    if kind == "bad file":
        assert "it does not accept the token (invalid_token)" in done.stderr
    assert "eyJ" not in done.stdout + done.stderr


def refused_start(served: Served, *arguments: str, before: str = "") -> str:
    """Start a server that must not start; return its only line."""
    program = f"{before}import kgw.__main__, sys; sys.argv[0] = 'kgw'; kgw.__main__.run()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=served.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.seconds(30),
    )
    assert done.returncode in {1, 2}
    assert "" == done.stdout
    (line,) = done.stderr.strip().splitlines()
    return line


def test_a_server_without_keys_does_not_start(served_folder: Served, keys: KeyServer) -> None:
    """A key server that is down, or is another one; a setting that is missing, or an extra."""
    command = served_folder.command
    down = "https://localhost:1/keys"
    assert "connection refused" in refused_start(served_folder, *command(down))
    unsigned = KeyServer(served_folder.tls)
    unsigned.keys = key_set({"kty": "oct", "k": "c2VjcmV0", "kid": "key-ES256"})
    with unsigned.served():
        line = refused_start(served_folder, *command(f"{unsigned.url}/keys"))
    assert "no key that can check a token" in line
    without_issuer = command(keys.url, "--set", "sasl.oauthbearer.expected.issuer=")
    assert "sasl.oauthbearer.expected.issuer" in refused_start(served_folder, *without_issuer)
    line = refused_start(
        served_folder, *command(keys.url), before="import sys; sys.modules['jwt'] = None; "
    )
    assert "[oauth]" in line
