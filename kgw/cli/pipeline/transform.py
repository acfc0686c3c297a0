"""`kgw pipeline backfill --sql`: writes the rows of a query over an archive to a topic."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.cli.doctor.spark import find_package
from kgw.cli.pipeline.queries import check_decode_options, decode_options, told_in_one_line
from kgw.cli.pipeline.spark import SparkWhenNeeded
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.pipeline.jobs.backfill import Backfill
    from kgw.pipeline.master import Master
    from kgw.pipeline.wire import WireClient


class Making(NamedTuple):
    """A query and its options, as the user gave them."""

    query: str
    staging: Path
    is_kept: bool
    is_by_key: bool
    decode: str | None
    schema: str | dict[str, str] | None
    may_write_back: bool = False


def transform_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --sql and its options to a command, as one argument `making`; None without --sql."""

    @wraps(command)
    def with_making(
        *,
        query: str | None,
        staging: Path | None,
        is_kept: bool,
        is_by_key: bool,
        may_write_back: bool,
        decode: str | None,
        schema: str | dict[str, str] | None,
        **others: Any,
    ) -> Any:
        making = None
        if query is not None:
            if staging is None:
                raise click.UsageError("--sql needs --staging, for the rows until they are written")
            if others.get("dry_run"):
                raise click.UsageError(
                    "--dry-run does not run a query: see its rows with `kgw pipeline sql --no-tail`"
                )
            if others.get("is_restore") or others.get("is_abandoned"):
                raise click.UsageError("--sql goes neither with --restore nor with --abandon")
            check_decode_options(decode, schema)
            # Check it here: PySpark reports it only after its start, and not how to install it.
            pandas = find_package("pandas")
            if pandas.severity is Severity.PROBLEM:
                raise CommandError(f"--sql needs pandas, which {pandas.detail}")
            making = Making(query, staging, is_kept, is_by_key, decode, schema, may_write_back)
        elif staging or is_kept or is_by_key or may_write_back or decode or schema:
            raise click.UsageError(
                "--staging, --keep-staging, --repartition-by-key, --same-topic, --decode and "
                "--schema need --sql"
            )
        return command(making=making, **others)

    made: Callable[..., Any] = decode_options(with_making)
    for option in (
        click.option(
            "--same-topic",
            "may_write_back",
            is_flag=True,
            help="With --sql: the target may be a topic that the query reads, as for tombstones.",
        ),
        click.option(
            "--repartition-by-key",
            "is_by_key",
            is_flag=True,
            help="With --sql: keys decide on partitions, as Kafka's default partitioner has it.",
        ),
        click.option(
            "--keep-staging",
            "is_kept",
            is_flag=True,
            help="Leave the rows in --staging at the end.",
        ),
        click.option(
            "--staging",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="With --sql: where the rows are until they are written; the same when the command "
            "is run again.",
        ),
        click.option(
            "--sql",
            "query",
            metavar="QUERY",
            help="Write what a query makes of archived topics: rows with key and value, and maybe "
            "headers, timestamp and partition.",
        ),
    ):
        made = option(made)
    return made


@contextmanager
def staging(
    wire: WireClient, backfill: Backfill, topic: str, root: Path, making: Making, master: Master
) -> Iterator[Backfill]:
    """Run the query, unless its rows are already staged, and yield the backfill of these rows.

    The staged rows are removed at the end, unless something fails or the user keeps them. Spark
    runs until the end of the block.
    """
    with SparkWhenNeeded("kgw pipeline backfill", master) as spark:
        session = spark.session
        from kgw.pipeline.jobs.transform import Transform, stage, staged, unstage

        transform = Transform(
            making.query,
            root,
            topic,
            backfill.topic_id,
            making.staging,
            making.is_by_key,
            making.decode,
            making.schema,
            making.may_write_back,
        )
        made = staged(transform, backfill)
        try:
            now_ms = int(time.time() * 1000)
            told_in_one_line(lambda: stage(session, wire, transform, made, now_ms=now_ms))
        except KeyboardInterrupt:
            note("Interrupted. The query is run again by the same command.")
            raise
        yield made
        if not making.is_kept:
            unstage(transform, made)
