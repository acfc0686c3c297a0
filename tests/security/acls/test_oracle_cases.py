"""Campaign A6: the authorizer decides as the oracle, which was compared with Kafka's authorizer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kgw.handlers.authorized_operations import bit_field
from kgw.security.acls.authorizer import Authorizer
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.security.principal import parse_principal
from tests.security.oracle.bindings import binding_of, cases_for_kgw
from tests.security.oracle.cases import Form

if TYPE_CHECKING:
    from tests.security.oracle.cases import Case, RuleSet

LEAST = 5_000


def authorizer_of(rules: RuleSet) -> Authorizer:
    """Return an authorizer to which rules were added, at once or one by one, and some removed."""
    result = Authorizer(map(parse_principal, rules.super_users))
    bindings = [binding_of(one) for one in rules.added]
    for some in [bindings] if rules.snapshot else [[one] for one in bindings]:
        result.add(some)
    result.remove(bindings[number] for number in rules.removed)
    return result


def answer(authorizer: Authorizer, case: Case) -> int:
    """Return what an authorizer answers, in the oracle's form."""
    principal, host = parse_principal(case.principal), case.host
    operation, of = AclOperation[case.operation], ResourceType[case.resource_type]
    match case.form:
        case Form.ALLOWED:
            return authorizer.decide(principal, host, operation, of, case.resource_name).is_allowed
        case Form.ANY:
            return authorizer.decide_for_any(principal, host, operation, of).is_allowed
        case Form.OPERATIONS:
            return bit_field(authorizer.operations(principal, host, of, case.resource_name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_authorizer_decides_as_the_oracle(seed: int) -> None:
    """All differences are bugs; each question is asked twice, the second time of the cache."""
    seen: Counter[tuple[Form, bool]] = Counter()
    rules, authorizer = None, Authorizer(())
    different = []
    for case in cases_for_kgw(seed, rule_sets=280, questions=30):
        if case.rule_set is not rules:
            rules = case.rule_set
            authorizer = authorizer_of(rules)
        seen[case.form, bool(case.expected)] += 1
        found = [answer(authorizer, case) for _ in range(2)]
        if found != [case.expected] * 2:
            different.append((case, found))
    assert [] == different
    assert seen.total() >= LEAST
    assert {(form, has) for form in Form for has in (True, False)} == set(seen)
