"""`kgw pipeline compact`: keeps the newest record of each key in an archive."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.pipeline.archives import (
    archive_option,
    chosen_lives,
    grace_option,
    note_swept,
    swept_files,
    topic_as_json,
)
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.shared.client import topics_option
from kgw.cli.shared.output import print_json, print_rows, progress_bar
from kgw.cli.shared.settings import NumberRange, duration_option, json_option, size_option
from kgw.cli.shared.writing import writing_to

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.jobs.compact import PartitionToCompact
    from kgw.pipeline.master import Master

_DEFAULT_MIN_DIRTY_RATIO = 0.5


@click.command(short_help="Keep the newest record of each key.")
@archive_option()
@topics_option(required=True, metavar="TOPIC", help="Whose archive.")
@click.option(
    "--min-dirty-ratio",
    type=NumberRange(0, 1),
    default=_DEFAULT_MIN_DIRTY_RATIO,
    metavar="RATIO",
    help="Leave a partition alone when less of its bytes is new since it was compacted.",
)
@duration_option(
    "--tombstone-retention",
    "tombstone_ms",
    default="PT24H",
    help="How long records with a null for a value stay, by their time.",
)
@size_option(
    "--key-memory",
    "key_memory_bytes",
    default="512m",
    help="How much a task may take for keys; more keys than fit are looked for in several passes.",
)
@grace_option
@click.option("--dry-run", is_flag=True, help="Say what would be done; Spark is not started.")
@spark_options
@json_option()
def compact(
    *,
    root: Path,
    topics: tuple[str, ...],
    min_dirty_ratio: float,
    tombstone_ms: int,
    key_memory_bytes: int,
    grace_ms: int,
    dry_run: bool,
    master: Master,
    is_json: bool,
) -> None:
    """Keep only the newest record of each key of a partition, with its offset and in its order.

    Records without a key stay. This works whatever the topic's cleanup.policy is. Files with
    records to remove are rewritten and committed one after the other; a later run deletes the old
    files after --grace. Archiving may continue meanwhile.
    """
    from kgw.pipeline.archive.units import Sizes
    from kgw.pipeline.jobs.compact import Settings, plan, run

    now_ms = int(time.time() * 1000)
    with writing_to(root, interrupted="What was committed stays; the next run compacts the rest."):
        lives = chosen_lives(root, topics)
        plans = [
            (life, plan(life.log.read().coverage, min_dirty_ratio=min_dirty_ratio))
            for life in lives
        ]
        if dry_run:
            rows = [_row(life, due) for life, dues in plans for due in dues]
        else:
            rows = []
            total = sum(one.rows for _, dues in plans for due in dues for one in due.files)
            with (
                SparkWhenNeeded("kgw pipeline compact", master) as runner,
                progress_bar(total, "Compacted") as advance,
            ):
                for life, dues in plans:
                    if not dues:
                        continue
                    settings = Settings(life, now_ms - tombstone_ms, key_memory_bytes, Sizes())
                    done = run(
                        settings,
                        dues,
                        runner,
                        now_ms=lambda: int(time.time() * 1000),
                        on_rows=advance,
                    )
                    rows += [topic_as_json(life) | asdict(one) for one in done]
        swept = [path for life in lives for path in swept_files(life, grace_ms, dry_run=dry_run)]
    if is_json:
        print_json({"partitions": rows, "removed_files": swept})
        return
    print_rows(
        rows,
        "topic partition dirty_ratio records bytes"
        if dry_run
        else "topic partition dirty_ratio records fallen tombstones without_key files "
        "bytes_before bytes_after is_overtaken",
        dirty_ratio=lambda ratio: f"{ratio:.2f}",
    )
    note_swept(swept, dry_run=dry_run)


def _row(life: ArchivedTopic, due: PartitionToCompact) -> dict[str, Any]:
    return topic_as_json(life) | {
        "partition": due.partition,
        "dirty_ratio": due.parts.dirty_ratio,
        "records": sum(one.rows for one in due.files),
        "bytes": sum(one.bytes for one in due.files),
    }
