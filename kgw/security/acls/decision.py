"""Whether an operation is allowed, if the rules are known whose other fields match."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.security.acls.terms import IMPLIED_BY, AclOperation, PermissionType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.security.acls.binding import AclBinding


class DecisionReason(StrEnum):
    """Why an operation is allowed or denied, in the words of Kafka's audit log."""

    SUPER_USER = "SuperUser"
    RULE = "MatchingAcl"
    NO_RULE = "DefaultDeny"


class Decision(NamedTuple):
    """Whether an operation is allowed, and why."""

    is_allowed: bool
    reason: DecisionReason
    binding: AclBinding | None = None
    """A rule that decided, if the reason is RULE. Other rules may say the same."""


SUPER_USER: Final = Decision(is_allowed=True, reason=DecisionReason.SUPER_USER)
NO_RULE: Final = Decision(is_allowed=False, reason=DecisionReason.NO_RULE)


class Rule(NamedTuple):
    """A rule, and the decision if this rule decides."""

    binding: AclBinding
    decision: Decision

    def applies_to(self, operation: AclOperation) -> bool:
        """Return whether the rule allows or denies this operation."""
        if self.binding.operation in (AclOperation.ALL, operation):
            return True
        return self.decision.is_allowed and self.binding.operation in IMPLIED_BY.get(operation, ())


def make_rule(binding: AclBinding) -> Rule:
    """Return the rule of a binding."""
    is_allowed = binding.permission is PermissionType.ALLOW
    return Rule(binding, Decision(is_allowed, DecisionReason.RULE, binding))


def decide_among(rules: Iterable[Rule], operation: AclOperation) -> Decision:
    """Decide about an operation. Any rule that denies wins over all rules that allow."""
    decision = NO_RULE
    for rule in rules:
        if rule.applies_to(operation):
            if not rule.decision.is_allowed:
                return rule.decision
            decision = rule.decision
    return decision
