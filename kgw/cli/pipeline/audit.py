"""`kgw pipeline audit`: compares an archive with its commit log and with its topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from kgw.cli.pipeline.archives import archive_option, chosen_topics, only_topics_option
from kgw.cli.pipeline.clusters import given_cluster
from kgw.cli.shared.client import Bootstrap, client_options, delay_teller
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import note, print_json, print_rows
from kgw.cli.shared.settings import watch_option
from kgw.errors import KgwError
from kgw.pipeline.archive.archived_topics import archived_topic_ids
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.findings import MAX_LEVEL
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.jobs.loading import is_compacted, settings_of
from kgw.pipeline.live.ends import LEVEL as LIVE_LEVEL
from kgw.pipeline.ranges import OffsetRange
from kgw.system import processors
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.cli.pipeline.audit_live import LiveOptions
    from kgw.pipeline.archive.findings import AuditFinding
    from kgw.pipeline.arrow.decode import Decoded
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.wire import WireClient


@click.command("audit", short_help="Prove that an archive is whole.")
@archive_option(is_required=False, what="The archive; level 4 does without.")
@only_topics_option
@click.option(
    "--level",
    type=click.IntRange(0, LIVE_LEVEL),
    default=MAX_LEVEL,
    help="How much is read: 0 the commit log, 1 the footers of files and tables, 2 every byte, "
    "3 the topic as well, 4 what its server has said before.",
)
@click.option(
    "--journal",
    "journals",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Level 4: look for each record that was acknowledged, by the journal of `kgw produce "
    "--ack-journal`; may be given several times.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Level 4: where topics began and ended in the last audit; written anew by this one.",
)
@watch_option(help="Level 4: look again every so often, until something is found, or Ctrl-C.")
@click.option(
    "--allow-gaps",
    is_flag=True,
    help="Level 3: let the topic have offsets without a record, as compaction or a restore "
    "leaves them, also where it is not compacted now.",
)
@client_options
def audit_archive(
    *,
    root: Path | None,
    topics: tuple[str, ...],
    level: int,
    allow_gaps: bool,
    journals: tuple[Path, ...],
    state: Path | None,
    watch_s: float | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> ExitCode:
    """Find missing, duplicate, altered and foreign records and files in an archive.

    Spark is not needed.

    All topic ids of a topic are audited; level 3 compares the one that the server has, record by
    record, over the offsets that both have. Level 4 finds acknowledged records that the server no
    longer has, and end offsets that moved back; it needs no archive. The exit code is 1 if anything
    is found.
    """
    from kgw.cli.pipeline.audit_live import COUNTS, LiveOptions, audit_live

    live = LiveOptions(journals, state, watch_s)
    if any(live) and level < LIVE_LEVEL:
        raise click.UsageError("--journal, --state and --watch belong to --level 4")
    if level == LIVE_LEVEL and not any(live):
        raise click.UsageError(
            "--level 4 needs something to compare with: --journal, --state, --watch"
        )
    if root is None and level < LIVE_LEVEL:
        raise click.UsageError("say which archive: --archive")
    cluster = given_cluster(bootstrap)
    told: dict[str, Any] = {"archive": None if root is None else str(root), "level": level}
    rows: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    failures: list[KgwError] = []
    if root is not None:
        rows, findings, failures = _audit_archive(
            root, topics, level, cluster, allow_gaps=allow_gaps
        )
        told["topics"] = rows
    acknowledged: list[dict[str, Any]] = []
    if level == LIVE_LEVEL:
        with cluster.client(client_id="kgw-pipeline-audit", tell=delay_teller()) as wire:
            found = audit_live(wire, _live_topics(root, topics, live), live)
        acknowledged = found.rows
        findings += [{"topic": topic, **_finding(one)} for topic, one in found.findings]
        told["acknowledged"] = acknowledged
    if is_json:
        print_json({**told, "findings": findings})
    else:
        tables = (
            (rows, "topic topic_id files records bytes"),
            (acknowledged, f"topic partition {' '.join(COUNTS)}"),
            (findings, "topic level finding detail"),
        )
        for number, (table, columns) in enumerate(one for one in tables if one[0]):
            if number:
                click.echo()
            print_rows(table, columns)
        if not findings and not failures:
            note("No problems found.")
    for failure in failures[1:]:
        note(str(failure))
    if failures:
        raise failures[0]
    return ExitCode.FAILED if findings else ExitCode.OK


def _live_topics(root: Path | None, topics: tuple[str, ...], live: LiveOptions) -> tuple[str, ...]:
    """Return the given topics, or the archive's; () if journals and the state name them."""
    if root is not None:
        return tuple(chosen_topics(root, topics))
    if not topics and not live.journals and (live.state is None or not live.state.exists()):
        raise click.UsageError("say which topics: --topic, --archive or --journal")
    return topics


def _audit_archive(
    root: Path, topics: tuple[str, ...], level: int, cluster: Cluster, *, allow_gaps: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[KgwError]]:
    """Return rows about the archive, its findings, and errors that left some parts unchecked."""
    from kgw.pipeline.archive.audit import audit
    from kgw.pipeline.archive.comparing import LEVEL

    threads = processors()
    rows: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    failures: list[KgwError] = []
    for topic in chosen_topics(root, topics):
        lives = archived_topic_ids(root, topic)
        readable = []
        for topic_id in lives:
            generation = generation_directory(str(root), topic, topic_id)
            found = list(audit(generation, topic_id, level=min(level, MAX_LEVEL), threads=threads))
            findings += [_row(topic, topic_id, one) for one in found]
            if any(one.level == 0 for one in found):
                # The commit log is damaged, so files cannot be counted.
                rows.append({"topic": topic, "topic_id": str(topic_id)})
                continue
            readable.append(topic_id)
            rows.append(_counts(generation, topic, topic_id))
        if level >= LEVEL and readable:
            with cluster.client(client_id="kgw-pipeline-audit", tell=delay_teller()) as wire:
                compared = _compare(wire, root, topic, lives, readable, allow_gaps=allow_gaps)
                try:
                    for one in compared:
                        findings.append(one)
                except KgwError as error:
                    failures.append(error)
    return rows, findings, failures


def _counts(generation: Path, topic: str, topic_id: UUID) -> dict[str, Any]:
    coverage = CommitLog(generation, topic_id).read().coverage
    files = [
        piece
        for partition in coverage.partitions.values()
        for piece in partition.pieces
        if isinstance(piece, DataFile)
    ]
    return {
        "topic": topic,
        "topic_id": str(topic_id),
        "files": len(files),
        "records": sum(one.rows for one in files),
        "bytes": sum(one.bytes for one in files),
    }


def _row(topic: str, topic_id: UUID, finding: AuditFinding) -> dict[str, Any]:
    return {"topic": topic, "topic_id": str(topic_id), **_finding(finding)}


def _finding(finding: AuditFinding) -> dict[str, Any]:
    return {"level": finding.level, "finding": finding.name, "detail": finding.text}


def _compare(
    wire: WireClient,
    root: Path,
    topic: str,
    lives: list[UUID],
    readable: list[UUID],
    *,
    allow_gaps: bool,
) -> Iterator[dict[str, Any]]:
    from kgw.pipeline.archive.comparing import LogBounds, compare
    from kgw.pipeline.wire import Reading

    described = wire.find_topic(topic)
    topic_id = None if described is None else UUID(bytes=bytes(described.topic_id))
    if described is None:
        raise ArchiveError(f"there is no topic {topic} on the server to compare its archive with")
    if topic_id is None or topic_id not in lives:
        raise ArchiveError(f"topic {topic} as it is on the server was never archived to {root}")
    if topic_id not in readable:
        return
    may_have_gaps = allow_gaps or is_compacted(settings_of(wire, topic))
    generation = generation_directory(str(root), topic, topic_id)
    coverage = CommitLog(generation, topic_id).read().coverage
    bounds = wire.bounds(
        topic, [one.partition for one in described.partitions], read_committed=True
    )
    for partition, (earliest, latest) in sorted(bounds.items()):
        covered = coverage.partitions.get(partition)
        if covered is None:
            continue

        def read_log(first: int, end: int, partition: int = partition) -> Iterator[Decoded]:
            wanted = OffsetRange(topic, partition, first, end, TopicId(topic_id.bytes))
            return wire.decoded(wanted, reading=Reading(read_committed=True))

        standing = LogBounds(earliest, latest, may_have_gaps)
        for one in compare(generation, topic, partition, covered, standing, read_log, tell=note):
            yield _row(topic, topic_id, one)
