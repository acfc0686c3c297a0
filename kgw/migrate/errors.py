"""The error of a migration."""

from kgw.errors import KgwError


class MigrationError(KgwError):
    """A migration cannot continue; the message has one line."""
