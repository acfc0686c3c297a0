"""The results of checks of a SeaweedFS. Pure."""

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
        """Return a result without a problem."""
        return cls(subject, Severity.OK, detail)

    @classmethod
    def warning(cls, subject: str, detail: str) -> Self:
        """Return a result that warns of possible harm."""
        return cls(subject, Severity.WARNING, detail)

    @classmethod
    def problem(cls, subject: str, detail: str) -> Self:
        """Return a result that kgw cannot work, or may lose records."""
        return cls(subject, Severity.PROBLEM, detail)
