"""`kgw pipeline retain`: removes the oldest files of an archive, and of the topic's log."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.pipeline.archives import (
    archive_option,
    chosen_life,
    grace_option,
    note_swept,
    swept_files,
    topic_id_option,
)
from kgw.cli.pipeline.clusters import given_cluster
from kgw.cli.shared.client import Bootstrap, client_options, delay_teller, numbers_option
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import note, print_json, print_rows
from kgw.cli.shared.settings import duration_option, size_option
from kgw.cli.shared.writing import writing_to
from kgw.pipeline.archive.archived_topics import ArchivedTopic

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.jobs.retain import ArchiveRemoval, LogCutDone, LogRemoval


@click.command(short_help="Remove the oldest files.")
@archive_option()
@click.option("-t", "--topic", required=True, metavar="TOPIC", help="Whose archive.")
@topic_id_option
@numbers_option(help="Of this partition; may be given several times.  [default: all of them]")
@click.option(
    "--before-offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Remove files whose offsets are all below this one.",
)
@duration_option("--max-age", "max_age_ms", help="Remove files whose records are all older.")
@size_option(
    "--max-bytes",
    help="Remove files without which a partition still has so many bytes; with k, m or g.",
)
@grace_option
@click.option(
    "--log",
    "is_log",
    is_flag=True,
    help="Remove the topic's own records as well, up to the same offset.",
)
@click.option(
    "--protect-group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="With --log: keep what this group has not read; where it has committed nothing, all.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed.")
@client_options
def retain(
    *,
    root: Path,
    topic: str,
    topic_id: UUID | None,
    partitions: tuple[int, ...],
    before_offset: int | None,
    max_age_ms: int | None,
    max_bytes: int | None,
    grace_ms: int,
    is_log: bool,
    groups: tuple[str, ...],
    dry_run: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> ExitCode:
    """Remove the oldest files of an archive, by offset, age or size.

    Whole files are removed, from the front of each partition. Their offsets are declared as removed
    by retention; a later run deletes the files after --grace. Spark is not needed.

    With --log the topic's own records are removed, too, up to the offset below which the archive's
    are removed, also by an earlier run. If the server refuses this for a partition, the partition
    is named and the exit code is 1.
    """
    from kgw.pipeline.jobs.retain import RetentionLimits, plan, plan_log, run, run_log

    if before_offset is None and max_age_ms is None and max_bytes is None:
        raise click.UsageError("give --before-offset, --max-age or --max-bytes")
    if groups and not is_log:
        raise click.UsageError("--protect-group keeps records of the topic: give --log as well")
    life = ArchivedTopic(root, topic, chosen_life(root, topic, topic_id))
    now_ms = int(time.time() * 1000)
    limits = RetentionLimits(
        before_offset, None if max_age_ms is None else now_ms - max_age_ms, max_bytes
    )
    chosen = partitions or None
    done: list[LogCutDone] = []
    cuts: list[LogRemoval] = []
    with writing_to(root):
        with ExitStack() as stack:
            planned = plan(life.log.read().coverage, limits, chosen)
            if is_log:
                cluster = given_cluster(bootstrap)
                wire = stack.enter_context(
                    cluster.client(client_id="kgw-pipeline-retain", tell=delay_teller())
                )
                # Ask the server before removing any file, so that a refusal comes first.
                cuts = plan_log(wire, life, _ends(life, planned, chosen), groups)
            if not dry_run:
                planned = run(life, planned, limits, now_ms=now_ms)
                if is_log:
                    cuts = plan_log(wire, life, _ends(life, (), chosen), groups)
                    done = run_log(wire, life, cuts)
        swept = swept_files(life, grace_ms, dry_run=dry_run)
    rows = [_row(one) for one in planned]
    log_rows = (
        [_log_row(one, None) for one in cuts]
        if dry_run
        else [_log_row(one.cut, one) for one in done]
    )
    if is_json:
        print_json({"partitions": rows, "log": log_rows, "removed_files": swept})
    else:
        print_rows(rows, "partition first_offset end_offset files records bytes")
        if is_log:
            print_rows(log_rows, "partition log_start_offset before_offset kept_by")
        for one in done:
            if one.refused is not None:
                note(f"error: {one.refused}")
        note_swept(swept, dry_run=dry_run)
    is_refused = any(one.refused is not None for one in done)
    return ExitCode.FAILED if is_refused else ExitCode.OK


def _ends(
    life: ArchivedTopic, planned: list[ArchiveRemoval] | tuple[()], chosen: tuple[int, ...] | None
) -> dict[int, int]:
    from kgw.pipeline.jobs.retain import retained_from

    ends = retained_from(life.log.read().coverage, planned)
    return {
        partition: end for partition, end in ends.items() if chosen is None or partition in chosen
    }


def _row(one: ArchiveRemoval) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "first_offset": one.pieces[0].first,
        "end_offset": one.end,
        "files": len(one.files),
        "records": sum(file.rows for file in one.files),
        "bytes": sum(file.bytes for file in one.files),
    }


def _log_row(cut: LogRemoval, done: LogCutDone | None) -> dict[str, Any]:
    return {
        "partition": cut.partition,
        "log_start_offset": cut.log_start_offset if done is None else done.log_start_offset,
        "before_offset": cut.before_offset,
        "kept_by": cut.kept_by,
        "error": None if done is None else done.refused,
    }
