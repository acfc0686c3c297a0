"""The oracle's cases in the words of kgw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from tests.security.oracle.cases import Form, generate
from tests.security.oracle.oracle import WILDCARD, Operation, host_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.security.oracle.cases import Case
    from tests.security.oracle.oracle import AccessRules, Rule


def binding_of(rule: Rule) -> AclBinding:
    """Return a rule of the oracle."""
    return AclBinding(
        ResourceType[rule.resource_type],
        rule.resource_name,
        PatternType[rule.pattern_type],
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        PermissionType[rule.permission],
    )


def rules_of(case: Case) -> AccessRules:
    """Return the oracle for the rules of a case as kgw reads them.

    kgw lacks Kafka's setting that opens what no rule names. And in a rule it takes each way to
    write an IPv6 address, where Kafka compares with the text of Java.
    """
    rules = case.rule_set.access_rules()
    read = tuple(
        one if one.host == WILDCARD else replace(one, host=host_text(one.host))
        for one in rules.rules
    )
    return replace(rules, rules=read, allow_if_no_rule=False)


def cases_for_kgw(seed: int, rule_sets: int, questions: int) -> Iterator[Case]:
    """Yield the cases that kgw can meet.

    It asks for a right on any resource of a type for WRITE only (KIP-679). For other operations,
    Kafka leaves out most implied ones.
    """
    for case in generate(seed, rule_sets, questions):
        if case.form != Form.ANY or case.operation == Operation.WRITE:
            yield replace(case, expected=int(case.answer(rules_of(case))))
