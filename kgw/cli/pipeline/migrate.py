"""`kgw pipeline migrate`: makes the plan of `kgw migrate offsets` for a very large ledger."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgw.cli.groups.migration_plan import check_planning, keep_plan, old_scheme_options
from kgw.cli.pipeline.clusters import given_cluster, other_cluster
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.shared.client import Bootstrap, client_options
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.cli.groups.migration_plan import SchemeOptions
    from kgw.cli.shared.command_config import ClientConfig
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.master import Master


@click.command(short_help="Plan a migration from the old ledger, at any size.")
@click.option(
    "--plan",
    "plan_path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the plan is written to.",
)
@old_scheme_options
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where entries and records are kept while the plan is made, 44 bytes for both; all of "
    "Spark's tasks must see it.  [default: the plan's directory]",
)
@spark_options
@client_options
def migrate(
    *,
    plan_path: Path,
    scheme: SchemeOptions,
    scratch: Path | None,
    master: Master,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Make the plan of `kgw migrate offsets --plan` with Spark; changes nothing else.

    The same input gives the same plan. `kgw migrate offsets` shows, applies, verifies and takes it
    back.
    """
    from kgw.pipeline.jobs.migrate import MigrationPlanner, OldSources

    check_planning(plan_path, scheme)
    cluster = given_cluster(bootstrap)
    old = OldSources(
        scheme.ledger,
        scheme.ledger_topic,
        _other(scheme.ledger_bootstrap, scheme.ledger_command_config),
        scheme.positions,
        _other(scheme.positions_bootstrap, scheme.positions_command_config),
    )
    with (
        _directory(scratch or plan_path.parent) as directory,
        SparkWhenNeeded("kgw pipeline migrate", master) as runner,
    ):
        planner = MigrationPlanner(
            cluster, runner, directory, is_strict=scheme.strict, progress=progress_bar
        )
        try:
            plan = planner.plan(old, scheme.for_plan(), int(time.time() * 1000))
        except KeyboardInterrupt:
            note("Interrupted. No plan was written; the same command begins anew.")
            raise
    keep_plan(plan_path, plan, is_json=is_json)


def _other(bootstrap: Bootstrap | None, config: ClientConfig | None) -> Cluster | None:
    return None if bootstrap is None else other_cluster(bootstrap, config)


@contextmanager
def _directory(parent: Path) -> Iterator[Path]:
    """Make a new directory, and remove it after the block. Raises CommandError."""
    try:
        directory = Path(tempfile.mkdtemp(prefix=".kgw-migrate-", dir=parent.resolve()))
    except OSError as error:
        raise CommandError(f"{parent}: {error.strerror}") from None
    try:
        yield directory
    finally:
        # Ignore errors: a cancelled task may still write to it.
        shutil.rmtree(directory, ignore_errors=True)
