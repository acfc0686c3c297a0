"""A gateway with TLS, logins and access rules, and its users.

A client identifies itself in a way of its own: by a SASL mechanism, or by a certificate. With
OAUTHBEARER it has a token, which an authorization server of the tests has signed. Each way has a
writer, who may create its topics and write them, and a reader, who may read them with its groups.
Nobody has more rights, except the administrator.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from kgw.client import AdminClient, AsyncClient, GroupClient, client_security
from kgw.client.delegation_tokens import TokenClient, TokenDetails
from kgw.client.values import ScramUpsertion
from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from kgw.security.sasl.scram import ScramMechanism, new_salt, salt_password
from kgw.testing.certificates import CertificateAuthority
from tests import patience
from tests.security.oauth.issuing import AUDIENCE, ISSUER, claims, jwk, key_set, token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

ResultT = TypeVar("ResultT")

ITERATIONS = 4096
ADMIN = "admin"
WRITER, READER = "writer", "reader"
RIGHTS = {
    WRITER: [
        (ResourceType.TOPIC, AclOperation.CREATE),
        (ResourceType.TOPIC, AclOperation.WRITE),
    ],
    READER: [
        (ResourceType.TOPIC, AclOperation.READ),
        (ResourceType.GROUP, AclOperation.READ),
    ],
}
"""What the users of each way may do."""


class Way(NamedTuple):
    """A way in which a client identifies itself: a SASL mechanism, or a certificate."""

    name: str
    listener: str
    credential: ScramMechanism | None
    """What the server keeps of a password; None without one."""
    is_by_token: bool = False

    @property
    def prefix(self) -> str:
        """How the names of its topics, groups and users begin."""
        return self.name.lower()


WAYS = (
    Way("PLAIN", "SASL_SSL", ScramMechanism.SHA_512),
    Way("SCRAM-SHA-256", "SASL_SSL", ScramMechanism.SHA_256),
    Way("SCRAM-SHA-512", "SASL_SSL", ScramMechanism.SHA_512),
    Way("certificate", "SSL", None),
    Way("OAUTHBEARER", "SASL_SSL", None, is_by_token=True),
)
BY_CERTIFICATE, BY_TOKEN = WAYS[3:]
BY_PASSWORD = tuple(way for way in WAYS if way.credential is not None)


def user_name(way: Way, role: str) -> str:
    """Return the name of a user."""
    return f"{way.prefix}-{role}"


def token_of(user: str, *, which_key: int = 1) -> str:
    """Return a token for a user that is good for an hour, signed with one of the private keys."""
    now_s = int(time.time())
    times = {"iat": now_s - 5, "nbf": now_s - 5, "exp": now_s + 3600}
    return token(payload=claims(sub=user, **times), which=which_key)


def password_of(user: str) -> str:
    """Return the password of a user: with characters that JAAS and properties must escape."""
    return f'{user} = "key", \\ ü'


class SecuredGateway:
    """A gateway process with a listener for logins and one for certificates.

    It trusts tokens of the first private key.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._settings = dict(settings or {})
        self._environment = {**os.environ, **(environment or {})}
        self.log_path = folder / "gateway.log"
        authority = CertificateAuthority("kgw test", time.time())
        another = CertificateAuthority("somebody else", time.time())
        self._ports = dict.fromkeys(("SASL_SSL", "SSL"), 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._write("server", authority.issue_server(["localhost", "127.0.0.1"]).keystore_pem())
        self._write("trusted", authority.truststore_pem)
        self._write("untrusted", another.truststore_pem)
        self._keys = folder / "keys.json"
        self._keys.write_bytes(key_set(jwk("ES256")))
        for issuer, name in ((authority, "the authority"), (another, "another")):
            (folder / name).mkdir()
            for role in RIGHTS:
                user = user_name(BY_CERTIFICATE, role)
                issued = issuer.issue_client([("O", "kgw"), ("CN", user)])
                self._write(f"{name}/{user}", issued.keystore_pem())

    def _write(self, name: str, text: str, kind: str = "pem") -> Path:
        path = self.folder / f"{name}.{kind}"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def address(self, listener: str) -> str:
        """Return the address of a listener, as host:port."""
        return f"localhost:{self._ports[listener]}"

    def security(
        self,
        way: Way,
        role: str,
        *,
        password: str | None = None,
        which_key: int = 1,
        trusted: str = "trusted",
        issued_by: str = "the authority",
    ) -> dict[str, str]:
        """Return the properties of a client, in which any of the last four can be wrong."""
        name = user_name(way, role)
        if way.is_by_token:
            identity = self._token_login(name, which_key)
        elif way.listener == "SASL_SSL":
            identity = self._login(way.name, name, password or password_of(name))
        else:
            identity = {"ssl.keystore.location": str(self.folder / issued_by / f"{name}.pem")}
        return {
            "security.protocol": way.listener,
            "ssl.truststore.location": str(self.folder / f"{trusted}.pem"),
            **identity,
        }

    def _token_login(self, name: str, which_key: int) -> dict[str, str]:
        text = token_of(name, which_key=which_key)
        file = self._write(f"{name}-{which_key}", text, kind="token")
        return {
            "sasl.mechanism": BY_TOKEN.name,
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }

    @staticmethod
    def _login(mechanism: str, name: str, password: str) -> dict[str, str]:
        return {
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
        }

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, by topic and partition."""

        async def ask(client: AsyncClient) -> dict[tuple[str, int], int]:
            offsets = await GroupClient(client).offsets(group)
            return {(topic, partition): one.offset for (topic, partition), one in offsets.items()}

        return self._as_administrator(ask)

    def create_topic(self, topic: str) -> None:
        """Create a topic of one partition."""
        self._as_administrator(lambda client: AdminClient(client).create_topic(topic, partitions=1))

    def create_token(self, user: str) -> TokenDetails:
        """Create a delegation token that logs in a user."""
        return self._as_administrator(
            lambda client: TokenClient(client).create(owner=f"User:{user}")
        )

    def __enter__(self) -> Self:
        self._add_administrator()
        self.start()
        self._as_administrator(_add_users)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the gateway, the first time on free ports and later on the same ones."""
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()]
        settings = {
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.truststore.location": str(self.folder / "trusted.pem"),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),O=kgw$/$1/",
            "sasl.enabled.mechanisms": ",".join(way.name for way in (*BY_PASSWORD, BY_TOKEN)),
            "kgw.sasl.oauthbearer.jwks.file": str(self._keys),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "super.users": f"User:{ADMIN}",
            **self._settings,
        }
        command = [sys.executable, "-m", "kgw", "serve", "--json", "--data-dir", self._data_dir]
        for listener in listeners:
            command += ["--listen", listener]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready, self.log_path.read_text()
        self._ports = {one["name"]: one["port"] for one in json.loads(ready)["listeners"]}

    def kill(self) -> None:
        """Kill the gateway with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()

    @property
    def _data_dir(self) -> str:
        return str(self.folder / "data")

    def _add_administrator(self) -> None:
        password_file = self._write("admin-password", password_of(ADMIN))
        subprocess.run(
            [
                *(sys.executable, "-m", "kgw", "users", "add", ADMIN),
                *("--mechanism", "SCRAM-SHA-512", "--data-dir", self._data_dir),
                *("--password-file", str(password_file)),
            ],
            check=True,
            capture_output=True,
            timeout=patience.seconds(20),
        )

    def _as_administrator(self, act: Callable[[AsyncClient], Awaitable[ResultT]]) -> ResultT:
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.folder / "trusted.pem"),
            **self._login("SCRAM-SHA-512", ADMIN, password_of(ADMIN)),
        }
        address, security = ("localhost", self._ports["SASL_SSL"]), client_security(properties)

        async def connect() -> ResultT:
            async with AsyncClient([address], security=security) as client:
                return await act(client)

        return asyncio.run(connect())


async def _add_users(client: AsyncClient) -> None:
    admin = AdminClient(client)
    for way in WAYS:
        for role, rights in RIGHTS.items():
            name = user_name(way, role)
            if way.credential is not None:
                await admin.set_scram_credential(_credential(way.credential, name))
            await admin.create_access_rules(
                AclBinding(
                    resource_type,
                    f"{way.prefix}-",
                    PatternType.PREFIXED,
                    f"User:{name}",
                    "*",
                    operation,
                    PermissionType.ALLOW,
                )
                for resource_type, operation in rights
            )


def _credential(mechanism: ScramMechanism, name: str) -> ScramUpsertion:
    salt = new_salt(os.urandom)
    salted = salt_password(mechanism, password_of(name), salt, ITERATIONS)
    return ScramUpsertion(name, mechanism, ITERATIONS, salt, salted)
