"""`kgw pipeline backfill`: writes an archive's records to a topic."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from kgw.cli.pipeline.archives import archive_option, chosen_life, topic_id_option
from kgw.cli.pipeline.clusters import given_cluster
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.pipeline.transform import staging, transform_options
from kgw.cli.shared.client import Bootstrap, client_options, delay_teller
from kgw.cli.shared.output import note, print_json, print_result, print_rows, progress_bar
from kgw.pipeline.archive.names import generation_directory
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from kgw.cli.pipeline.transform import Making
    from kgw.pipeline.jobs.backfill import WrittenPartition
    from kgw.pipeline.jobs.loading import LoadingJob, LoadProgress
    from kgw.pipeline.master import Master
    from kgw.pipeline.wire import WireClient


@click.command(short_help="Write an archive to a topic again.")
@archive_option()
@click.option("-t", "--topic", required=True, metavar="TOPIC", help="Whose archive.")
@topic_id_option
@click.option("--to", "target", required=True, metavar="TOPIC", help="Where to; it must exist.")
@click.option(
    "--job",
    metavar="NAME",
    help="The job's name; one of the same name goes on where it ended. Default: TOPIC:TARGET.",
)
@click.option(
    "--compression",
    type=click.Choice([one.name.lower() for one in Compression]),
    default="none",
    help="How batches are packed.",
)
@click.option(
    "--restore",
    "is_restore",
    is_flag=True,
    help="Into an empty topic, with the offsets that records had.",
)
@click.option(
    "--hand-over",
    "is_handed_over",
    is_flag=True,
    help="Keep other producers waiting until all is written, and say where they go on.",
)
@click.option(
    "--abandon",
    "is_abandoned",
    is_flag=True,
    help="Write nothing more: let other producers in again.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be written; Spark is not started.")
@spark_options
@client_options
@transform_options
def backfill(
    *,
    making: Making | None,
    root: Path,
    topic: str,
    topic_id: UUID | None,
    target: str,
    job: str | None,
    compression: str,
    is_restore: bool,
    is_handed_over: bool,
    is_abandoned: bool,
    dry_run: bool,
    master: Master,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Write an archive's records to a topic, in order, each exactly once even after a crash.

    Each partition is written to the partition with the same number. Records keep key, value,
    headers and time, and get new offsets. Readers with isolation.level=read_committed see each
    record once. After an interruption, run it again to continue, before the server forgets the
    offsets of the job's group kgw-backfill-NAME (offsets.retention.minutes).

    With --restore records also keep their offsets, and the topic must be empty; leader epochs,
    producer ids and markers are not restored. While the topic's kgw.loading is set, other producers
    wait: from the start with --hand-over or --restore, until --hand-over has written everything or
    --abandon removes the setting.

    With --sql the records are the rows of a query, as in `kgw pipeline sql`. A row gets the
    partition and the time of its source record, unless the query or --repartition-by-key says
    otherwise.
    """
    from kgw.pipeline.jobs import backfill as append
    from kgw.pipeline.jobs import restore
    from kgw.pipeline.jobs.loading import LOADER_SETTING, begin, hand_over, settings_of

    if is_restore and job is not None:
        raise click.UsageError("a restore has no --job: the archive names it")
    if is_abandoned and (is_handed_over or dry_run):
        raise click.UsageError("--abandon writes nothing, and goes with --restore and --job alone")
    topic_id = chosen_life(root, topic, topic_id)
    cluster = given_cluster(bootstrap)
    generation = generation_directory(str(root), topic, topic_id)
    codec = Compression[compression.upper()]
    with (
        cluster.client(client_id="kgw-pipeline-backfill", tell=delay_teller()) as wire,
        ExitStack() as ending,
    ):
        if is_restore:
            restored = restore.Restore(cluster, generation, topic_id, target, codec)
            loading = _Loading(
                restored,
                partial(restore.plan, wire, restored),
                partial(restore.run, wire, restored),
            )
            name = str(topic_id)
        else:
            name = job or append.default_job(topic, target)
            appended = append.Backfill(cluster, name, generation, topic_id, target, codec)
            if making is not None:
                made = staging(wire, appended, topic, root, making, master)
                appended = ending.enter_context(made)
            loading = _Loading(
                appended, partial(append.plan, wire, appended), partial(append.run, wire, appended)
            )
        if is_abandoned:
            _abandon(wire, loading.job, is_json=is_json)
            return
        standing = loading.plan()
        if dry_run:
            rows = [one._asdict() for one in standing]
            print_result(rows, "partition start position end", is_json=is_json)
            return
        if is_restore or is_handed_over:
            begin(wire, loading.job)
        try:
            with SparkWhenNeeded("kgw pipeline backfill", master) as runner:
                written = _write_all(loading, standing, runner)
            handed = hand_over(wire, loading.job, loading.plan()) if is_handed_over else []
            # The setting may also be left from an interrupted run of this job with --hand-over.
            loader = settings_of(wire, target).get(LOADER_SETTING)
        except KeyboardInterrupt:
            note("Interrupted. What was written stays; the same command goes on from there.")
            if is_restore or is_handed_over:
                note(f"Other producers of {target} wait until then, or until --abandon.")
            raise
    rows = [one._asdict() for one in written]
    offsets = [one._asdict() for one in handed]
    if is_json:
        print_json({"job": name, "partitions": rows, "hand_off": offsets})
        return
    print_rows(rows, "partition records end_offset")
    if handed:
        note(f"Everybody may write to {target} again, from here on:")
        print_rows(offsets, "partition offset")
    elif loader == loading.job.loader:
        note(f"Other producers of {target} wait until this runs with --hand-over or --abandon.")


class _Loading(NamedTuple):
    """A job, with the functions that plan and write its missing records."""

    job: LoadingJob
    plan: Callable[[], list[LoadProgress]]
    run: Callable[..., list[WrittenPartition]]


def _write_all(
    loading: _Loading, standing: list[LoadProgress], runner: SparkWhenNeeded
) -> list[WrittenPartition]:
    """Write until nothing is missing: the archive may grow during a run."""
    written: dict[int, WrittenPartition] = {}
    left = {one.partition: one.end - one.position for one in standing}
    with progress_bar(sum(left.values()), "Written") as advance:
        while now := loading.run(
            runner, on_written=lambda one: advance(left.pop(one.partition, 0))
        ):
            for one in now:
                before = written.get(one.partition)
                records = one.records + (0 if before is None else before.records)
                written[one.partition] = one._replace(records=records)
    return [written[partition] for partition in sorted(written)]


def _abandon(wire: WireClient, job: LoadingJob, *, is_json: bool) -> None:
    from kgw.pipeline.jobs.loading import abandon

    has_changed = abandon(wire, job)
    if is_json:
        print_json({"topic": job.target, "abandoned": has_changed})
    elif has_changed:
        note(f"Everybody may write to {job.target} again. What was written stays.")
    else:
        note(f"Nobody loads {job.target}: there is nothing to abandon.")
