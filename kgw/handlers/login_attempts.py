"""Asks before each check of a password whether too many logins have failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.security.principal import ANONYMOUS
from kgw.security.sasl.failed_logins import network_of

if TYPE_CHECKING:
    from kgw.gateway import Gateway
    from kgw.security.principal import Principal
    from kgw.security.sasl.failed_logins import Attempt, FailedLogins


class LoginAttempts:
    """The attempt of one login to prove a password."""

    __slots__ = ("_attempt", "_failed", "_gateway", "_network", "_own_name")

    def __init__(
        self, failed: FailedLogins, host: str, principal: Principal, gateway: Gateway
    ) -> None:
        """`failed` has the failed logins of all connections.

        `host` and `principal` are those of the connection before this login.
        """
        self._failed = failed
        self._gateway = gateway
        self._network = network_of(host)
        self._own_name = None if principal is ANONYMOUS else principal.name
        self._attempt: Attempt | None = None

    def may_try(self, name: str) -> bool:
        """Return whether a password of this name may be checked.

        A client that has logged in, and logs in again, is neither refused nor counted.
        """
        if name == self._own_name:
            return True
        self._attempt = self._failed.begin(self._network, name, self._now_s, self._per_minute)
        return self._attempt is not None

    def fail(self) -> None:
        """Count the login as failed, if its password was checked."""
        if self._attempt is not None:
            self._failed.fail(self._attempt, self._now_s, self._per_minute)

    def succeed(self) -> None:
        """Remember that the name has logged in from this network."""
        if self._attempt is not None:
            self._failed.succeed(self._attempt)

    @property
    def is_limited(self) -> bool:
        """Whether the client's network has too many failed logins."""
        return self._failed.is_limited(self._network, self._now_s, self._per_minute)

    @property
    def _now_s(self) -> float:
        return self._gateway.clock.monotonic_s()

    @property
    def _per_minute(self) -> int:
        return self._gateway.config.failed_logins_per_minute
