"""`kgw pipeline`: commands for archives of topics. Each command has a file of its own."""

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
"""For each command its module and attribute, in the order of `kgw pipeline --help`."""


class PipelineGroup(LazyGroup):
    """Imports the module of a command, and with it Spark, only when the command runs."""

    places = COMMANDS


@click.group(cls=PipelineGroup, short_help="Archives of topics, and what Spark needs.")
def pipeline() -> None:
    """Look after archives of topics, and fetch what Spark needs.

    Commands that work on records and files need the extra `spark` of the package; they say so when
    it is missing. `kgw doctor --spark` says whether Spark can run here.
    """
