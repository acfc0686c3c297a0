"""Decides what a client may do, from the access rules, as Kafka's StandardAuthorizer does.

1. A super user may do everything.
2. Otherwise a rule that denies the operation decides, whatever other rules allow.
3. Otherwise a rule that allows the operation decides.
4. Otherwise the operation is denied, even if there are no rules at all.

A rule decides if its principal, host, pattern and operation match. `User:*` matches every
principal, `*` every host. An operation matches itself and ALL. In a rule that allows, an operation
also matches its implied operations (`IMPLIED_BY`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.security.acls.binding import AclBinding, check
from kgw.security.acls.decision import SUPER_USER, Decision, Rule, decide_among, make_rule
from kgw.security.acls.scope import Scope, ScopeKey, decide_for_any_among, scope_of, scopes_of
from kgw.security.acls.terms import SUPPORTED_OPERATIONS, AclOperation, ResourceType
from kgw.security.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Iterable

Question = tuple[Principal, str, AclOperation, ResourceType, str | None]
"""A resource name of None asks for any resource of the type."""

_LONGEST_CACHED: Final = 400
"""A question with more characters is not cached: clients choose names. A topic has at most 249."""


class Authorizer:
    """All access rules. A bounded cache holds the decisions since the last change of the rules."""

    def __init__(self, super_users: Iterable[Principal], *, max_cached: int = 10_000) -> None:
        self._super_users = frozenset(super_users)
        self._max_cached = max_cached
        self._rules: dict[AclBinding, Rule] = {}
        self._scopes: dict[ScopeKey, Scope] = {}
        self._cache: dict[Question, Decision] = {}

    @property
    def cached_decisions(self) -> int:
        """The number of decisions in the cache."""
        return len(self._cache)

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self._rules)

    def __contains__(self, binding: AclBinding) -> bool:
        return binding in self._rules

    def bindings(self) -> list[AclBinding]:
        """Return all rules, in the order in which they were added."""
        return [*self._rules]

    def add(self, bindings: Iterable[AclBinding]) -> list[AclBinding]:
        """Add rules, and return the rules that were not there.

        Raises ValueError, and adds no rule, if `check` refuses one of them.
        """
        bindings = list(bindings)
        for binding in bindings:
            check(binding)
        added = []
        for binding in bindings:
            if binding not in self._rules:
                rule = self._rules[binding] = make_rule(binding)
                self._scopes.setdefault(scope_of(binding), Scope()).add(rule)
                added.append(binding)
        self._cache.clear()
        return added

    def remove(self, bindings: Iterable[AclBinding]) -> list[AclBinding]:
        """Remove rules, and return the rules that were there."""
        removed = []
        for binding in bindings:
            rule = self._rules.pop(binding, None)
            if rule is not None:
                key = scope_of(binding)
                self._scopes[key].remove(rule)
                if self._scopes[key].is_empty:
                    del self._scopes[key]
                removed.append(binding)
        self._cache.clear()
        return removed

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        """Return whether a client may perform an operation on a resource, and why."""
        question = (principal, host, operation, resource_type, name)
        decision = self._cache.get(question)
        if decision is None:
            if principal in self._super_users:
                return SUPER_USER
            scopes = self._scopes_for(principal, host, resource_type)
            rules = (rule for scope in scopes for rule in scope.matching(name))
            decision = decide_among(rules, operation)
            self._remember(question, decision)
        return decision

    def decide_for_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Decision:
        """Return whether a client may perform an operation on some resource of a type, and why.

        The resource need not exist. Kafka asks this only for WRITE on topics. For DESCRIBE and
        DESCRIBE_CONFIGS, Kafka leaves out most implied operations; here they count.
        """
        question = (principal, host, operation, resource_type, None)
        decision = self._cache.get(question)
        if decision is None:
            if principal in self._super_users:
                return SUPER_USER
            scopes = self._scopes_for(principal, host, resource_type)
            rules = (rule for scope in scopes for rule in scope.rules())
            decision = decide_for_any_among(rules, operation)
            self._remember(question, decision)
        return decision

    def operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        """Return the supported operations that a client may perform on a resource (KIP-430).

        The cache is not used, as one request can ask for the operations on every topic.
        """
        supported = SUPPORTED_OPERATIONS[resource_type]
        if principal in self._super_users:
            return supported
        scopes = self._scopes_for(principal, host, resource_type)
        rules = [rule for scope in scopes for rule in scope.matching(name)]
        return frozenset(one for one in supported if decide_among(rules, one).is_allowed)

    def _scopes_for(
        self, principal: Principal, host: str, resource_type: ResourceType
    ) -> list[Scope]:
        """Return the scopes whose rules apply to a client."""
        keys = scopes_of(principal, host, resource_type)
        return [self._scopes[key] for key in keys if key in self._scopes]

    def _remember(self, question: Question, decision: Decision) -> None:
        """Put a decision into the cache, unless its question is long."""
        principal, host, _, _, name = question
        if len(principal.name) + len(host) + len(name or "") > _LONGEST_CACHED:
            return
        if len(self._cache) >= self._max_cached:
            self._cache.clear()
        self._cache[question] = decision
