"""The address, storage options and credentials for a filer, as SeaweedFS defines them."""

from __future__ import annotations

import ssl
import tomllib
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import digest
from json import dumps
from pathlib import Path
from typing import Any

from kgw.config import ConfigError

GRPC_PORT_ABOVE_HTTP = 10_000
"""In SeaweedFS, a server's default gRPC port is its HTTP port plus this number."""


class SecurityError(ValueError):
    """A security.toml cannot be read, is no TOML, or names a missing file."""


READ_TOKEN_S = 60
"""SeaweedFS's default lifetime of a token for reads."""


@dataclass(frozen=True, slots=True)
class Security:
    """The client's part of SeaweedFS's `security.toml`; without one nothing is encrypted.

    Tokens for uploads are not needed here, because the filer returns them with the file ids.
    """

    grpc_ca: bytes | None = None
    """The CA that signs the servers' certificates. If it is set, gRPC is encrypted."""
    grpc_certificate: bytes | None = None
    grpc_key: bytes | None = field(default=None, repr=False)
    https: ssl.SSLContext | None = None
    """The TLS context for HTTPS to volume servers."""
    read_key: str = field(default="", repr=False)
    """The key that signs tokens for reads, if volume servers ask for them."""
    read_token_s: int = READ_TOKEN_S
    """How long a token for reads is valid."""

    def read_token(self, file_id: str, wall_s: int) -> str:
        """Return a token for reading a chunk (a JWT, HS256), "" if none is needed."""
        if not self.read_key:
            return ""
        # Ids that were assigned together use the first id's token.
        claims = {"exp": wall_s + self.read_token_s, "fid": file_id.partition("_")[0]}
        signed = b".".join(_url_safe(dumps(one).encode()) for one in (_JWT_HEADER, claims))
        signature = digest(self.read_key.encode(), signed, sha256)
        return f"{signed.decode()}.{_url_safe(signature).decode()}"


_JWT_HEADER = {"alg": "HS256", "typ": "JWT"}


def _url_safe(raw: bytes) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """The filer's address, how chunks are stored, and how long calls may take."""

    address: str
    """`host:port` of the filer's HTTP, or `host:port.grpcport`, as SeaweedFS writes addresses."""
    path: str = "/topics"
    """The directory of the files, to which the filer's rules by path (`fs.configure`) apply."""
    collection: str = ""
    """The collection, a separate group of volumes; empty for the filer's default."""
    replication: str = ""
    """The number of copies in other data centres, racks and servers, such as `010`; empty for the
    filer's default."""
    disk_type: str = ""
    """The type of disk, such as `hdd` or `ssd`; empty for the filer's default."""
    ttl_s: int = 0
    """Time after which SeaweedFS deletes a chunk; 0 for never. Only for data that kgw removes much
    sooner."""
    is_synced: bool = False
    """Whether volume servers sync each chunk to their disks before they answer."""
    timeout_s: float = 10.0
    """The time limit of a call without a deadline, including all its tries."""
    ids_at_once: int = 64
    """Number of file ids that are requested at a time."""
    id_lifetime_s: float = 5.0
    """How long a file id may be used. Volumes fill up, and tokens are valid for 10 s by default."""
    connections: int = 64
    """The most connections to one volume server."""
    security: Security = Security()
    tls_name: str = ""
    """The name in the servers' certificates; SeaweedFS's own clients do not check it."""


def grpc_target(address: str) -> str:
    """Return the target of a gRPC connection, given an address as SeaweedFS writes it.

    Raises ValueError when it is neither `host:port` nor `host:port.grpcport`.
    """
    host, _, ports = address.rpartition(":")
    port, _, grpc_port = ports.partition(".")
    numbers = [int(one) if one.isascii() and one.isdigit() else 0 for one in (port, grpc_port)]
    target = numbers[1] if grpc_port else numbers[0] + GRPC_PORT_ABOVE_HTTP
    if not host or not 0 < numbers[0] < 65536 or not 0 < target < 65536:
        raise ValueError(
            f"the address of a filer is host:port or host:port.grpcport, not {address!r}; "
            f"its gRPC port is {GRPC_PORT_ABOVE_HTTP} above its port unless it is given"
        )
    return f"{host}:{target}"


def load_security(path: Path) -> Security:
    """Return the settings for clients in a `security.toml` (see `weed scaffold -config=security`).

    Reads files: call it before the event loop runs, or in a thread. Raises SecurityError.
    """
    try:
        with path.open("rb") as file:
            toml = tomllib.load(file)
        grpc, client = _table(toml, "grpc"), _table(toml, "grpc", "client")
        https, read = _table(toml, "https", "client"), _table(toml, "jwt", "signing", "read")
        return Security(
            grpc_ca=_content(grpc.get("ca")),
            grpc_certificate=_content(client.get("cert")),
            grpc_key=_content(client.get("key")),
            https=_https(https) if https.get("enabled") else None,
            read_key=str(read.get("key", "")),
            read_token_s=int(read.get("expires_after_seconds", READ_TOKEN_S)),
        )
    except (OSError, ValueError) as error:
        raise SecurityError(f"{path} cannot be used: {error}") from error


def security_of(path: str, setting: str) -> Security:
    """Return the security of the file that a setting names; if it names none, nothing is encrypted.

    Raises ConfigError, which names the setting.
    """
    try:
        return load_security(Path(path)) if path else Security()
    except SecurityError as error:
        raise ConfigError(f"{setting}: {error}") from error


def _table(toml: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        toml = toml.get(name, {})
        if not isinstance(toml, dict):
            raise SecurityError(f"{'.'.join(names)} is not a section")
    return toml


def _content(name: str | None) -> bytes | None:
    return Path(name).read_bytes() if name else None


def _https(section: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=section.get("ca") or None)
    if section.get("insecure_skip_verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if section.get("cert"):
        context.load_cert_chain(section["cert"], section.get("key") or None)
    return context
