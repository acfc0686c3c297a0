"""One access rule, its stored form, and the filters that find rules."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kgw.security.acls.terms import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kgw.security.principal import parse_principal

WILDCARD: Final = "*"
"""As the name of a literal pattern: every name. As a host: every host."""

LONGEST_TEXT: Final = 2_000
"""Characters of a resource name, a principal or a host in a rule. All rules are in memory."""

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (PermissionType.DENY, PermissionType.ALLOW)
_FIELDS: Final = frozenset(
    {
        "type",
        "name",
        "pattern",
        "principal",
        "host",
        "operation",
        "permission",
    }
)


class AclBinding(NamedTuple):
    """A rule: a principal on a host may, or may not, perform an operation on some resources."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """`TYPE:NAME`; `User:*` is every principal, of whatever type."""
    host: str
    operation: AclOperation
    permission: PermissionType

    @classmethod
    def from_codes(
        cls,
        resource_type: int,
        resource_name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> AclBinding:
        """Return the rule of a message, which has Kafka's numbers of the terms."""
        return cls(
            ResourceType.from_code(resource_type),
            resource_name,
            PatternType.from_code(pattern_type),
            principal,
            host,
            AclOperation.from_code(operation),
            PermissionType.from_code(permission),
        )

    def __str__(self) -> str:
        """Return the rule as Kafka prints it."""
        return (
            f"(pattern=ResourcePattern(resourceType={self.resource_type.name}, "
            f"name={self.resource_name}, patternType={self.pattern_type.name}), "
            f"entry=(principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name}))"
        )

    def encode(self) -> bytes:
        """Return the stored form. Equal rules have equal stored forms."""
        fields = {
            "type": self.resource_type.name,
            "name": self.resource_name,
            "pattern": self.pattern_type.name,
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation.name,
            "permission": self.permission.name,
        }
        return _ENCODER.encode(fields).encode()


def decode(value: bytes) -> AclBinding:
    """Decode the output of `AclBinding.encode`. Raises ValueError for other bytes.

    An unknown field is refused, as it could restrict the rule.
    """
    try:
        fields = json.loads(value)
        if fields.keys() != _FIELDS or not all(isinstance(one, str) for one in fields.values()):
            raise ValueError(f"not the fields of an access rule: {fields!r}")
        binding = AclBinding(
            ResourceType[fields["type"]],
            fields["name"],
            PatternType[fields["pattern"]],
            fields["principal"],
            fields["host"],
            AclOperation[fields["operation"]],
            PermissionType[fields["permission"]],
        )
    except (KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not an access rule: {error!r}") from error
    check(binding)
    return binding


def check(binding: AclBinding) -> None:
    """Raise ValueError for a rule that CreateAcls answers with INVALID_REQUEST.

    As Kafka's broker does, this accepts an operation that the resource type does not support, and
    any text as the host. An empty principal name and long texts are refused here, not by Kafka: no
    client has such a principal.
    """
    if binding.resource_type in {ResourceType.UNKNOWN, ResourceType.ANY}:
        raise ValueError(f"A rule cannot have the resource type {binding.resource_type.name}")
    if binding.pattern_type not in _PATTERNS:
        raise ValueError(f"A rule cannot have the pattern type {binding.pattern_type.name}")
    if binding.operation in {AclOperation.UNKNOWN, AclOperation.ANY}:
        raise ValueError(f"A rule cannot have the operation {binding.operation.name}")
    if binding.permission not in _PERMISSIONS:
        raise ValueError(f"A rule cannot have the permission type {binding.permission.name}")
    if not binding.resource_name:
        raise ValueError("The resource name is empty")
    for what in ("resource_name", "principal", "host"):
        if len(getattr(binding, what)) > LONGEST_TEXT:
            text = what.replace("_", " ")
            raise ValueError(f"The {text} has more than {LONGEST_TEXT} characters")
    if binding.resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        raise ValueError(f"The only resource of type CLUSTER is {CLUSTER_NAME}")
    try:
        parse_principal(binding.principal)
    except ValueError as error:
        raise ValueError(f"The principal {error}") from None


class AclBindingFilter(NamedTuple):
    """A filter of DescribeAcls and DeleteAcls. None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    """MATCH finds the rules whose pattern matches a resource of this name, ANY the rules with
    exactly this text in their pattern."""
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter finds the rule.

        Principal and host are compared as texts: `User:*` finds the rules for `User:*` alone.
        """
        return (
            self.resource_type in {ResourceType.ANY, binding.resource_type}
            and self._matches_pattern(binding)
            and self.principal in {None, binding.principal}
            and self.host in {None, binding.host}
            and self.operation in {AclOperation.ANY, binding.operation}
            and self.permission in {PermissionType.ANY, binding.permission}
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        is_match = self.pattern_type is PatternType.MATCH
        if not is_match and self.pattern_type not in {PatternType.ANY, binding.pattern_type}:
            return False
        if self.resource_name is None or self.resource_name == binding.resource_name:
            return True
        if not is_match:
            return False
        if binding.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(binding.resource_name)
        return binding.resource_name == WILDCARD


def check_filter(acl_filter: AclBindingFilter) -> None:
    """Raise ValueError for a filter with UNKNOWN, as DescribeAcls and DeleteAcls refuse it."""
    terms = (
        ("resource type", acl_filter.resource_type),
        ("pattern type", acl_filter.pattern_type),
        ("operation", acl_filter.operation),
        ("permission type", acl_filter.permission),
    )
    for what, term in terms:
        if not term:
            raise ValueError(f"A filter cannot have the {what} UNKNOWN")
