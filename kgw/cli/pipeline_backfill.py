"""`kgw pipeline backfill`: an archive's records, written to a topic again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.client import Bootstrap, client_options
from kgw.cli.output import note, print_json, print_rows, progress_bar
from kgw.cli.pipeline_archives import archive_option, chosen_life, topic_id_option
from kgw.cli.pipeline_spark import SparkWhenNeeded, spark_options
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.jobs.backfill import Backfill, plan, run
from kgw.pipeline.wire import WireClient
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.master import Master


@click.command(short_help="Write an archive to a topic again.")
@archive_option()
@click.option("-t", "--topic", required=True, metavar="TOPIC", help="Whose archive.")
@topic_id_option
@click.option("--to", "target", required=True, metavar="TOPIC", help="Where to; it must exist.")
@click.option(
    "--job",
    metavar="NAME",
    help="The job's name; one of the same name goes on where it ended. Default: both topics.",
)
@click.option(
    "--compression",
    type=click.Choice([one.name.lower() for one in Compression]),
    default="none",
    show_default=True,
    help="How batches are packed.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be written; Spark is not started.")
@spark_options
@client_options
def backfill(
    *,
    root: Path,
    topic: str,
    topic_id: UUID | None,
    target: str,
    job: str | None,
    compression: str,
    dry_run: bool,
    master: Master,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Append an archive's records to a topic, in order, each once whatever is killed meanwhile.

    Each partition goes to the one of its number. Records keep key, value, headers and time, and
    get new offsets. Readers with isolation.level=read_committed see each record once; run it again
    to go on after an interruption, before the server forgets the offsets of the job's group
    kgw-backfill-NAME (offsets.retention.minutes).
    """
    topic_id = chosen_life(root, topic, topic_id)
    address = ",".join(f"{host}:{port}" for host, port in bootstrap)
    asked = Backfill(
        address,
        job or f"{topic}-{target}",
        generation_directory(str(root), topic, topic_id),
        topic_id,
        target,
        Compression[compression.upper()],
    )
    with WireClient(address, client_id="kgw-pipeline-backfill") as wire:
        standing = plan(wire, asked)
        if dry_run:
            rows = [one._asdict() for one in standing]
            if is_json:
                print_json(rows)
            else:
                print_rows(rows, "partition start position end")
            return
        left = {one.partition: one.end - one.position for one in standing}
        try:
            with (
                SparkWhenNeeded("kgw pipeline backfill", master) as runner,
                progress_bar(sum(left.values()), "Written") as advance,
            ):
                written = run(
                    wire, asked, runner, on_written=lambda one: advance(left[one.partition])
                )
        except KeyboardInterrupt:
            note("Interrupted. What was committed stays; the same command goes on from there.")
            raise
    result = [one._asdict() for one in written]
    if is_json:
        print_json({"job": asked.job, "partitions": result})
    else:
        print_rows(result, "partition records end_offset")
