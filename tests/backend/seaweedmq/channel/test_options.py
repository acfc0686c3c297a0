from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from hashlib import sha256
from hmac import digest
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.channel.options import (
    Security,
    SecurityError,
    grpc_target,
    load_security,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("filer:8888", "filer:18888"),
        ("filer:8888.7", "filer:7"),
        ("10.0.0.1:8888.18889", "10.0.0.1:18889"),
        ("[::1]:8888", "[::1]:18888"),
    ],
)
def test_an_address_says_where_grpc_is(address: str, target: str) -> None:
    """As SeaweedFS writes and reads them."""
    assert target == grpc_target(address)


@pytest.mark.parametrize(
    "address", ["", "filer", ":8888", "filer:", "filer:x", "filer:0", "f:60000", "f:1.x"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """The message says what one looks like."""
    with pytest.raises(ValueError, match="host:port"):
        grpc_target(address)


def test_a_read_token_is_signed_for_the_first_id_of_its_assignment() -> None:
    """SeaweedFS leaves out the number of an id among those assigned together, too."""
    token = Security(read_key="secret", read_token_s=60).read_token("3,01c0ffee_7", 1000)
    header, claims, signature = token.split(".")
    assert {"alg": "HS256", "typ": "JWT"} == _json(header)
    assert {"exp": 1060, "fid": "3,01c0ffee"} == _json(claims)
    expected = digest(b"secret", f"{header}.{claims}".encode(), sha256)
    assert expected == urlsafe_b64decode(signature + "=")
    assert "" == Security().read_token("3,01c0ffee", 1000)


def _json(part: str) -> object:
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_security_toml_is_read_as_clients_of_seaweedfs_read_it(tmp_path: Path) -> None:
    """Keys of servers in it are not looked at, and no key shows in a log."""
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "security.toml"
    path.write_text(
        f"""
        [jwt.signing]
        key = "of the servers"
        [jwt.signing.read]
        key = "secret"
        expires_after_seconds = 30
        [grpc]
        ca = "{tmp_path}/ca"
        [grpc.filer]
        cert = "/nowhere"
        [grpc.client]
        cert = "{tmp_path}/cert"
        key = "{tmp_path}/key"
        [https.client]
        enabled = false
        ca = "/nowhere"
        """
    )
    security = load_security(path)
    assert (b"ca", b"cert", b"key") == (
        security.grpc_ca,
        security.grpc_certificate,
        security.grpc_key,
    )
    assert ("secret", 30, None) == (security.read_key, security.read_token_s, security.https)
    assert "secret" not in repr(security)
    path.write_text("[https.client]\nenabled = true\ninsecure_skip_verify = true\n")
    assert load_security(path).https is not None
    path.write_text("")
    assert Security() == load_security(path)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "grpc = 1",
        "[grpc]\nca = '/nowhere'",
        "[grpc]\nclient = 1",
        "[https.client]\nenabled = true\nca='/nowhere'",
    ],
)
def test_a_security_toml_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    """With what is wrong in it."""
    path = tmp_path / "security.toml"
    path.write_text(text)
    with pytest.raises(SecurityError, match=r"security\.toml cannot be used: "):
        load_security(path)
    with pytest.raises(SecurityError):
        load_security(tmp_path / "none.toml")
