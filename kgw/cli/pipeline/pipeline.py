"""`kgw pipeline`: a data pipeline's chores. Each command is in a file of its own, `pipeline_*`."""

from __future__ import annotations

import click

from kgw.cli.main import LazyGroup

COMMANDS = {
    "lag": "kgw.cli.pipeline.lag:lag",
    "archive": "kgw.cli.pipeline.archive:archive",
    "backfill": "kgw.cli.pipeline.backfill:backfill",
    "merge": "kgw.cli.pipeline.merge:merge",
    "compact": "kgw.cli.pipeline.compact:compact",
    "retain": "kgw.cli.pipeline.retain:retain",
    "migrate": "kgw.cli.pipeline.migrate:migrate",
    "sql": "kgw.cli.pipeline.sql:sql",
    "audit": "kgw.cli.pipeline.audit:audit_archive",
    "publish": "kgw.cli.pipeline.publish:publish_tables",
    "jars": "kgw.cli.pipeline.jars:jars",
}
"""Where each command is, in the order of `kgw pipeline --help`."""


class PipelineGroup(LazyGroup):
    """Imports what a command needs when it runs: Spark, most of all."""

    places = COMMANDS


@click.group(cls=PipelineGroup, short_help="Archives of topics, and what Spark needs.")
def pipeline() -> None:
    """Look after archives of topics, and fetch what Spark needs.

    What works on records and files needs the extra `spark` of the package, which a command names
    when it is missing. `kgw doctor --spark` says whether Spark can run here.
    """
