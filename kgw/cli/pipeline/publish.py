"""`kgw pipeline publish`: brings an archive's tables up to date with its commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.pipeline.archives import (
    archive_option,
    chosen_lives,
    chosen_tables,
    only_topics_option,
    table_options,
    topic_as_json,
)
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import print_result
from kgw.cli.shared.settings import json_option
from kgw.cli.shared.writing import writing_to
from kgw.pipeline.archive.tables import publish, register

if TYPE_CHECKING:
    from pathlib import Path


@click.command("publish", short_help="Publish tables over an archive's files.")
@archive_option()
@only_topics_option
@table_options
@json_option()
def publish_tables(
    *,
    root: Path,
    topics: tuple[str, ...],
    kinds: tuple[str, ...],
    catalog: str | None,
    is_json: bool,
) -> None:
    """Bring the Delta and Iceberg tables of an archive up to date with its commit log.

    `kgw pipeline archive` does this after each commit; this command repeats it after a failure, and
    begins tables for an existing archive, for every topic id of its topics. It needs neither a
    server nor Spark.
    """
    tables = chosen_tables(kinds, catalog)
    rows = []
    with writing_to(root):
        for life in chosen_lives(root, topics):
            for settings in tables:
                register(life.generation, settings)
            rows += [
                topic_as_json(life) | {"table": kind, "version": version}
                for kind, version in publish(life.generation, life.topic_id).items()
            ]
    if not rows:
        raise CommandError(f"{root} publishes no table; name one with --table")
    print_result(rows, "topic topic_id table version", is_json=is_json)
