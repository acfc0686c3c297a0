"""The error of a migration."""

from kgw.errors import KgwError


class MigrationError(KgwError):
    """A migration cannot go on; the message says why in one line."""
