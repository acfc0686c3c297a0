"""Access rules and questions as short texts, so that tests read as tables."""

from __future__ import annotations

from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from kgw.security.principal import Principal, parse_principal

HOST = "10.0.0.9"
"""The host of questions that name none."""

Question = tuple[Principal, str, AclOperation, ResourceType, str]


def rule(text: str) -> AclBinding:
    """Parse `ALLOW User:alice READ TOPIC orders`; `orders~` is a prefix, `@10.0.0.1` a host."""
    text, _, host = text.partition(" @")
    permission, principal, operation, resource_type, name = text.split()
    is_prefix = name.endswith("~")
    return AclBinding(
        ResourceType[resource_type],
        name.removesuffix("~"),
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal,
        host or "*",
        AclOperation[operation],
        PermissionType[permission],
    )


def question(text: str) -> Question:
    """Parse `User:alice READ TOPIC orders`; `@10.0.0.1` is the client's host."""
    text, _, host = text.partition(" @")
    principal, operation, resource_type, name = text.split()
    return (
        parse_principal(principal),
        host or HOST,
        AclOperation[operation],
        ResourceType[resource_type],
        name,
    )
