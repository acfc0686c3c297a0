"""The identity of a client, as Kafka's tools write it: `User:alice`. Pure."""

from __future__ import annotations

from typing import NamedTuple

USER_TYPE = "User"


class Principal(NamedTuple):
    """An identity. Two principals are the same if both fields are equal, case included."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        """Return Kafka's text form."""
        return f"{self.principal_type}:{self.name}"


EVERY_NAME = "*"
"""The name of `User:*`, which means every principal in access rules: no client has it."""

ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")
"""The principal of a client that has not logged in, and has shown no certificate."""

RESERVED_NAMES = frozenset({EVERY_NAME, ANONYMOUS.name})
"""Names that no client may have, however it logs in."""

ADMIN_TOKEN = Principal("Token", "kgw.admin.token.file")
"""The principal of a client that shows the token of the admin listeners. No user has its type."""


def check_user_name(name: str) -> None:
    """Raise ValueError, with the reason, for a name that no client may log in with."""
    if not name:
        raise ValueError("the name of the user is empty")
    if name in RESERVED_NAMES:
        raise ValueError(f"a user cannot be called {name}")
    if not name.isprintable() or name != name.strip():
        raise ValueError("the name of the user has characters that cannot be seen")


def parse_principal(text: str) -> Principal:
    """Parse `TYPE:NAME`; a name may contain colons. Raises ValueError."""
    principal_type, colon, name = text.partition(":")
    if not (principal_type and colon and name):
        raise ValueError(f"{text!r} is not TYPE:NAME, as in User:alice")
    return Principal(principal_type, name)
