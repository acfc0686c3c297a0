"""The error of a failed export."""

from __future__ import annotations

from kgw.errors import KgwError


class ExportError(KgwError):
    """The receiver did not accept an export, or rejected a part of it."""
