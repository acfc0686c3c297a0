"""Level 4 of `kgw pipeline audit`: compares a topic with earlier responses of its server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import is_terminal, note
from kgw.pipeline.errors import PipelineError
from kgw.pipeline.live.audit import LiveAudit
from kgw.pipeline.live.ends import from_json, to_json
from kgw.system import sync

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.pipeline.archive.findings import AuditFinding
    from kgw.pipeline.live.ends import Seen
    from kgw.pipeline.wire import WireClient


COUNTS = ("acknowledged", "confirmed", "removed", "compacted", "unread", "lost", "altered")
"""The counts of acknowledged records."""


class LiveOptions(NamedTuple):
    """The journals and the state file with which topics are compared, and how often."""

    journals: tuple[Path, ...]
    state: Path | None
    watch_s: float | None


class LiveResult(NamedTuple):
    """The findings, and for each partition a row with the counts of acknowledged records."""

    findings: list[tuple[str, AuditFinding]]
    rows: list[dict[str, Any]]


def audit_live(wire: WireClient, topics: tuple[str, ...], options: LiveOptions) -> LiveResult:
    """Audit once, or until there is a finding or Ctrl-C; store the results in the state file.

    Raises CommandError, and the errors of `LiveAudit.look`.
    """
    before = _read(options.state)
    auditing = LiveAudit(wire, topics, options.journals, before)
    # Keep the stored results of topics that are not audited now.
    others = {topic: one for topic, one in before.items() if topics and topic not in topics}
    findings = auditing.look()
    try:
        while options.watch_s is not None and not findings:
            _keep(options.state, others | auditing.seen)
            if is_terminal():
                note(f"Nothing is wrong with {len(auditing.seen)} topics; Ctrl-C ends.")
            time.sleep(options.watch_s)
            findings = auditing.look()
    except KeyboardInterrupt:
        note("Interrupted.")
    _keep(options.state, others | auditing.seen)
    rows = [
        {"topic": topic, "partition": partition, **counts}
        for (topic, partition), counts in sorted(auditing.counts.items())
    ]
    return LiveResult(findings, rows)


def _read(path: Path | None) -> Seen:
    if path is None or not path.exists():
        return {}
    try:
        return from_json(json.loads(path.read_bytes()))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise CommandError(f"{path}: not JSON") from None
    except PipelineError as error:
        raise CommandError(f"{path}: {error}") from None


def _keep(path: Path | None, seen: Seen) -> None:
    if path is None:
        return
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("w") as file:
            json.dump(to_json(seen), file, indent=1)
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
