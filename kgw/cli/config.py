"""`kgw config`: all settings, and those of a running server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.shared.client import (
    Bootstrap,
    assignments,
    client_options,
    set_option,
    unset_option,
    with_client,
)
from kgw.cli.shared.output import print_json, print_rows
from kgw.cli.shared.settings import (
    assignments_option,
    config_file_option,
    json_option,
    load,
    print_config,
)
from kgw.client import AdminClient
from kgw.client.admin import BROKER
from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS, Setting

if TYPE_CHECKING:
    from kgw.client import AsyncClient, TopicSettingValue


@click.group(short_help="Look at settings, and change them live.")
def config() -> None:
    """Look at settings, and change those of a running server."""


@config.command("list")
@click.option("--topic", "is_topic", is_flag=True, help="Settings of a topic, not of the server.")
@json_option()
def list_settings(is_topic: bool, is_json: bool) -> None:
    """List every setting with its default and meaning, without a server."""
    settings = (TOPIC_SETTINGS if is_topic else SERVER_SETTINGS).values()
    if is_json:
        print_json([_describe(setting) for setting in settings])
        return
    for setting in settings:
        live = ", can change while running" if setting.dynamic and not is_topic else ""
        click.echo(f"{setting.name} = {setting.format(setting.default)}")
        click.echo(f"    {setting.doc} ({setting.type.name.lower()}{live})")


@config.command("print")
@config_file_option
@assignments_option
@json_option()
def print_effective(config_file: str | None, assignments: tuple[str, ...], is_json: bool) -> None:
    """Print what `kgw serve` would use, as TOML that --config takes."""
    print_config(load(config_file, assignments), is_json=is_json)


@config.command()
@client_options
def describe(bootstrap: Bootstrap, is_json: bool) -> None:
    """Show the settings of a running server."""

    async def action(client: AsyncClient) -> list[TopicSettingValue]:
        return await AdminClient(client).describe_settings(BROKER, await _node(client))

    _print_rows(with_client(bootstrap, action), is_json=is_json)


@config.command()
@set_option(help="Change a setting.")
@unset_option(help="Take a change back.")
@client_options
def alter(
    settings: tuple[str, ...], unset: tuple[str, ...], bootstrap: Bootstrap, is_json: bool
) -> None:
    """Change settings of a running server; they outlive its restarts."""
    changes: dict[str, str | None] = {**assignments(settings), **dict.fromkeys(unset)}
    if not changes:
        raise click.UsageError("nothing to change: give --set or --unset")

    async def action(client: AsyncClient) -> list[TopicSettingValue]:
        admin = AdminClient(client)
        node = await _node(client)
        await admin.alter_settings(BROKER, node, changes)
        rows = await admin.describe_settings(BROKER, node)
        return [row for row in rows if row.name in changes]

    _print_rows(with_client(bootstrap, action), is_json=is_json)


async def _node(client: AsyncClient) -> str:
    cluster = await client.cluster()
    return str(cluster.controller_id)


def _print_rows(rows: list[TopicSettingValue], *, is_json: bool) -> None:
    if is_json:
        print_json(
            {
                row.name: {"value": row.value, "source": row.source, "read_only": row.read_only}
                for row in rows
            }
        )
    else:
        print_rows([row._asdict() for row in rows], "name value from=source")


def _describe(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "type": setting.type.name.lower(),
        "default": setting.default,
        "unit": setting.unit or None,
        "minimum": setting.minimum,
        "maximum": setting.maximum,
        "allowed": list(setting.allowed) or None,
        "dynamic": setting.dynamic,
        "server_setting": setting.server_setting or None,
        "documentation": setting.doc,
    }
