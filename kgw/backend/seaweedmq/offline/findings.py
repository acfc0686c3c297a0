"""Findings about a SeaweedFS, one for each subject. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self


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

    @classmethod
    def ok(cls, subject: str, detail: str) -> Self:
        """Return that nothing is wrong with the subject."""
        return cls(subject, Severity.OK, detail)

    @classmethod
    def warning(cls, subject: str, detail: str) -> Self:
        """Return that the subject may do harm."""
        return cls(subject, Severity.WARNING, detail)

    @classmethod
    def problem(cls, subject: str, detail: str) -> Self:
        """Return that the subject keeps kgw from working, or from keeping records."""
        return cls(subject, Severity.PROBLEM, detail)
