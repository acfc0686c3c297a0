"""Access rules for the command line: the operations of shortcuts, warnings, and output."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import product
from typing import TYPE_CHECKING, Final

from kgw.security.acls.binding import WILDCARD, AclBinding
from kgw.security.acls.terms import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kgw.security.principal import parse_principal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.cli.acls.options import Resource

PRODUCER: Final = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
"""The operations of `kafka-acls --producer`."""
CONSUMER: Final = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}
"""The operations of `kafka-acls --consumer`."""
IDEMPOTENT: Final = (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE)

Right = tuple[ResourceType, str, AclOperation]


def rights_of(resources: Iterable[Resource], operations: Iterable[AclOperation]) -> Iterator[Right]:
    """Yield each operation on each resource."""
    for (resource_type, name), operation in product(resources, operations):
        yield resource_type, name, operation


def rights_of_shortcut(
    shortcut: dict[ResourceType, tuple[AclOperation, ...]], resources: Iterable[Resource]
) -> Iterator[Right]:
    """Yield the operations that a shortcut stands for on these resources."""
    for resource_type, name in resources:
        for operation in shortcut.get(resource_type, ()):
            yield resource_type, name, operation


def bindings_of(
    rights: Iterable[Right],
    principals: Iterable[str],
    permission: PermissionType,
    *,
    is_prefixed: bool,
    host: str,
) -> list[AclBinding]:
    """Return a rule for each right of each principal, sorted and each once.

    As in Kafka's tools, a rule for the cluster is always literal.
    """
    found = set()
    for (resource_type, name, operation), principal in product(rights, principals):
        is_literal = not is_prefixed or resource_type is ResourceType.CLUSTER
        pattern = PatternType.LITERAL if is_literal else PatternType.PREFIXED
        found.add(AclBinding(resource_type, name, pattern, principal, host, operation, permission))
    return sorted(found)


def warnings_about(bindings: Iterable[AclBinding]) -> list[str]:
    """Return a sentence for each reason why some of the rules do nothing, each once."""
    return list(dict.fromkeys(text for one in bindings for text in _doubts(one)))


def _doubts(binding: AclBinding) -> Iterator[str]:
    what = _words(binding.resource_type)
    name, operation = binding.resource_name, binding.operation
    if operation not in SUPPORTED_OPERATIONS[binding.resource_type] | {AclOperation.ALL}:
        names = ", ".join(sorted(one.name for one in SUPPORTED_OPERATIONS[binding.resource_type]))
        yield (
            f"{operation.name} of a {what} is nothing that a client can do, so the rule does "
            f"nothing; there are {names}"
        )
    if binding.pattern_type is PatternType.PREFIXED and name == WILDCARD:
        yield (
            "with --prefixed, * is the first character of a name; without --prefixed it stands "
            "for every name"
        )
    elif name.endswith(WILDCARD) and name != WILDCARD:
        yield (
            f"{name} is taken as it stands, with its asterisk; "
            f"for every name that begins with {name.rstrip(WILDCARD)} leave out the asterisk and "
            "give --prefixed"
        )
    if binding.resource_type is ResourceType.USER and name != WILDCARD and not _is_principal(name):
        yield f"{name} names no user: a user as a resource is written as in User:alice"
    if binding.host != WILDCARD and not _is_address(binding.host):
        yield (
            f"{binding.host} is no IP address, and the hosts of clients are compared as IP "
            "addresses, so the rule does nothing"
        )


def _is_principal(text: str) -> bool:
    try:
        parse_principal(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def as_row(binding: AclBinding) -> dict[str, str]:
    """Return a rule in the form that --json prints."""
    return {
        "resource_type": binding.resource_type.name,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission_type": binding.permission.name,
    }


def as_line(binding: AclBinding) -> str:
    """Return a rule in one line, as in `ALLOW User:alice READ topic orders (literal), host *`."""
    resource = f"{_words(binding.resource_type)} {binding.resource_name}"
    return (
        f"{binding.permission.name} {binding.principal} {binding.operation.name} {resource} "
        f"({binding.pattern_type.name.lower()}), host {binding.host}"
    )


def _words(resource_type: ResourceType) -> str:
    return resource_type.name.replace("_", " ").lower()
