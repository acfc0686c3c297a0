"""TLS and the login of each listener, from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.handlers.login import Login
from kgw.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Callable
    from ssl import SSLContext

    from kgw.security.principal import Principal
    from kgw.server.limits import Limits


class ListenerSecurity(NamedTuple):
    """How connections to one listener are encrypted, and how clients say who they are."""

    tls: SSLContext | None = None
    """None: plain text."""
    principal_of: Callable[[bytes], Principal] | None = None
    """Returns the principal in a client's certificate, which is given as DER."""
    mechanisms: tuple[str, ...] = ()
    """The mechanisms by which clients must log in; none if they need not."""
    max_reauth_ms: int = 0

    def principal(self, transport: Transport) -> Principal:
        """Return the principal in the certificate of a client; ANONYMOUS without a certificate."""
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate is None or self.principal_of is None:
            return ANONYMOUS
        return self.principal_of(certificate)

    def login(self, now_s: float, limits: Limits) -> Login | None:
        """Return the login of a new connection; None if it needs none."""
        if not self.mechanisms:
            return None
        return Login(self.mechanisms, self.max_reauth_ms, now_s + limits.login_timeout_s)
