"""Kafka's access rules, written straight from their definitions.

The oracle walks every rule for every question. It is slow, and it shares no code with the
gateway, so that a test can compare the gateway's authorizer with it. `compare.py` compares the
oracle itself with the StandardAuthorizer of Apache Kafka.

The definitions come from Kafka's documentation ("Authorization and ACLs"), KIP-11 (rules),
KIP-290 (prefixed patterns) and KIP-679 (a right on any resource of a type).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum

WILDCARD = "*"
ANY_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
# Authorizer.authorizeByResourceType asks for this name before it looks at the rules.
PROBE_NAME = "hardcode"


class ResourceType(StrEnum):
    """Kafka's types of resource."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    DELEGATION_TOKEN = "DELEGATION_TOKEN"
    USER = "USER"


class PatternType(StrEnum):
    """How the name of a rule is compared with the name of a resource."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Permission(StrEnum):
    """Whether a rule grants or forbids."""

    ALLOW = "ALLOW"
    DENY = "DENY"


class Operation(StrEnum):
    """Kafka's operations. `ALL` occurs in rules only."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"
    CREATE_TOKENS = "CREATE_TOKENS"
    DESCRIBE_TOKENS = "DESCRIBE_TOKENS"
    TWO_PHASE_COMMIT = "TWO_PHASE_COMMIT"


# The code of each operation on the wire (org.apache.kafka.common.acl.AclOperation).
OPERATION_CODES = {operation: code for code, operation in enumerate(Operation, start=2)}

# An ALLOW rule for one of the operations on the right also allows the operation on the left. A
# DENY rule for one of them denies nothing else.
IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

# The operations that `authorized operations` of a response can name, by type of resource
# (org.apache.kafka.security.authorizer.AclEntry.supportedOperations).
SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    },
    ResourceType.GROUP: {
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    },
    ResourceType.CLUSTER: {
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    },
    ResourceType.TRANSACTIONAL_ID: {
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    },
    ResourceType.DELEGATION_TOKEN: {Operation.DESCRIBE},
    ResourceType.USER: {Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS},
}


@dataclass(frozen=True)
class Rule:
    """One access rule (an ACL binding in Kafka's words)."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


@dataclass(frozen=True)
class AccessRules:
    """All rules of a cluster, its super users, and what holds where no rule matches.

    `allow_if_no_rule` is Kafka's setting `allow.everyone.if.no.acl.found`.

    With `star_names_escape` the oracle repeats a defect of the StandardAuthorizer (Kafka 4.4): a
    literal rule for `*` does not match a longer name that begins with `*`, so that a DENY for all
    groups does not hold for a group named `*x`. Only the comparison with Kafka sets it.
    """

    rules: tuple[Rule, ...] = ()
    super_users: frozenset[str] = frozenset()
    allow_if_no_rule: bool = False
    star_names_escape: bool = False

    def allowed(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        """Return whether the principal may do the operation on one named resource.

        A super user may do everything. Otherwise a DENY rule wins over every ALLOW rule, and what
        no rule allows is denied. `allow_if_no_rule` matters only if no rule matches the resource,
        whoever and whatever that rule is about.
        """
        if principal in self.super_users:
            return True
        about_resource = [
            rule
            for rule in self.rules
            if matches_resource(rule, resource_type, resource_name)
            and not (self.star_names_escape and escapes(rule, resource_name))
        ]
        if not about_resource:
            return self.allow_if_no_rule
        permissions = {
            rule.permission
            for rule in about_resource
            if matches_client(rule, principal, host) and covers(rule, operation)
        }
        return Permission.ALLOW in permissions and Permission.DENY not in permissions

    def allowed_for_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return what Kafka's authorizeByResourceType answers (KIP-679).

        The question is whether the principal may do the operation on some resource of the type.
        Kafka decides it in two steps: it asks for a resource named `hardcode`, and then it looks
        for an ALLOW rule that no DENY rule covers whole. The second step knows no implied
        operations and no `allow_if_no_rule`; only the first step does.
        """
        if self.allowed(principal, host, operation, resource_type, PROBE_NAME):
            return True
        rules = [
            rule
            for rule in self.rules
            if rule.resource_type == resource_type
            and matches_client(rule, principal, host)
            and rule.operation in {operation, Operation.ALL}
        ]
        denials = [rule for rule in rules if rule.permission == Permission.DENY]
        return any(
            rule.permission == Permission.ALLOW
            and not any(covers_all_names_of(denial, rule) for denial in denials)
            for rule in rules
        )

    def operations(
        self, principal: str, host: str, resource_type: ResourceType, resource_name: str
    ) -> set[Operation]:
        """Return the operations that the principal may do on one named resource."""
        return {
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allowed(principal, host, operation, resource_type, resource_name)
        }


def matches_resource(rule: Rule, resource_type: ResourceType, resource_name: str) -> bool:
    """Return whether the rule is about the named resource."""
    if rule.resource_type != resource_type:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return resource_name.startswith(rule.resource_name)
    return rule.resource_name in {resource_name, WILDCARD}


def escapes(rule: Rule, resource_name: str) -> bool:
    """Return whether Kafka overlooks that the rule for all names is about this name."""
    return (
        rule.pattern_type == PatternType.LITERAL
        and rule.resource_name == WILDCARD
        and resource_name.startswith(WILDCARD)
        and resource_name != WILDCARD
    )


def matches_client(rule: Rule, principal: str, host: str) -> bool:
    """Return whether the rule is about a client of this principal at this host.

    `User:*` matches principals of every type; no other principal is a wildcard.
    """
    return rule.principal in {principal, ANY_PRINCIPAL} and rule.host in {
        host_text(host),
        WILDCARD,
    }


def covers(rule: Rule, operation: Operation) -> bool:
    """Return whether the rule decides about the operation."""
    if rule.operation in {operation, Operation.ALL}:
        return True
    return rule.permission == Permission.ALLOW and rule.operation in IMPLIED_BY.get(
        operation, set()
    )


def covers_all_names_of(denial: Rule, grant: Rule) -> bool:
    """Return whether the denial matches every name that the grant matches.

    The names of a literal grant for `*` are all names.
    """
    if denial.pattern_type == PatternType.LITERAL:
        if denial.resource_name == WILDCARD:
            return True
        return (
            grant.pattern_type == PatternType.LITERAL
            and grant.resource_name == denial.resource_name
        )
    if grant.pattern_type == PatternType.LITERAL and grant.resource_name == WILDCARD:
        return False
    return grant.resource_name.startswith(denial.resource_name)


def host_text(host: str) -> str:
    """Return the address of a client as Java writes it, which rules are compared with.

    Java writes an IPv6 address in eight groups without `::`, and an IPv4 address that is mapped
    into IPv6 as an IPv4 address.
    """
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def operation_bits(operations: set[Operation]) -> int:
    """Return the 32-bit field in which a response carries the operations."""
    bits = 0
    for operation in operations:
        bits |= 1 << OPERATION_CODES[operation]
    return bits
