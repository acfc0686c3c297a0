"""`kgw pipeline archive`: writes a topic's records to Parquet files that a commit log names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.pipeline.archives import chosen_tables, new_archive, table_options
from kgw.cli.pipeline.clusters import given_cluster
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.shared.client import Bootstrap, client_options, delay_teller, topics_option
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import (
    note,
    print_json,
    print_json_line,
    print_result,
    print_rows,
    progress_bar,
)
from kgw.cli.shared.settings import duration_option, parsed, size_option
from kgw.cli.shared.writing import writing_to
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.jobs.archive_plan import RangeSelector
from kgw.pipeline.jobs.holding import DEFAULT_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.jobs.archive import ArchiveJob, CommittedRange, Summary
    from kgw.pipeline.jobs.running import Runner
    from kgw.pipeline.master import Master

_POLL_S = 1.0


@click.command(short_help="Write topics to Parquet files.")
@topics_option(required=True, metavar="TOPIC", help="What to archive.")
@click.option(
    "--out",
    "root",
    required=True,
    type=click.Path(file_okay=False),
    callback=parsed(new_archive),
    metavar="DIR",
    help="The archive, a local directory; made if it is not there.",
)
@click.option(
    "--follow",
    "is_followed",
    is_flag=True,
    help="Go on with what comes, until Ctrl-C.",
)
@duration_option(
    "--max-lag",
    "max_lag_ms",
    default="PT5M",
    help="With --follow: how long records may wait until there are enough for a file.",
)
@size_option(
    "--target-file",
    "file_bytes",
    default="256m",
    help="How much goes into a file before it is packed, with k, m or g.",
)
@size_option(
    "--max-fetch-rate",
    "max_bytes_per_s",
    help="How much is fetched a second at most, to leave room for others. Default: no limit.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Declare offsets lost that the topic has no more, or that have nothing, and go on.",
)
@click.option(
    "--allow-gaps",
    is_flag=True,
    help="Take offsets without a record as what compaction or a restore has left, also in a topic "
    "that is not compacted now.",
)
@click.option(
    "--group",
    default=DEFAULT_GROUP,
    metavar="GROUP",
    help="Commit the archive's position to this group, for lag tools and the hold. "
    "It belongs to one archive: a second one of the topic needs another.",
)
@click.option(
    "--hold/--no-hold",
    "is_held",
    default=None,
    help="Let the topic keep what is not archived: adds the group to kgw.archive.hold. "
    "Default: with --follow.",
)
@table_options
@click.option("--dry-run", is_flag=True, help="Say what would be archived; Spark is not started.")
@spark_options
@client_options
def archive(
    *,
    topics: tuple[str, ...],
    root: Path,
    is_followed: bool,
    max_lag_ms: int,
    file_bytes: int,
    max_bytes_per_s: int | None,
    accept_loss: bool,
    allow_gaps: bool,
    group: str,
    is_held: bool | None,
    kinds: tuple[str, ...],
    catalog: str | None,
    dry_run: bool,
    master: Master,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Write what topics hold to DIR/TOPIC/TOPIC-ID/, as Parquet files and a commit log.

    A run goes on where the commit log ends, whatever happened to the one before; without --follow
    it ends where the topics end when it begins. Records of open and aborted transactions are left
    out. A topic that was deleted and created again gets a new directory.

    Check with `kgw pipeline audit`, look with `kgw pipeline lag --archive DIR`.
    """
    from kgw.pipeline.archive.units import Sizes
    from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions

    if is_followed and dry_run:
        raise click.UsageError("--dry-run says what one run would do, --follow does not end")
    cluster = given_cluster(bootstrap)
    is_held = is_followed if is_held is None else is_held
    options = ArchiveOptions(
        accept_loss=accept_loss,
        allow_gaps=allow_gaps,
        group=group,
        is_held=is_held,
        sizes=Sizes(
            file_bytes=file_bytes, row_group_bytes=min(file_bytes, Sizes().row_group_bytes)
        ),
        max_bytes_per_s=max_bytes_per_s,
        tables=chosen_tables(kinds, catalog),
    )

    with cluster.client(client_id="kgw-pipeline-archive", tell=delay_teller()) as wire:

        def job(runner: Runner, on_committed: Callable[[CommittedRange], None]) -> ArchiveJob:
            return ArchiveJob(
                wire,
                cluster,
                root,
                runner,
                options,
                now_ms=lambda: int(time.time() * 1000),
                on_committed=on_committed,
                tell=note,
            )

        left = "What was committed stays; the next run goes on from there."
        with writing_to(root, interrupted=left):
            planning = job(SparkWhenNeeded("", master), lambda _: None)
            plans = {topic: planning.plan(topic)[1] for topic in topics}
            if dry_run:
                _print_plans(plans, is_json=is_json)
                return
            if is_held:
                for topic in topics:
                    planning.hold(topic)
            with SparkWhenNeeded("kgw pipeline archive", master) as runner:
                if is_followed:
                    made = job(runner, lambda one: _print_commit(one, is_json=is_json))
                    due = RangeSelector(least_bytes=file_bytes, max_lag_s=max_lag_ms / 1000)
                    for topic in _follow(made, due, topics, min(_POLL_S, max_lag_ms / 1000)):
                        # Set the hold again: a topic that was deleted and created again has new
                        # settings.
                        if is_held:
                            made.hold(topic)
                else:
                    total = sum(one.length for one in plans.values())
                    with progress_bar(total, "Archived") as advance:
                        made = job(runner, lambda one: advance(one.end - one.first))
                        summaries = [made.run_once(topic) for topic in topics]
                    _print_summaries(summaries, is_json=is_json)
                    behind = [one.topic for one in summaries if one.unpublished]
                    if behind:
                        raise CommandError(
                            f"what is archived of {', '.join(behind)} stands, but is not published"
                        )


def _follow(
    job: ArchiveJob, due: RangeSelector, topics: tuple[str, ...], poll_s: float
) -> Iterator[str]:
    """Archive new records without end; yield a topic each time it was created again."""
    lives: dict[str, UUID] = {}
    while True:
        for topic in topics:
            topic_id = job.run_due(topic, due, time.monotonic()).topic_id
            if lives.setdefault(topic, topic_id) != topic_id:
                lives[topic] = topic_id
                yield topic
        time.sleep(poll_s)


def _print_plans(plans: dict[str, Any], *, is_json: bool) -> None:
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "first_offset": one.first,
            "end_offset": one.end,
            "offsets": one.length,
        }
        for plan in plans.values()
        for one in plan.ranges
    ]
    lost = [
        {
            "topic": topic,
            "partition": one.partition,
            "first_offset": one.first,
            "end_offset": one.last + 1,
        }
        for topic, plan in plans.items()
        for one in plan.lost
    ]
    if is_json:
        print_json({"ranges": rows, "lost": lost})
        return
    print_rows(rows, "topic partition first_offset end_offset offsets")
    for one in lost:
        note(
            f"Lost: topic {one['topic']} partition {one['partition']}, offsets "
            f"{one['first_offset']} to {one['end_offset'] - 1}"
        )


def _print_commit(one: CommittedRange, *, is_json: bool) -> None:
    files = [piece for piece in one.pieces if isinstance(piece, DataFile)]
    row = {
        "topic": one.topic,
        "partition": one.partition,
        "first_offset": one.first,
        "end_offset": one.end,
        "records": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
    }
    if is_json:
        print_json_line(row)
    else:
        click.echo(
            f"{one.topic} partition {one.partition}: offsets {one.first} to {one.end - 1}, "
            f"{row['records']} records, {row['files']} files, {row['bytes']} bytes"
        )


def _print_summaries(summaries: list[Summary], *, is_json: bool) -> None:
    rows = [
        {
            "topic": one.topic,
            "topic_id": str(one.topic_id),
            "offsets": one.offsets,
            "records": one.records,
            "files": one.files,
            "bytes": one.bytes,
            "lost_offsets": one.lost_offsets,
            "altered_header_keys": one.altered_keys,
            "overtaken_units": one.overtaken_units,
            "swept_files": one.swept_files,
            "tables": one.tables,
            "unpublished": one.unpublished or None,
            "partitions": [
                {"partition": partition, "end_offset": end}
                for partition, end in sorted(one.ends.items())
            ],
        }
        for one in summaries
    ]
    print_result(rows, "topic offsets records files bytes lost_offsets", is_json=is_json)
