"""`kgw doctor --backend seaweedmq://...`: what is found of a SeaweedFS, and printed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from kgw.backend.seaweedmq.address import SCHEME, parse_address
from kgw.backend.seaweedmq.from_config import filer_channel
from kgw.backend.seaweedmq.offline.examine import (
    Finding,
    Setup,
    Severity,
    examine,
    judge_version,
)
from kgw.cli.errors import ExitCode
from kgw.cli.output import print_json
from kgw.clock import SystemClock
from kgw.metrics import Metrics
from kgw.types import printable

if TYPE_CHECKING:
    from kgw.config import Config

_COLOURS = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}


def examine_backend(config: Config, *, is_json: bool) -> ExitCode:
    """Print what is found, and return the exit code. Raises KgwError when no filer answers."""
    if not config.backend.startswith(f"{SCHEME}:"):
        raise click.UsageError(
            f"kgw.backend is {config.backend!r}: only a seaweedmq:// address is looked at; "
            "for a data directory there is `kgw log check`"
        )
    findings = asyncio.run(_examine(config))
    if is_json:
        print_json({"backend": config.backend, "findings": [one._asdict() for one in findings]})
    else:
        for one in findings:
            severity = click.style(f"{one.severity}:", fg=_COLOURS[one.severity])
            click.echo(f"{severity} {one.subject}: {printable(one.detail)}")
    is_wrong = any(one.severity is Severity.PROBLEM for one in findings)
    return ExitCode.FAILED if is_wrong else ExitCode.OK


async def _examine(config: Config) -> list[Finding]:
    address = parse_address(config.backend)
    clock = SystemClock()
    filer = filer_channel(config, clock, Metrics())
    await filer.open()
    async with aclosing(filer):
        findings = [judge_version(filer.configuration.version)]
        setup = Setup(
            address.namespace,
            config.seaweedmq_replication,
            config.seaweedmq_collection,
            config.seaweedmq_fsync,
            bool(config.seaweedmq_security_file),
        )
        probe = f"doctor-{uuid4().hex}"
        return [
            *findings,
            *[one async for one in examine(filer, setup, probe, clock.monotonic_s())],
        ]
