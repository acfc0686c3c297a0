"""`kgw state`: copies a stopped server's state to another database."""

from __future__ import annotations

import click

from kgw.cli.shared.output import print_json, print_rows
from kgw.cli.shared.settings import json_option


@click.group(short_help="Move a stopped directory's state to another database.")
def state() -> None:
    """Look after the state of a stopped data directory: topics, groups, offsets, settings."""


@state.command()
@click.argument("source", metavar="DATA_DIR|URL", type=click.Path())
@click.option(
    "--to",
    "target",
    required=True,
    metavar="URL",
    help="Where it goes: postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, sqlite for "
    "the data directory itself, seaweedmq://FILER:PORT/NAMESPACE, or, from there, a DATA_DIR.",
)
@json_option()
def copy(source: str, target: str, is_json: bool) -> None:
    """Copy the state to another database, compare both, and use the new one from then on.

    DATA_DIR is a stopped data directory. The target must be empty. Passwords are taken from the
    environment variable KGW_STATE_PASSWORD, or from the file that KGW_STATE_PASSWORD_FILE names.
    Records stay where they are. Afterwards `kgw serve` needs the same address as kgw.state.url.

    To seaweedmq://FILER:PORT/NAMESPACE, and from there into a data directory without state, it is
    copied and not moved: both sides then have a state of their own, and no gateway may serve the
    namespace meanwhile.
    """
    import asyncio

    from kgw.backend.embedded.offline.state_copy import copy_state, is_namespace
    from kgw.config.state_url import StateUrlError

    try:
        report = asyncio.run(copy_state(source, target))
    except StateUrlError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None
    if is_json:
        print_json(report._asdict())
        return
    counts = [*sorted(report.rows.items()), ("samples of lag", report.samples)]
    print_rows([{"kind": kind, "rows": count} for kind, count in counts], "kind rows")
    click.echo(f"Copied from {report.source} to {report.target}, and compared.")
    if is_namespace(report.target):
        click.echo(f"Start the server with kgw.backend={report.target}")
    elif is_namespace(report.source):
        click.echo(f"Start the server with log.dirs={report.target}")
    elif report.target != "sqlite":
        click.echo(f"Start the server with kgw.state.url={report.target}")
    else:
        click.echo("Start the server without kgw.state.url")
