"""Decides when to warn of a certificate that expires. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from kgw.security.tls.keystores import date_text

_DAY_S: Final = 86_400.0
WARN_BEFORE_S: Final = 14 * _DAY_S
"""How long before its end a certificate is warned of."""


class CertificateExpiry(NamedTuple):
    """The end of a server's own certificate."""

    certificate: str
    """The setting and the name of the certificate."""
    not_after_s: float


class ExpiryRule:
    """Decides when to warn of the certificate in use: once a day, and when it has expired."""

    def __init__(self) -> None:
        self._expiry: CertificateExpiry | None = None
        self._told_s: float | None = None
        """When the last warning was."""
        self._told_expired = False

    def begin(self, expiry: CertificateExpiry | None, now_s: float) -> None:
        """Note that this certificate is in use now. Whoever loads an expired one warns of it."""
        if expiry is not None and now_s > expiry.not_after_s:
            self._told_s, self._told_expired = now_s, True
        elif expiry != self._expiry:
            self._told_s, self._told_expired = None, False
        self._expiry = expiry

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds until the certificate expires, negative after that; None without."""
        return None if self._expiry is None else self._expiry.not_after_s - now_s

    def warning(self, now_s: float) -> str | None:
        """Return the sentence to log now, if one is due."""
        left_s = self.left_s(now_s)
        if self._expiry is None or left_s is None or left_s > WARN_BEFORE_S:
            return None
        has_expired = left_s < 0
        was_told = (
            self._told_s is not None
            # A wall clock that was set back does not delay the next warning.
            and 0 <= now_s - self._told_s < _DAY_S
            and self._told_expired == has_expired
        )
        if was_told:
            return None
        self._told_s, self._told_expired = now_s, has_expired
        date = date_text(self._expiry.not_after_s)
        if has_expired:
            return f"{self._expiry.certificate} expired on {date}."
        return f"{self._expiry.certificate} expires on {date}: replace it before."
