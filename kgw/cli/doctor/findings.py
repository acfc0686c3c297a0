"""Prints the findings of `kgw doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.backend.seaweedmq.offline.findings import CheckResult, Severity
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import print_json
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COLOURS = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}


def print_findings(
    findings: Sequence[CheckResult], *, is_json: bool, of: Mapping[str, str] | None = None
) -> ExitCode:
    """Print findings, and return the exit code. In JSON, the fields of `of` come first."""
    if is_json:
        print_json({**(of or {}), "findings": [one._asdict() for one in findings]})
    else:
        for one in findings:
            severity = click.style(f"{one.severity}:", fg=_COLOURS[one.severity])
            click.echo(f"{severity} {one.subject}: {printable(one.detail)}")
    is_wrong = any(one.severity is Severity.PROBLEM for one in findings)
    return ExitCode.FAILED if is_wrong else ExitCode.OK
