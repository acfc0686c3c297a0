"""Finds rules by the name of a resource, without a walk over all rules.

A scope holds the rules for one resource type, one principal and one host, where `User:*` and `*`
are a principal and a host of their own. A client is therefore subject to at most four scopes.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.security.acls.binding import WILDCARD, AclBinding
from kgw.security.acls.decision import NO_RULE, Decision, Rule
from kgw.security.acls.terms import AclOperation, PatternType, ResourceType
from kgw.security.principal import EVERY_NAME, USER_TYPE, Principal, parse_principal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EVERY_PRINCIPAL: Final = Principal(USER_TYPE, EVERY_NAME)
"""The principal of rules for every principal, of whatever type."""


class ScopeKey(NamedTuple):
    """The fields that all rules of a scope share."""

    resource_type: ResourceType
    principal: Principal
    host: str


def scope_of(binding: AclBinding) -> ScopeKey:
    """Return the scope of a rule."""
    principal = parse_principal(binding.principal)
    return ScopeKey(binding.resource_type, principal, canonical_host(binding.host))


def scopes_of(principal: Principal, host: str, resource_type: ResourceType) -> list[ScopeKey]:
    """Return the scopes whose rules apply to a client."""
    host = canonical_host(host)
    return [
        ScopeKey(resource_type, one_principal, one_host)
        for one_principal in (principal, EVERY_PRINCIPAL)
        for one_host in (host, WILDCARD)
    ]


def canonical_host(host: str) -> str:
    """Return the same text for each way to write an IPv6 address.

    Kafka compares hosts with the text of Java, `0:0:0:0:0:0:0:1`; Python and people write `::1`. A
    rule that denies must not fail to match for that. An IPv4 address in an IPv6 address becomes an
    IPv4 address, as in Java.
    """
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


class Scope:
    """The rules of a scope, by their patterns."""

    def __init__(self) -> None:
        self._literals: dict[str, list[Rule]] = {}
        self._prefixes: dict[int, dict[str, list[Rule]]] = {}
        """The rules with a prefixed pattern, by the length of the prefix and by the prefix."""

    @property
    def is_empty(self) -> bool:
        """Whether the scope has no rules."""
        return not (self._literals or self._prefixes)

    def add(self, rule: Rule) -> None:
        """Add a rule that the scope does not have."""
        name = rule.binding.resource_name
        if rule.binding.pattern_type is PatternType.PREFIXED:
            by_name = self._prefixes.setdefault(len(name), {})
        else:
            by_name = self._literals
        by_name.setdefault(name, []).append(rule)

    def remove(self, rule: Rule) -> None:
        """Remove a rule that the scope has."""
        name = rule.binding.resource_name
        is_prefixed = rule.binding.pattern_type is PatternType.PREFIXED
        by_name = self._prefixes[len(name)] if is_prefixed else self._literals
        by_name[name].remove(rule)
        if not by_name[name]:
            del by_name[name]
        if is_prefixed and not by_name:
            del self._prefixes[len(name)]

    def rules(self) -> Iterator[Rule]:
        """Yield all rules."""
        for by_name in (self._literals, *self._prefixes.values()):
            for rules in by_name.values():
                yield from rules

    def matching(self, name: str) -> Iterator[Rule]:
        """Yield the rules whose pattern matches a resource name."""
        if name != WILDCARD:
            yield from self._literals.get(name, ())
        yield from self._covering_prefix(name)

    def covering(self, binding: AclBinding) -> Iterator[Rule]:
        """Yield the rules that match every name which the pattern of `binding` matches."""
        if binding.pattern_type is PatternType.PREFIXED:
            yield from self._covering_prefix(binding.resource_name)
        elif binding.resource_name == WILDCARD:
            yield from self._literals.get(WILDCARD, ())
        else:
            yield from self.matching(binding.resource_name)

    def _covering_prefix(self, prefix: str) -> Iterator[Rule]:
        """Yield the rules whose pattern matches every name that starts with `prefix`."""
        for length, by_name in self._prefixes.items():
            if length <= len(prefix):
                yield from by_name.get(prefix[:length], ())
        yield from self._literals.get(WILDCARD, ())


def decide_for_any_among(rules: Iterable[Rule], operation: AclOperation) -> Decision:
    """Decide whether an operation is allowed on some name, by the rules for a client and a type.

    The pattern of a rule that allows must match a name that no rule denies. There is such a name
    unless one rule denies all of them: a set of longer prefixes never denies every name.
    """
    allowing, denying = [], Scope()
    for rule in rules:
        if not rule.applies_to(operation):
            continue
        if rule.decision.is_allowed:
            allowing.append(rule)
        else:
            denying.add(rule)
    decision = NO_RULE
    for rule in allowing:
        denied = next(denying.covering(rule.binding), None)
        if denied is None:
            return rule.decision
        decision = denied.decision
    return decision
