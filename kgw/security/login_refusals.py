"""Why the password in a request is not checked: for HTTP Basic, over HTTP and over gRPC."""

from __future__ import annotations

from kgw.errors import KgwError


class LoginUnavailableError(KgwError):
    """A login cannot be checked now; the client may try again."""


class TooManyFailuresError(KgwError):
    """Too many logins from the client's address have failed; it may try again after a minute."""
