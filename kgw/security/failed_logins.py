"""Limits how often logins from one address may fail. Pure."""

from __future__ import annotations

from typing import Final

from kgw.errors import KgwError

EVERY_S: Final = 1.0
"""After a burst, an address may fail once in this time."""
_BURST: Final = 10
_MOST: Final = 10_000


class LoginUnavailableError(KgwError):
    """A login cannot be checked now; the client may try again."""


class TooManyFailuresError(KgwError):
    """Too many logins from the client's address have failed; it may try again after a second."""


class FailedLogins:
    """The failures of each address. A login counts as a failure until it has succeeded.

    So clients that try many passwords at the same time meet the limit, too.
    """

    def __init__(self, burst: int = _BURST, every_s: float = EVERY_S, most: int = _MOST) -> None:
        """`most` is the number of addresses that are remembered; the oldest make room."""
        self._burst = burst
        self._every_s = every_s
        self._most = most
        self._forgiven_s: dict[str, float] = {}
        """When all failures of an address are forgiven."""

    def __len__(self) -> int:
        return len(self._forgiven_s)

    def admits(self, address: str, now_s: float) -> bool:
        """Return whether a login may begin, and count it as a failure if so."""
        forgiven_s = max(now_s, self._forgiven_s.pop(address, now_s))
        is_admitted = forgiven_s - now_s <= (self._burst - 1) * self._every_s
        if is_admitted:
            forgiven_s += self._every_s
        if len(self._forgiven_s) >= self._most:
            del self._forgiven_s[next(iter(self._forgiven_s))]
        self._forgiven_s[address] = forgiven_s
        return is_admitted

    def succeed(self, address: str, now_s: float) -> None:
        """Take a failure back, as its login has succeeded."""
        forgiven_s = self._forgiven_s.get(address, now_s) - self._every_s
        if forgiven_s > now_s:
            self._forgiven_s[address] = forgiven_s
        else:
            self._forgiven_s.pop(address, None)
