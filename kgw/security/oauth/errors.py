"""The errors of this package. Pure."""

from __future__ import annotations


class TokenRefused(Exception):  # noqa: N818 - an event as in `kgw.security.sasl.errors`, not a defect
    """A token is not accepted.

    `reason` is for the server's log. It is a fixed sentence that contains no part of the token.
    `user` is the token's subject, if the signature is right.
    """

    def __init__(self, reason: str, user: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.user = user


class KeySetError(Exception):
    """A key set cannot be read, or has no key that can be used. The text has no part of a key."""
