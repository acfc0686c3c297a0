"""`kgw doctor --backend seaweedmq://...`: checks a SeaweedFS and prints the findings."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from kgw.backend.seaweedmq.address import SCHEME, parse_address
from kgw.backend.seaweedmq.from_config import filer_channel
from kgw.backend.seaweedmq.offline.examine import (
    Setup,
    examine,
    version_finding,
)
from kgw.backend.seaweedmq.offline.findings import CheckResult, Severity
from kgw.cli.doctor.findings import print_findings
from kgw.clock import SystemClock
from kgw.errors import StorageError
from kgw.metrics import Metrics

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.channel.channel import FilerChannel
    from kgw.cli.shared.errors import ExitCode
    from kgw.config import Config


def examine_backend(
    config: Config, others: list[CheckResult] | None = None, *, is_json: bool
) -> ExitCode:
    """Check the SeaweedFS, print the findings behind others, and return the exit code.

    Raises KgwError if no filer answers.
    """
    if not config.backend.startswith(f"{SCHEME}:"):
        raise click.UsageError(
            f"kgw.backend is {config.backend!r}: only a seaweedmq:// address is looked at; "
            "for a data directory there is `kgw log check`"
        )
    findings = [*(others or ()), *asyncio.run(_examine(config))]
    return print_findings(findings, is_json=is_json, of={"backend": config.backend})


async def _examine(config: Config) -> list[CheckResult]:
    address = parse_address(config.backend)
    clock = SystemClock()
    filer = filer_channel(config, clock, Metrics())
    await filer.open()
    async with aclosing(filer):
        findings = [version_finding(filer.version)]
        default_replication = ""
        try:
            default_replication = await filer.default_replication()
        except StorageError as error:
            findings.append(
                CheckResult(
                    "masters",
                    Severity.PROBLEM,
                    f"they do not say how many copies they make by themselves: {error}; start "
                    "them again",
                )
            )
        setup = Setup(
            address.namespace,
            config.seaweedmq_replication,
            default_replication,
            config.seaweedmq_collection,
            config.seaweedmq_disk_type,
            config.seaweedmq_fsync,
            bool(config.seaweedmq_security_file),
            config.seaweedmq_mirror_offsets,
        )
        probe, now_s = f"doctor-{uuid4().hex}", clock.wall_ms() // 1000
        findings += [
            one
            async for one in examine(
                filer, setup, probe, now_s, clock.monotonic_s(), filer.volume_servers
            )
        ]
        if config.seaweedmq_native:
            findings += await _examine_native(config, filer)
        return findings


async def _examine_native(config: Config, filer: FilerChannel) -> list[CheckResult]:
    """Return findings about topics that the SMQ broker leads."""
    # Imported only when needed: most namespaces have no such topics.
    from kgw.backend.seaweedmq.native.topics import ACKS_BROKER, LOSS, NativeOptions, NativeTopics
    from kgw.backend.seaweedmq.options import SeaweedMqOptions
    from kgw.backend.seaweedmq.shell import Shell

    options = NativeOptions(
        config.seaweedmq_native, config.seaweedmq_native_write, config.seaweedmq_acks
    )
    subject = "native topics"
    shell = Shell(filer, SystemClock(), SeaweedMqOptions())
    async with aclosing(shell):
        native = NativeTopics(shell, options, None, lambda: None)
        await native.refresh()
        findings = [CheckResult(subject, Severity.WARNING, problem) for problem in shell.problems]
    names = ", ".join(sorted(topic.name for topic in native.topics)) or "none"
    findings.append(
        CheckResult(
            subject,
            Severity.OK,
            f"{names}; lost when the broker ends: {LOSS[options.acks]}",
        )
    )
    if options.is_writable or options.acks == ACKS_BROKER:
        brokers = await filer.nodes("broker")
        findings.append(
            CheckResult("broker", Severity.OK, ", ".join(sorted(brokers)))
            if brokers
            else CheckResult(
                "broker",
                Severity.PROBLEM,
                "the masters know of none: start weed mq.broker, or read these topics alone "
                "(kgw.seaweedmq.native.write=false, kgw.seaweedmq.acks=filer)",
            )
        )
    return findings
