"""`kgw pipeline migrate`: the plan of `kgw migrate offsets`, for a ledger too large for it."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgw.cli.groups.migration_plan import (
    check_planning,
    keep_plan,
    old_scheme_options,
    told_sources,
)
from kgw.cli.pipeline.spark import SparkWhenNeeded, spark_options
from kgw.cli.shared.client import Bootstrap, client_options
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    ledgers: tuple[Path, ...],
    ledger_topic: str | None,
    ledger_bootstrap: Bootstrap | None,
    positions: tuple[Path, ...],
    positions_bootstrap: Bootstrap | None,
    strict: bool,
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

    check_planning(plan_path, ledgers, ledger_topic)
    address = _text(bootstrap)
    old = OldSources(
        ledgers,
        ledger_topic,
        _text(ledger_bootstrap or bootstrap),
        positions,
        _text(positions_bootstrap) if positions_bootstrap else None,
    )
    sources = told_sources(ledgers, ledger_topic, positions, positions_bootstrap)
    with (
        _directory(scratch or plan_path.parent) as directory,
        SparkWhenNeeded("kgw pipeline migrate", master) as runner,
    ):
        planner = MigrationPlanner(
            address, runner, directory, is_strict=strict, progress=progress_bar
        )
        try:
            plan = planner.plan(old, sources, int(time.time() * 1000))
        except KeyboardInterrupt:
            note("Interrupted. No plan was written; the same command begins anew.")
            raise
    keep_plan(plan_path, plan, is_json=is_json)


def _text(bootstrap: Bootstrap) -> str:
    return ",".join(f"{host}:{port}" for host, port in bootstrap)


@contextmanager
def _directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory, and remove it afterwards. Raises CommandError."""
    try:
        directory = Path(tempfile.mkdtemp(prefix=".kgw-migrate-", dir=parent.resolve()))
    except OSError as error:
        raise CommandError(f"{parent}: {error.strerror}") from None
    try:
        yield directory
    finally:
        # A cancelled task may write until Spark ends it.
        shutil.rmtree(directory, ignore_errors=True)
