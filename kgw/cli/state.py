"""`kgw state`: move what a stopped data directory's server knows to another database."""

from __future__ import annotations

import click

from kgw.cli.output import print_json, print_rows
from kgw.cli.settings import json_option


@click.group(short_help="Move a stopped directory's state to another database.")
def state() -> None:
    """Look after the state of a stopped data directory: topics, groups, offsets, settings."""


@state.command()
@click.argument("data_dir", metavar="DATA_DIR", type=click.Path())
@click.option(
    "--to",
    "target",
    required=True,
    metavar="URL",
    help="Where it goes: postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, or sqlite "
    "for the data directory itself.",
)
@json_option()
def copy(data_dir: str, target: str, is_json: bool) -> None:
    """Copy the state to another database, compare it, and use that from then on.

    The target must be empty. Passwords are taken from the environment variable KGW_STATE_PASSWORD,
    or from the file that KGW_STATE_PASSWORD_FILE names. Records stay where they are. Afterwards
    `kgw serve` needs the same address as kgw.state.url.
    """
    import asyncio

    from kgw.backend.embedded.offline.state_copy import copy_state
    from kgw.config.state_url import StateUrlError

    try:
        report = asyncio.run(copy_state(data_dir, target))
    except StateUrlError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None
    if is_json:
        print_json(report._asdict())
        return
    counts = [*sorted(report.rows.items()), ("samples of lag", report.samples)]
    print_rows([{"kind": kind, "rows": count} for kind, count in counts], "kind rows")
    click.echo(f"Copied from {report.source} to {report.target}, and compared.")
    if report.target != "sqlite":
        click.echo(f"Start the server with kgw.state.url={report.target}")
    else:
        click.echo("Start the server without kgw.state.url")
