"""What is said of a SeaweedFS: one thing after the other. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One thing that was looked at."""

    subject: str
    severity: Severity
    detail: str
    """What was found, and what to do about it."""
