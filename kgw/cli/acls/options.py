"""The options of `kgw acls`: words of access rules, principals, and the resources of rules."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from kgw.cli.shared.principals import principal_option
from kgw.cli.shared.settings import parsed
from kgw.security.acls.binding import AclBindingFilter
from kgw.security.acls.terms import (
    CLUSTER_NAME,
    AclOperation,
    CodedTerm,
    PatternType,
    PermissionType,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.cli.shared.settings import FunctionT

TermT = TypeVar("TermT", bound=CodedTerm)

_RESOURCES: Final[dict[str, tuple[ResourceType, str, str]]] = {
    "--topic": (ResourceType.TOPIC, "TOPIC", "topic"),
    "--group": (ResourceType.GROUP, "GROUP", "group"),
    "--transactional-id": (ResourceType.TRANSACTIONAL_ID, "TRANSACTIONAL_ID", "transactional id"),
    "--user": (ResourceType.USER, "PRINCIPAL", "user as a resource, as in User:alice"),
    "--delegation-token": (ResourceType.DELEGATION_TOKEN, "ID", "delegation token"),
}
"""For each option the resource type, the name of the value, and the words in --help."""

Resource = tuple[ResourceType, str]


class Term(click.ParamType[TermT]):
    """A word of access rules, spelled in any way that Kafka's tools take."""

    def __init__(self, terms: type[TermT], *without: TermT) -> None:
        self.name = terms.__name__
        self._terms = [term for term in terms if term and term not in without]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TermT:
        """Return the word. Fails for a text that is none of these words."""
        try:
            term = self._terms[0].parse(value) if isinstance(value, str) else value
        except ValueError:
            term = None
        if term not in self._terms:
            names = ", ".join(one.name for one in self._terms)
            self.fail(f"{value!r} is none of {names}", param, ctx)
        found: TermT = term
        return found

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the words with this beginning, in lower case if the beginning is."""
        is_lower = incomplete.islower()
        names = [one.name.lower() if is_lower else one.name for one in self._terms]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


OPERATION: Final = Term(AclOperation, AclOperation.ANY)
PERMISSION: Final = Term(PermissionType, PermissionType.ANY)
PATTERN: Final = Term(PatternType)


def _named(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if "" in ((value,) if isinstance(value, str) else value):
        raise ValueError("it cannot be empty")
    return value


host_option = partial(click.option, "--host", callback=parsed(_named), metavar="ADDRESS")


def resource_options(*, multiple: bool) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds --topic, --group and so on.

    The command gets their values in `resources`, a list of resource types with names.
    """
    which = "A {}; may be given several times." if multiple else "Only rules for this {}."

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        values = value if isinstance(value, tuple) else (value,)
        names = [name for name in values if name]
        kept = ctx.meta.setdefault(__name__, [])
        if param.name == "cluster":
            kept.extend((ResourceType.CLUSTER, CLUSTER_NAME) for _ in names)
            return
        if "" in values:
            raise click.BadParameter("it cannot be empty", ctx, param)
        kept.extend((_RESOURCES[param.opts[0]][0], name) for name in names)

    def decorate(command: FunctionT) -> FunctionT:
        about = "The cluster." if multiple else "Only rules for the cluster."
        command = click.option(
            "--cluster", is_flag=True, expose_value=False, callback=keep, help=about
        )(command)
        for option, (_, metavar, words) in reversed(_RESOURCES.items()):
            command = click.option(
                option,
                multiple=multiple,
                expose_value=False,
                callback=keep,
                metavar=metavar,
                help=which.format(words),
            )(command)
        return command

    return decorate


def given_resources() -> list[Resource]:
    """Return the resources that the running command was given, sorted and each once."""
    kept: list[Resource] = click.get_current_context().meta.get(__name__, [])
    return sorted(set(kept))


def filter_options(command: FunctionT) -> FunctionT:
    """Add the options that find access rules. The command gets their filter as `acl_filter`."""

    @wraps(command)
    def with_filter(
        *,
        principal: str | None,
        host: str | None,
        operation: AclOperation | None,
        permission: PermissionType | None,
        pattern: PatternType,
        **others: Any,
    ) -> Any:
        resource_type, name = _given_resource(pattern)
        acl_filter = AclBindingFilter(
            resource_type,
            name,
            pattern,
            principal,
            host,
            operation or AclOperation.ANY,
            permission or PermissionType.ANY,
        )
        return command(acl_filter=acl_filter, **others)

    options = (
        resource_options(multiple=False),
        principal_option("--principal", help="Only rules for exactly this principal."),
        host_option(help="Only rules for exactly this host."),
        click.option("--operation", type=OPERATION, metavar="OP", help="Only this operation."),
        click.option(
            "--permission",
            type=PERMISSION,
            metavar="allow|deny",
            help="Only rules that allow, or only rules that deny.",
        ),
        click.option(
            "--pattern",
            type=PATTERN,
            default=PatternType.ANY.name.lower(),
            metavar="literal|prefixed|match|any",
            help="Rules with this pattern for the given name. `match` finds every rule that holds "
            "for a resource of this name.",
        ),
    )
    decorated = cast("FunctionT", with_filter)
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _given_resource(pattern: PatternType) -> tuple[ResourceType, str | None]:
    """Return the resource that the running command was given. Raises UsageError."""
    resources = given_resources()
    if len(resources) > 1:
        raise click.UsageError("give one resource: the rules of one are found at a time")
    if pattern is PatternType.MATCH and not resources:
        raise click.UsageError("--pattern match needs the name of a resource, as in --topic NAME")
    return resources[0] if resources else (ResourceType.ANY, None)
