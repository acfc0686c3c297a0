"""Findings about a SeaweedFS, one for each subject. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class CheckResult(NamedTuple):
    """The result of one check."""

    subject: str
    severity: Severity
    detail: str
    """The result in words, and the remedy for a problem."""
