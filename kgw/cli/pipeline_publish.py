"""`kgw pipeline publish`: an archive's tables, brought to where its commit log is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.errors import CommandError
from kgw.cli.output import print_json, print_rows
from kgw.cli.pipeline_archives import archive_option, chosen_tables, chosen_topics, table_options
from kgw.cli.settings import json_option
from kgw.pipeline.archive.lives import archived_lives
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.tables import publish, register

if TYPE_CHECKING:
    from pathlib import Path


@click.command("publish", short_help="Publish tables over an archive's files.")
@archive_option()
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic.")
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
    """Bring the Delta and Iceberg tables of an archive to where its commit log is.

    `kgw pipeline archive` does this after each commit; this makes up for what failed, and begins
    a table of an archive that is there, of every life of its topics. Neither a server nor Spark
    is needed.
    """
    tables = chosen_tables(kinds, catalog)
    rows = []
    for topic in chosen_topics(root, topics):
        for topic_id in archived_lives(root, topic):
            generation = generation_directory(str(root), topic, topic_id)
            for settings in tables:
                register(generation, settings)
            rows += [
                {"topic": topic, "topic_id": str(topic_id), "table": kind, "version": version}
                for kind, version in publish(generation, topic_id).items()
            ]
    if not rows:
        raise CommandError(f"{root} publishes no table; name one with --table")
    if is_json:
        print_json(rows)
    else:
        print_rows(rows, "topic topic_id table version")
