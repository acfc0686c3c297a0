"""The values that shells suggest: settings, topics, groups, users, principals and so on.

This module is imported only when a shell completes a line.
"""

from __future__ import annotations

import asyncio
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kgw.config import SERVER_SETTINGS, TOPIC_SETTINGS
from kgw.config.setting import SettingType
from kgw.errors import KgwError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kgw.client import AsyncClient
    from kgw.config import Setting

LIMIT_S = 2.0
"""How long to wait for a server: the user has pressed TAB and waits."""

BEGINNING = "beginning"
"""The type of a suggestion that is only the start of a word, so that bash adds no space."""


class Suggested(click.ParamType[str]):
    """A string parameter whose values are suggested by a function."""

    name = "text"

    def __init__(self, suggest: Callable[..., Iterable[CompletionItem[str]]]) -> None:
        self._suggest = suggest

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        # An item without a value makes the shell suggest files.
        suggested = self._suggest(ctx)
        return [one for one in suggested if not one.value or one.value.startswith(incomplete)]


def teach(command: click.Command, args: Sequence[str]) -> None:
    """Add suggestions to the options and arguments of the command that `args` name."""
    context, path = click.Context(command), []
    for word in args:
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is not None:
                command = found
                path.append(word)
    for parameter in command.params:
        suggest = _suggestions(path, parameter)
        if suggest is not None and parameter.type is click.STRING:
            parameter.type = Suggested(suggest)


def _suggestions(
    path: Sequence[str], parameter: click.Parameter
) -> Callable[[click.Context], Iterable[CompletionItem[str]]] | None:
    """Return the function that suggests a parameter's values, found by its name in --help."""
    words = (parameter.metavar or parameter.name or "").removesuffix("...").split("[")
    what = words[0].upper().removesuffix("S")
    is_topic = path[:1] == ["topics"]
    if what == "NAME" and is_topic and path[-1] != "create":
        what = "TOPIC"
    if what == "NAME" and path == ["users", "delete"]:
        what = "USER"
    if what in {"KEY=VALUE", "KEY"} and (is_topic or path[:1] in (["serve"], ["config"], ["log"])):
        settings = TOPIC_SETTINGS if is_topic else SERVER_SETTINGS
        suggest = _assignments if what == "KEY=VALUE" else _names_of
        return lambda _: suggest(settings)
    if what == "ID" and path[:1] == ["transactions"]:
        what = "TRANSACTIONAL_ID"
    if what in _ASKED:
        return lambda ctx: _asked(ctx, _ASKED[what])
    kind = {"FILE": "file", "DIR": "dir"}.get(what)
    return None if kind is None else lambda _: [CompletionItem("", type=kind)]


def _names_of(settings: Mapping[str, Setting]) -> Iterable[CompletionItem[str]]:
    return [CompletionItem(one.name, help=one.doc) for one in settings.values()]


def _assignments(settings: Mapping[str, Setting]) -> Iterable[CompletionItem[str]]:
    """Yield `name=` of each setting, or `name=value` if there are few values."""
    for one in settings.values():
        yield CompletionItem(f"{one.name}=", type=BEGINNING, help=one.doc)
        values = one.allowed or ((True, False) if one.type is SettingType.BOOLEAN else ())
        for value in values:
            yield CompletionItem(f"{one.name}={one.format(value)}")


async def _topics(client: AsyncClient) -> list[str]:
    return [one.name for one in await client.topics()]


async def _groups(client: AsyncClient) -> list[str]:
    from kgw.client import GroupClient

    return [one.group_id for one in await GroupClient(client).groups()]


async def _transactional_ids(client: AsyncClient) -> list[str]:
    from kgw.client import TransactionClient

    return [one.transactional_id for one in await TransactionClient(client).transactions()]


async def _users(client: AsyncClient) -> list[str]:
    from kgw.client import AdminClient

    return sorted({one.user for one in await AdminClient(client).scram_credentials()})


async def _token_ids(client: AsyncClient) -> list[str]:
    from kgw.client.delegation_tokens import TokenClient

    return [one.token_id for one in await TokenClient(client).tokens()]


async def _principals(client: AsyncClient) -> list[str]:
    return [f"User:{name}" for name in await _users(client)]


_ASKED: dict[str, Callable[[Any], Any]] = {
    "TOPIC": _topics,
    "GROUP": _groups,
    "TRANSACTIONAL_ID": _transactional_ids,
    "USER": _users,
    "PRINCIPAL": _principals,
    "TOKEN_ID": _token_ids,
}
"""The functions that ask a server for names, by the name of the parameter in --help."""


def _asked(
    ctx: click.Context, names: Callable[[AsyncClient], Any]
) -> Iterable[CompletionItem[str]]:
    """Return names from a running server; none if no server answers in time."""
    from kgw.cli.shared.command_config import kept_security
    from kgw.client import AsyncClient

    async def ask() -> list[str]:
        async with (
            asyncio.timeout(LIMIT_S),
            AsyncClient(
                ctx.params["bootstrap"],
                client_id="kgw-completion",
                retry_s=0,
                security=kept_security(ctx),
            ) as client,
        ):
            found: list[str] = await names(client)
            return found

    try:
        found = asyncio.run(ask())
    except (KgwError, OSError, TimeoutError, KeyError, TypeError):
        return []
    # Leave out names with special characters: the shell would interpret them.
    return [CompletionItem(name) for name in found if quote(name) == name]
