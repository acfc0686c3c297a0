"""Which access rules a producer or a consumer lacks, with the command that adds them. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.config.setting import suggest
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.security.principal import ANONYMOUS, USER_TYPE, parse_principal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

PRODUCER: Final = {ResourceType.TOPIC: AclOperation.WRITE}
CONSUMER: Final = {ResourceType.TOPIC: AclOperation.READ, ResourceType.GROUP: AclOperation.READ}
"""The operation on each resource without which there are no records. It implies DESCRIBE."""


class ResourceRights(NamedTuple):
    """What a client may do with a topic or a group that it was asked about."""

    resource_type: ResourceType
    name: str
    operations: frozenset[AclOperation] | None
    """None if it does not exist."""


def right_problems(
    rights: Iterable[ResourceRights],
    principal: str,
    address: str,
    *,
    is_producer: bool,
    is_consumer: bool,
) -> list[str]:
    """Return a problem for each resource that the client cannot use as it wants to.

    The server lists no operation for a client that may not DESCRIBE the resource.
    """
    problems = []
    for one in rights:
        kind, name = one.resource_type.name.lower(), shlex.quote(one.name)
        if one.operations is None:
            problems.append(
                f"{kind} {one.name} does not exist: kgw topics create {name} -b {address}"
            )
            continue
        wanted = [
            operation
            for is_asked, needed in ((is_producer, PRODUCER), (is_consumer, CONSUMER))
            if is_asked and (operation := needed.get(one.resource_type)) is not None
        ]
        problems += [
            f"no rule allows {principal} to {operation.name} {kind} {one.name}, or a rule denies "
            f"that or DESCRIBE (kgw acls list --{kind} {name} --pattern match): kgw acls add "
            f"--allow {shlex.quote(principal)} --operation {operation.name} --{kind} {name} "
            f"-b {address} --command-config FILE, with the FILE of a super user"
            for operation in wanted
            if operation not in one.operations
        ]
    return problems


def super_user_problems(super_users: str, users: Collection[str], place: str) -> list[str]:
    """Return a problem for each principal in super.users that is no user with a password.

    `place` is the server, or the file and the line, that has super.users.
    """
    problems = []
    for text in filter(None, map(str.strip, super_users.split(";"))):
        principal = parse_principal(text)
        is_user = principal.principal_type == USER_TYPE and principal.name in users
        if is_user or principal == ANONYMOUS:
            continue
        near = suggest(principal.name, users)
        problems.append(
            f"super.users of {place} has {text}, and no user is called so{near}: correct it, or "
            f"kgw users add {shlex.quote(principal.name)}"
        )
    return problems
