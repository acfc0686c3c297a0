"""What can go wrong with an export."""

from __future__ import annotations

from kgw.errors import KgwError


class ExportError(KgwError):
    """An export that was not taken, or not in full."""
