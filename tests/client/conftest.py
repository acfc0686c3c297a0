"""What the client's tests share."""

from __future__ import annotations

import socket
from typing import NamedTuple

import pytest

from tests.client.certificates import Identity, make_authority, make_identity


class Certificates(NamedTuple):
    """Certificates for servers on this machine, and for clients."""

    authority: Identity
    server: Identity
    """Its names are 127.0.0.1 and localhost."""
    client: Identity


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    """Certificates that one authority has signed."""
    authority = make_authority()
    return Certificates(
        authority, make_identity(authority, "127.0.0.1", "localhost"), make_identity(authority)
    )


@pytest.fixture
def unused_tcp_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
