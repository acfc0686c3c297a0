"""`kgw acls`: list, add, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kgw.cli.acls.damaged import damaged_rules, delete_damaged
from kgw.cli.acls.options import (
    OPERATION,
    filter_options,
    given_resources,
    host_option,
    resource_options,
)
from kgw.cli.acls.rules import (
    CONSUMER,
    IDEMPOTENT,
    PRODUCER,
    as_line,
    as_row,
    bindings_of,
    rights_of,
    rights_of_shortcut,
    warnings_about,
)
from kgw.cli.shared.client import (
    Bootstrap,
    check_place,
    client_options,
    confirm,
    dry_run_option,
    is_asked,
    with_client,
    yes_option,
)
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, note_as, print_json, print_result
from kgw.cli.shared.principals import principal_option
from kgw.client import AdminClient, ServerRefusedError
from kgw.errors import ErrorCode
from kgw.security.acls.binding import AclBindingFilter
from kgw.security.acls.terms import AclOperation, PermissionType, ResourceType
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.cli.acls.options import Resource
    from kgw.cli.acls.rules import Right
    from kgw.cli.shared.client import ResultT
    from kgw.client import AsyncClient
    from kgw.security.access import DamagedRule
    from kgw.security.acls.binding import AclBinding

_COLUMNS = (
    "resource=resource_type name=resource_name pattern=pattern_type principal host operation "
    "permission=permission_type"
)
_NOTHING = "There are no such access rules."


@click.group(short_help="List, add and delete access rules.")
def acls() -> None:
    """List, add and delete access rules (ACLs).

    A rule allows or denies a principal an operation on resources. An operation that no rule
    allows is denied, except to super users. The server's setting super.users switches the rules on.
    """


@acls.command("list")
@filter_options
@client_options
def list_rules(
    *,
    acl_filter: AclBindingFilter,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """List access rules: all of them, or those that the options find."""
    found = _with_admin(bootstrap, lambda admin: admin.access_rules(acl_filter))
    print_result([*map(as_row, found)], _COLUMNS, is_json=is_json, nothing=_NOTHING)


@acls.command()
@principal_option(
    "--allow", multiple=True, help="Allow this, as in User:alice; may be given several times."
)
@principal_option(
    "--deny",
    multiple=True,
    help="Deny this; may be given several times. Nothing is denied to a super user.",
)
@click.option(
    "--operation",
    "operations",
    type=OPERATION,
    multiple=True,
    metavar="OP",
    help="An operation, as in READ, or ALL; may be given several times.",
)
@resource_options(multiple=True)
@click.option("--prefixed", is_flag=True, help="The names are the beginnings of names.")
@host_option(default="*", help="Clients at this IP address only; * is every address.")
@click.option(
    "--producer",
    is_flag=True,
    help="WRITE, DESCRIBE and CREATE of the topics; WRITE and DESCRIBE of the transactional ids.",
)
@click.option(
    "--idempotent", is_flag=True, help="With --producer: IDEMPOTENT_WRITE of the cluster, too."
)
@click.option(
    "--consumer", is_flag=True, help="READ and DESCRIBE of the topics; READ of the groups."
)
@dry_run_option
@client_options
def add(
    *,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    operations: tuple[AclOperation, ...],
    prefixed: bool,
    host: str,
    producer: bool,
    idempotent: bool,
    consumer: bool,
    dry_run: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Add access rules. They are durable, and hold, when the command ends.

    A rule is added for each principal, operation and resource. A rule that exists stays.
    """
    if bool(allow) == bool(deny):
        raise click.UsageError("give either --allow PRINCIPAL or --deny PRINCIPAL")
    resources = given_resources()
    if operations and (producer or consumer):
        raise click.UsageError("--producer and --consumer stand for operations: give no others")
    if deny and (producer or consumer):
        raise click.UsageError("--producer and --consumer allow: give --allow PRINCIPAL")
    if idempotent and not producer:
        raise click.UsageError("--idempotent is for --producer")
    if producer or consumer:
        rights = _rights_of_shortcuts(
            resources, is_producer=producer, is_idempotent=idempotent, is_consumer=consumer
        )
    else:
        if not operations:
            raise click.UsageError("give --operation OP, --producer or --consumer")
        if not resources:
            raise click.UsageError("give a resource, as in --topic NAME")
        rights = [*rights_of(resources, operations)]
    permission = PermissionType.ALLOW if allow else PermissionType.DENY
    bindings = bindings_of(rights, allow or deny, permission, is_prefixed=prefixed, host=host)
    for text in warnings_about(bindings):
        note_as(f"warning: {text}", {"warning": text}, is_json=is_json)
    if not dry_run:
        _with_admin(bootstrap, lambda admin: admin.create_access_rules(bindings))
    _print_rules("Would add" if dry_run else "In force", bindings, is_json=is_json)


def _rights_of_shortcuts(
    resources: Sequence[Resource], *, is_producer: bool, is_idempotent: bool, is_consumer: bool
) -> list[Right]:
    """Return the rights of --producer and --consumer. Raises UsageError, as kafka-acls does."""
    given = {resource_type for resource_type, _ in resources}
    allowed: set[ResourceType] = set()
    rights: list[Right] = []
    if is_producer:
        allowed |= PRODUCER.keys()
        rights += rights_of_shortcut(PRODUCER, resources)
        if ResourceType.TOPIC not in given:
            raise click.UsageError("--producer needs a topic: give --topic NAME")
    if is_idempotent:
        rights.append(IDEMPOTENT)
    if is_consumer:
        allowed |= CONSUMER.keys()
        rights += rights_of_shortcut(CONSUMER, resources)
        if not CONSUMER.keys() <= given:
            raise click.UsageError(
                "--consumer needs a topic and a group: give --topic NAME and --group NAME"
            )
    if not given <= allowed:
        names = ", ".join(one.name for one in sorted(given - allowed))
        raise click.UsageError(f"the shortcut has no operation for the resource type {names}")
    return rights


@acls.command()
@filter_options
@click.option(
    "--damaged",
    is_flag=True,
    help="The rules that cannot be read and keep a server from its start; needs --data-dir.",
)
@click.option(
    "--data-dir",
    metavar="DIR|URL",
    help="With --damaged: the data directory of a server that does not run, or a namespace of a "
    "SeaweedFS that no gateway serves, as in seaweedmq://FILER:PORT/NAMESPACE.",
)
@yes_option
@dry_run_option
@client_options
def delete(
    *,
    acl_filter: AclBindingFilter,
    damaged: bool,
    data_dir: str | None,
    yes: bool,
    dry_run: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Delete the access rules that the options find. They hold no longer when the command ends.

    At a terminal the rules are listed before the question. A rule that is added before the answer,
    and that the options find, is deleted, too. Every deleted rule is printed.

    A server does not start with a damaged rule, because the rule may be one that denies. With
    --damaged, the command prints the readable part of each damaged rule before it deletes the rule.
    Add the rules again before you let clients in.
    """
    if damaged or data_dir is not None:
        check_place(data_dir)
        if data_dir is None or not damaged:
            raise click.UsageError("--damaged and --data-dir need each other")
        if acl_filter != AclBindingFilter():
            raise click.UsageError("--damaged finds the rules: give no other option for them")
        _delete_damaged(data_dir, yes=yes, dry_run=dry_run, is_json=is_json)
        return
    if acl_filter == AclBindingFilter():
        raise click.UsageError("say which rules: give --topic, --principal or another option")

    if dry_run or is_asked(yes=yes):
        found = _with_admin(bootstrap, lambda admin: admin.access_rules(acl_filter))
        if dry_run or not found:
            _print_rules("Would delete", found, is_json=is_json)
            return
        for one in found:
            note(printable(as_line(one)))
        is_one = len(found) == 1
        confirm("this access rule" if is_one else f"these {len(found)} access rules", yes=yes)
    deleted = _with_admin(bootstrap, lambda admin: admin.delete_access_rules([acl_filter]))
    _print_rules("Deleted", deleted, is_json=is_json)


def _delete_damaged(data_dir: str, *, yes: bool, dry_run: bool, is_json: bool) -> None:
    if dry_run or is_asked(yes=yes):
        found = damaged_rules(data_dir)
        if dry_run or not found:
            _print_damaged("Would delete", found, is_json=is_json)
            return
        for one in found:
            note(_damaged_line(one))
        is_one = len(found) == 1
        what = "this damaged access rule" if is_one else f"these {len(found)} damaged access rules"
        confirm(what, yes=yes)
    _print_damaged("Deleted", delete_damaged(data_dir), is_json=is_json)


def _print_damaged(verb: str, rules: Sequence[DamagedRule], *, is_json: bool) -> None:
    if is_json:
        print_json([one._asdict() for one in rules])
        return
    for one in rules:
        click.echo(f"{verb}: {_damaged_line(one)}")
    if not rules:
        note("There are no damaged access rules.")


def _damaged_line(rule: DamagedRule) -> str:
    return printable(f"damaged rule {rule.key} ({rule.why}): {rule.content}")


def _with_admin(
    bootstrap: Bootstrap, action: Callable[[AdminClient], Awaitable[ResultT]]
) -> ResultT:
    """Connect and run `action`; if the server has no access rules, say what switches them on."""

    async def act(client: AsyncClient) -> ResultT:
        try:
            return await action(AdminClient(client))
        except ServerRefusedError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            raise CommandError(
                "access rules are off: the server's setting super.users switches them on, as in "
                "super.users=User:admin",
                kafka_error=error.code.name,
            ) from None

    return with_client(bootstrap, act)


def _print_rules(verb: str, bindings: Sequence[AclBinding], *, is_json: bool) -> None:
    """Print each rule behind a verb; with --json print a list."""
    if is_json:
        print_json([*map(as_row, bindings)])
        return
    for one in bindings:
        click.echo(printable(f"{verb}: {as_line(one)}"))
    if not bindings:
        note(_NOTHING)
