"""The error of a failed export."""

from __future__ import annotations

from kgw.errors import KgwError


class ExportError(KgwError):
    """The receiver has rejected an export, or a part of it."""
