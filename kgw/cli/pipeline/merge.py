"""`kgw pipeline merge`: makes one file of adjacent small files of an archive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.pipeline.archives import (
    archive_option,
    chosen_lives,
    grace_option,
    note_swept,
    only_topics_option,
    swept_files,
    topic_as_json,
)
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.shared.output import print_json, print_rows, progress_bar
from kgw.cli.shared.settings import json_option, size_option
from kgw.cli.shared.writing import writing_to
from kgw.pipeline.archive.entry import DataFile

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.jobs.merge import Merged, MergeGroup
    from kgw.pipeline.master import Master

_COLUMNS = "topic partition first_offset end_offset files records bytes"


@click.command(short_help="Make one file of adjacent small ones.")
@archive_option()
@only_topics_option
@size_option(
    "--target-file",
    "file_bytes",
    default="256m",
    help="Merge files below half of this, into files of at most this, before they are packed; "
    "with k, m or g.",
)
@grace_option
@click.option("--dry-run", is_flag=True, help="Say what would be done; Spark is not started.")
@spark_options
@json_option()
def merge(
    *,
    root: Path,
    topics: tuple[str, ...],
    file_bytes: int,
    grace_ms: int,
    dry_run: bool,
    master: Master,
    is_json: bool,
) -> None:
    """Merge adjacent small files of a partition into one, with the same records and offsets.

    Each new file is committed as soon as it is written, and replaces the small files; a later run
    deletes those after --grace. Archiving may continue meanwhile. Compacted files are merged only
    with compacted files.
    """
    from kgw.pipeline.archive.units import Sizes
    from kgw.pipeline.jobs.merge import plan_life, run

    sizes = Sizes(row_group_bytes=min(file_bytes, Sizes().row_group_bytes), file_bytes=file_bytes)
    with writing_to(root, interrupted="What was committed stays; the next run merges the rest."):
        lives = chosen_lives(root, topics)
        plans = [(life, plan_life(life, file_bytes)) for life in lives]
        if dry_run:
            rows = [_row(life, group) for life, groups in plans for group in groups]
        else:
            rows = []
            total = sum(group.rows for _, groups in plans for group in groups)
            with (
                SparkWhenNeeded("kgw pipeline merge", master) as runner,
                progress_bar(total, "Merged") as advance,
            ):
                for life, groups in plans:
                    if groups:
                        merged = run(
                            life,
                            groups,
                            runner,
                            sizes=sizes,
                            now_ms=lambda: int(time.time() * 1000),
                            on_merged=lambda one: advance(one.group.rows),
                        )
                        rows += [_merged_row(life, one) for one in sorted(merged, key=_place)]
        swept = [path for life in lives for path in swept_files(life, grace_ms, dry_run=dry_run)]
    if is_json:
        print_json({"groups": rows, "removed_files": swept})
        return
    print_rows(rows, _COLUMNS if dry_run else f"{_COLUMNS} bytes_after is_overtaken")
    note_swept(swept, dry_run=dry_run)


def _place(one: Merged) -> tuple[int, int]:
    return one.group.partition, one.group.pieces[0].first


def _row(life: ArchivedTopic, group: MergeGroup) -> dict[str, Any]:
    return {
        **topic_as_json(life),
        "partition": group.partition,
        "first_offset": group.pieces[0].first,
        "end_offset": group.pieces[-1].last + 1,
        "files": len(group.files),
        "records": group.rows,
        "bytes": group.bytes,
    }


def _merged_row(life: ArchivedTopic, one: Merged) -> dict[str, Any]:
    return {
        **_row(life, one.group),
        "bytes_after": one.piece.bytes if isinstance(one.piece, DataFile) else None,
        "is_overtaken": one.piece is None,
    }
