"""Decisions from access rules, one table for each part of the definition."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kgw.security.acls.authorizer import Authorizer
from kgw.security.acls.decision import NO_RULE, SUPER_USER, Decision, DecisionReason
from kgw.security.acls.terms import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    ResourceType,
)
from kgw.security.principal import ANONYMOUS, Principal, parse_principal
from tests.security.acls.writing import HOST, question, rule

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ALICE = Principal("User", "alice")
TOPIC = ResourceType.TOPIC


def authorizer(*rules: str, super_users: tuple[str, ...] = (), max_cached: int = 100) -> Authorizer:
    """Return an authorizer with these rules."""
    result = Authorizer(map(parse_principal, super_users), max_cached=max_cached)
    result.add(map(rule, rules))
    return result


def test_without_rules_everything_is_denied() -> None:
    """An authorizer that has no rules protects as much as one that has (CVE-2023-50976)."""
    empty = authorizer()
    for resource_type, operations in SUPPORTED_OPERATIONS.items():
        for operation in operations:
            assert NO_RULE == empty.decide(ALICE, HOST, operation, resource_type, "orders")
            assert not empty.decide_for_any(ALICE, HOST, operation, resource_type).is_allowed
        assert frozenset() == empty.operations(ALICE, HOST, resource_type, "orders")
    assert not empty.decide(ANONYMOUS, HOST, AclOperation.READ, TOPIC, "orders").is_allowed


@pytest.mark.parametrize(
    ("asked", "is_allowed"),
    [
        # The principal.
        ("User:alice READ TOPIC orders", True),
        ("User:bob READ TOPIC orders", False),
        ("User:Alice READ TOPIC orders", False),
        ("User:alice2 READ TOPIC orders", False),
        ("Group:alice READ TOPIC orders", False),
        ("User:* READ TOPIC orders", False),
        ("User:bob READ TOPIC public", True),
        ("Group:staff READ TOPIC public", True),
        ("Group:any WRITE TOPIC groups", False),
        ("Group:* WRITE TOPIC groups", True),
        # The pattern.
        ("User:alice READ TOPIC orders2", False),
        ("User:alice READ TOPIC order", False),
        ("User:alice READ TOPIC Orders", False),
        ("User:alice READ TOPIC pay", True),
        ("User:alice READ TOPIC pay-2", True),
        ("User:alice READ TOPIC pa", False),
        ("User:alice READ TOPIC repay", False),
        ("User:alice CREATE TOPIC whatever", True),
        ("User:alice DELETE TOPIC whatever", False),
        ("User:alice DELETE TOPIC *", False),
        ("User:alice DELETE TOPIC *x", False),
        ("User:carol DELETE TOPIC *x", True),
        ("User:carol DELETE TOPIC x", False),
        # The type.
        ("User:alice READ GROUP orders", False),
        ("User:alice READ GROUP billing", True),
        ("User:alice READ TOPIC billing", False),
        ("User:alice WRITE TRANSACTIONAL_ID tx-1", True),
        ("User:alice DESCRIBE DELEGATION_TOKEN t1", True),
        ("User:alice CREATE_TOKENS USER User:bob", True),
        ("User:alice IDEMPOTENT_WRITE CLUSTER kafka-cluster", True),
        ("User:alice ALTER CLUSTER kafka-cluster", False),
        # The host.
        ("User:alice WRITE TOPIC audit", False),
        ("User:alice WRITE TOPIC audit @10.0.0.1", True),
        ("User:alice WRITE TOPIC audit @10.0.0.10", False),
        ("User:alice WRITE TOPIC audit @*", False),
        # The operation.
        ("User:alice WRITE TOPIC orders", False),
        ("User:alice ALTER TOPIC everything", True),
        ("User:alice TWO_PHASE_COMMIT TOPIC everything", True),
        ("User:alice ALL TOPIC everything", True),
        ("User:alice ALL TOPIC orders", False),
        ("User:alice ANY TOPIC orders", False),
    ],
)
def test_a_rule_allows_if_all_its_fields_match(asked: str, is_allowed: bool) -> None:
    """A field that does not match leaves the default, which denies."""
    rules = authorizer(
        "ALLOW User:alice READ TOPIC orders",
        "ALLOW User:* READ TOPIC public",
        "ALLOW Group:* WRITE TOPIC groups",
        "ALLOW User:alice READ TOPIC pay~",
        "ALLOW User:alice CREATE TOPIC *",
        "ALLOW User:carol DELETE TOPIC *~",
        "ALLOW User:alice READ GROUP billing",
        "ALLOW User:alice WRITE TRANSACTIONAL_ID tx-~",
        "ALLOW User:alice DESCRIBE DELEGATION_TOKEN t1",
        "ALLOW User:alice CREATE_TOKENS USER User:bob",
        "ALLOW User:alice IDEMPOTENT_WRITE CLUSTER kafka-cluster",
        "ALLOW User:alice WRITE TOPIC audit @10.0.0.1",
        "ALLOW User:alice ALL TOPIC everything",
    )
    assert is_allowed is rules.decide(*question(asked)).is_allowed


@pytest.mark.parametrize(
    "deny",
    [
        "DENY User:alice READ TOPIC orders",
        "DENY User:alice ALL TOPIC orders",
        "DENY User:* READ TOPIC orders",
        "DENY User:alice READ TOPIC ord~",
        "DENY User:alice READ TOPIC orders~",
        "DENY User:alice READ TOPIC *",
        "DENY User:* ALL TOPIC *",
        "DENY User:alice READ TOPIC orders @10.0.0.9",
        "DENY User:* ALL TOPIC o~ @10.0.0.9",
    ],
)
@pytest.mark.parametrize(
    "allow",
    [
        "ALLOW User:alice READ TOPIC orders",
        "ALLOW User:alice ALL TOPIC orders @10.0.0.9",
        "ALLOW User:* READ TOPIC orders",
        "ALLOW User:alice READ TOPIC orders~",
        "ALLOW User:* ALL TOPIC *",
    ],
)
def test_a_rule_that_denies_wins(allow: str, deny: str) -> None:
    """However exact the rule that allows is, and whichever was added first."""
    for rules in [(allow, deny), (deny, allow)]:
        decision = authorizer(*rules).decide(*question("User:alice READ TOPIC orders"))
        assert Decision(False, DecisionReason.RULE, rule(deny)) == decision


@pytest.mark.parametrize(
    "deny",
    [
        "DENY User:bob READ TOPIC orders",
        "DENY Group:* READ TOPIC orders",
        "DENY User:alice WRITE TOPIC orders",
        "DENY User:alice READ GROUP orders",
        "DENY User:alice READ TOPIC order",
        "DENY User:alice READ TOPIC orders2~",
        "DENY User:alice READ TOPIC *~",
        "DENY User:alice READ TOPIC orders @10.0.0.1",
    ],
)
def test_a_rule_that_denies_something_else_does_not_matter(deny: str) -> None:
    """The rule that allows decides."""
    allow = "ALLOW User:alice READ TOPIC orders"
    decision = authorizer(allow, deny).decide(*question("User:alice READ TOPIC orders"))
    assert Decision(True, DecisionReason.RULE, rule(allow)) == decision


DESCRIBE_IMPLIED = {"ALL", "READ", "WRITE", "DELETE", "ALTER", "DESCRIBE"}
CONFIGS_IMPLIED = {"ALL", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"}


@pytest.mark.parametrize("operation", list(AclOperation)[2:], ids=lambda one: one.name)
def test_a_rule_that_allows_implies_describe(operation: AclOperation) -> None:
    """READ, WRITE, DELETE and ALTER allow DESCRIBE; ALTER_CONFIGS allows DESCRIBE_CONFIGS."""
    rules = authorizer(f"ALLOW User:alice {operation.name} TOPIC orders")
    implied = {
        other.name
        for other in list(AclOperation)[2:]
        if rules.decide(ALICE, HOST, other, TOPIC, "orders").is_allowed
    }
    expected = {operation.name}
    if operation.name == "ALL":
        expected = {one.name for one in list(AclOperation)[2:]}
    if operation.name in DESCRIBE_IMPLIED:
        expected |= {"DESCRIBE"}
    if operation.name in CONFIGS_IMPLIED:
        expected |= {"DESCRIBE_CONFIGS"}
    assert expected == implied


@pytest.mark.parametrize("operation", list(AclOperation)[2:], ids=lambda one: one.name)
def test_a_rule_that_denies_implies_nothing(operation: AclOperation) -> None:
    """Only its own operation is denied; ALL denies each."""
    rules = authorizer(
        "ALLOW User:alice ALL TOPIC orders", f"DENY User:alice {operation.name} TOPIC orders"
    )
    denied = [
        other
        for other in list(AclOperation)[2:]
        if not rules.decide(ALICE, HOST, other, TOPIC, "orders").is_allowed
    ]
    expected = list(AclOperation)[2:] if operation is AclOperation.ALL else [operation]
    assert expected == denied


def test_an_implied_operation_is_denied_by_its_own_rule() -> None:
    """READ is still allowed, and would imply DESCRIBE."""
    rules = authorizer("ALLOW User:alice READ TOPIC orders", "DENY User:* DESCRIBE TOPIC o~")
    assert not rules.decide(ALICE, HOST, AclOperation.DESCRIBE, TOPIC, "orders").is_allowed
    assert rules.decide(ALICE, HOST, AclOperation.READ, TOPIC, "orders").is_allowed


@pytest.mark.parametrize(
    ("principal", "is_allowed"),
    [
        ("User:admin", True),
        ("User:CN=root:1", True),
        ("User:admin2", False),
        ("User:adm", False),
        ("User:Admin", False),
        ("Group:admin", False),
        ("User:*", False),
        ("User:ANONYMOUS", False),
    ],
)
def test_a_super_user_is_an_exact_principal(principal: str, is_allowed: bool) -> None:
    """A super user may do everything, even if a rule denies it; nobody else may."""
    rules = authorizer("DENY User:* ALL TOPIC *", super_users=("User:admin", "User:CN=root:1"))
    who = parse_principal(principal)
    assert is_allowed is rules.decide(who, HOST, AclOperation.WRITE, TOPIC, "orders").is_allowed
    assert is_allowed is rules.decide_for_any(who, HOST, AclOperation.WRITE, TOPIC).is_allowed
    expected = SUPPORTED_OPERATIONS[TOPIC] if is_allowed else frozenset()
    assert expected == rules.operations(who, HOST, TOPIC, "orders")
    if is_allowed:
        assert SUPER_USER == rules.decide(who, HOST, AclOperation.WRITE, TOPIC, "orders")
        assert SUPER_USER == rules.decide_for_any(who, HOST, AclOperation.WRITE, TOPIC)


def test_every_principal_as_super_user_is_that_principal_alone() -> None:
    """`User:*` is a wildcard in rules only."""
    rules = authorizer(super_users=("User:*",))
    assert not rules.decide(ALICE, HOST, AclOperation.READ, TOPIC, "orders").is_allowed


def test_the_default_is_named_as_the_reason() -> None:
    """An audit log tells it from a rule."""
    rules = authorizer("ALLOW User:alice READ TOPIC orders")
    assert NO_RULE == rules.decide(*question("User:alice WRITE TOPIC orders"))
    assert "DefaultDeny" == NO_RULE.reason
    assert "SuperUser" == SUPER_USER.reason
    assert "MatchingAcl" == rules.decide(*question("User:alice READ TOPIC orders")).reason


@pytest.mark.parametrize(
    ("in_rule", "of_client"),
    [
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_may_be_written_in_each_of_its_forms(in_rule: str, of_client: str) -> None:
    """A rule that denies must not miss because Java and Python print addresses differently."""
    rules = authorizer(
        "ALLOW User:alice READ TOPIC orders", f"DENY User:alice READ TOPIC orders @{in_rule}"
    )
    assert not rules.decide(*question(f"User:alice READ TOPIC orders @{of_client}")).is_allowed
    assert rules.decide(*question("User:alice READ TOPIC orders @::2")).is_allowed
    assert rules.decide(*question("User:alice READ TOPIC orders @a:name")).is_allowed
    rules.remove([one for one in rules.bindings() if one.host == in_rule])
    assert rules.decide(*question(f"User:alice READ TOPIC orders @{of_client}")).is_allowed


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        (["ALLOW User:alice WRITE TOPIC orders"], True),
        (["ALLOW User:alice ALL TOPIC orders"], True),
        (["ALLOW User:* WRITE TOPIC ord~ @10.0.0.9"], True),
        (["ALLOW User:alice WRITE TOPIC *"], True),
        (["ALLOW User:bob WRITE TOPIC *"], False),
        (["ALLOW User:alice READ TOPIC *"], False),
        (["ALLOW User:alice WRITE GROUP *"], False),
        (["ALLOW User:alice WRITE TOPIC * @10.0.0.1"], False),
        # A wildcard that denies.
        (["ALLOW User:alice WRITE TOPIC *", "DENY User:alice WRITE TOPIC *"], False),
        (["ALLOW User:alice WRITE TOPIC orders", "DENY User:* ALL TOPIC *"], False),
        (["ALLOW User:alice WRITE TOPIC ord~", "DENY User:alice WRITE TOPIC *"], False),
        (["ALLOW User:alice WRITE TOPIC *", "DENY User:alice READ TOPIC *"], True),
        (["ALLOW User:alice WRITE TOPIC *", "DENY User:alice WRITE TOPIC * @10.0.0.1"], True),
        # No set of names and prefixes denies all that a wildcard allows.
        (["ALLOW User:alice WRITE TOPIC *", "DENY User:alice WRITE TOPIC o~"], True),
        (["ALLOW User:alice WRITE TOPIC *", "DENY User:alice WRITE TOPIC *~"], True),
        (["ALLOW User:alice WRITE TOPIC *", "DENY User:alice WRITE TOPIC orders"], True),
        # Prefixes that dominate a prefix.
        (["ALLOW User:alice WRITE TOPIC ord~", "DENY User:alice WRITE TOPIC ord~"], False),
        (["ALLOW User:alice WRITE TOPIC ord~", "DENY User:* ALL TOPIC o~"], False),
        (["ALLOW User:alice WRITE TOPIC ord~", "DENY User:alice WRITE TOPIC orde~"], True),
        (["ALLOW User:alice WRITE TOPIC ord~", "DENY User:alice WRITE TOPIC ord"], True),
        (["ALLOW User:alice WRITE TOPIC *~", "DENY User:alice WRITE TOPIC *~"], False),
        # Names and prefixes that dominate a name.
        (["ALLOW User:alice WRITE TOPIC orders", "DENY User:alice WRITE TOPIC orders"], False),
        (["ALLOW User:alice WRITE TOPIC orders", "DENY User:alice WRITE TOPIC orders~"], False),
        (["ALLOW User:alice WRITE TOPIC orders", "DENY User:alice WRITE TOPIC o~"], False),
        (["ALLOW User:alice WRITE TOPIC orders", "DENY User:alice WRITE TOPIC order"], True),
        (["ALLOW User:alice WRITE TOPIC orders", "DENY User:alice WRITE TOPIC orders2~"], True),
        # One of several is left.
        (
            [
                "ALLOW User:alice WRITE TOPIC a",
                "ALLOW User:alice WRITE TOPIC b",
                "ALLOW User:alice WRITE TOPIC ac~",
                "DENY User:alice WRITE TOPIC a~",
            ],
            True,
        ),
        (
            [
                "ALLOW User:alice WRITE TOPIC a",
                "ALLOW User:alice WRITE TOPIC b",
                "DENY User:alice WRITE TOPIC a~",
                "DENY User:alice WRITE TOPIC b",
            ],
            False,
        ),
    ],
)
def test_some_resource_of_a_type_is_allowed(rules: list[str], is_allowed: bool) -> None:
    """As in Kafka's authorizeByResourceType, a rule must allow a name that no rule denies."""
    for ordered in (rules, rules[::-1]):
        decided = authorizer(*ordered)
        asked = (ALICE, HOST, AclOperation.WRITE, TOPIC)
        assert is_allowed is decided.decide_for_any(*asked).is_allowed
        assert is_allowed is decided.decide_for_any(*asked).is_allowed


def test_the_rule_that_denies_every_resource_is_named() -> None:
    """The audit log tells it from the default."""
    rules = authorizer("ALLOW User:alice WRITE TOPIC orders", "DENY User:* ALL TOPIC o~")
    decision = rules.decide_for_any(ALICE, HOST, AclOperation.WRITE, TOPIC)
    assert rule("DENY User:* ALL TOPIC o~") == decision.binding
    decision = rules.decide_for_any(ALICE, HOST, AclOperation.WRITE, ResourceType.GROUP)
    assert NO_RULE == decision


def test_implied_operations_count_for_some_resource() -> None:
    """It agrees with the decision about the resource itself."""
    rules = authorizer("ALLOW User:alice READ TOPIC orders")
    assert rules.decide_for_any(ALICE, HOST, AclOperation.DESCRIBE, TOPIC).is_allowed


@pytest.mark.parametrize(
    ("resource", "names"),
    [
        ("TOPIC orders", "READ DESCRIBE"),
        ("TOPIC orders-2", ""),
        ("TOPIC pay-1", "WRITE CREATE DELETE ALTER DESCRIBE ALTER_CONFIGS DESCRIBE_CONFIGS"),
        ("GROUP billing", "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
        ("CLUSTER kafka-cluster", "ALTER_CONFIGS DESCRIBE_CONFIGS"),
        ("TRANSACTIONAL_ID tx", "WRITE DESCRIBE"),
        ("DELEGATION_TOKEN t", ""),
        ("USER User:bob", "DESCRIBE_TOKENS"),
    ],
)
def test_authorized_operations_are_listed(resource: str, names: str) -> None:
    """Among the operations that the type supports, implied ones too."""
    rules = authorizer(
        "ALLOW User:alice READ TOPIC orders",
        "ALLOW User:alice IDEMPOTENT_WRITE TOPIC orders",
        "ALLOW User:alice ALL TOPIC pay~",
        "DENY User:alice READ TOPIC *",
        "ALLOW User:* ALL GROUP billing",
        "ALLOW User:alice ALTER_CONFIGS CLUSTER kafka-cluster",
        "ALLOW User:alice WRITE TRANSACTIONAL_ID tx",
        "ALLOW User:alice DESCRIBE_TOKENS USER User:bob",
    )
    rules.remove([rule("DENY User:alice READ TOPIC *")])
    rules.add([rule("DENY User:alice READ TOPIC pay-~")])
    kind, name = resource.split()
    expected = {AclOperation[one] for one in names.split()}
    assert expected == rules.operations(ALICE, HOST, ResourceType[kind], name)


STAYING = [
    ("ALLOW User:alice READ TOPIC orders", "User:alice READ TOPIC orders"),
    ("DENY User:alice WRITE TOPIC orders", "User:alice WRITE TOPIC orders"),
    ("ALLOW User:bob READ TOPIC orders", "User:bob READ TOPIC orders"),
    ("ALLOW User:alice CREATE TOPIC ord~", "User:alice CREATE TOPIC orders"),
    ("ALLOW User:alice CREATE TOPIC pay~", "User:alice CREATE TOPIC payments"),
    ("ALLOW User:alice DELETE TOPIC *", "User:alice DELETE TOPIC orders"),
]


@pytest.mark.parametrize("removed", range(len(STAYING)))
def test_one_of_many_rules_is_removed(removed: int) -> None:
    """Every other rule stays, also those for the same resource (CVE-2024-27309)."""
    rules = authorizer(*[text for text, _ in STAYING])
    gone = rule(STAYING[removed][0])
    assert [gone] == rules.remove([gone])
    for number, (text, asked) in enumerate(STAYING):
        expected = None if number == removed else rule(text)
        assert expected == rules.decide(*question(asked)).binding
    assert [rule(text) for text, _ in STAYING if rule(text) != gone] == rules.bindings()


def test_a_change_counts_at_once() -> None:
    """No answer of before the change is given after it."""
    rules = authorizer()
    asked = question("User:alice WRITE TOPIC orders")
    allow, deny = rule("ALLOW User:alice WRITE TOPIC o~"), rule("DENY User:* WRITE TOPIC *")
    for change, one, is_allowed in [
        (rules.add, allow, True),
        (rules.add, deny, False),
        (rules.remove, deny, True),
        (rules.remove, allow, False),
    ]:
        change([one])
        assert is_allowed is rules.decide(*asked).is_allowed
        assert is_allowed is rules.decide_for_any(*asked[:4]).is_allowed
        assert is_allowed is rules.decide(*asked).is_allowed


def test_a_rule_is_there_once() -> None:
    """Who adds it again adds nothing; one removal removes it."""
    one = rule("ALLOW User:alice READ TOPIC orders")
    rules = Authorizer([])
    assert [one] == rules.add([one, one])
    assert [] == rules.add([one])
    assert [one] == rules.bindings()
    assert [one] == rules.remove([one, one])
    assert [] == rules.remove([one])
    assert [] == rules.bindings()
    assert not rules.decide(*question("User:alice READ TOPIC orders")).is_allowed


def test_a_refused_rule_keeps_all_rules_of_its_call_out() -> None:
    """A rule that denies is never left out in silence."""
    rules = authorizer()
    good = rule("ALLOW User:alice READ TOPIC orders")
    with pytest.raises(ValueError, match="pattern type MATCH"):
        rules.add([good, good._replace(pattern_type=PatternType.MATCH)])
    assert [] == rules.bindings()


def test_rules_are_listed() -> None:
    """In the order in which they were added."""
    texts = ["ALLOW User:b READ TOPIC b", "DENY User:a READ TOPIC a", "ALLOW User:a READ GROUP a"]
    rules = authorizer(*texts)
    assert list(map(rule, texts)) == rules.bindings()
    assert 3 == len(rules)
    assert rule(texts[1]) in rules
    assert rule("ALLOW User:a READ TOPIC a") not in rules


def test_the_cache_is_bounded() -> None:
    """Clients choose the names that they ask for."""
    rules = authorizer("ALLOW User:alice READ TOPIC t1~", max_cached=3)
    sizes = []
    for number in range(20):
        asked = question(f"User:alice READ TOPIC t{number}")
        is_allowed = number == 1 or number >= 10
        assert is_allowed is rules.decide(*asked).is_allowed
        assert is_allowed is rules.decide(*asked).is_allowed
        rules.decide_for_any(*asked[:4])
        sizes.append(rules.cached_decisions)
    assert 3 == max(sizes)
    assert 2 <= min(sizes)


def test_long_questions_are_not_cached() -> None:
    """The bound in decisions is therefore a bound in bytes."""
    rules = authorizer("ALLOW User:* READ GROUP g~")
    read = (AclOperation.READ, ResourceType.GROUP)
    assert rules.decide(ALICE, HOST, *read, "g" * 1_000).is_allowed
    assert rules.decide(Principal("User", "n" * 1_000), HOST, *read, "g").is_allowed
    assert rules.decide(ALICE, "h" * 1_000, *read, "g").is_allowed
    assert rules.decide_for_any(Principal("User", "n" * 1_000), HOST, *read).is_allowed
    assert 0 == rules.cached_decisions
    assert rules.decide(ALICE, HOST, *read, "g" * 249).is_allowed
    assert 1 == rules.cached_decisions


def test_a_change_empties_the_cache() -> None:
    """A question after the change is decided by the rules of after the change."""
    rules = authorizer()
    for change in (rules.add, rules.remove):
        rules.decide(*question("User:alice READ TOPIC orders"))
        assert 1 == rules.cached_decisions
        change([rule("ALLOW User:bob READ TOPIC orders")])
        assert 0 == rules.cached_decisions


def test_super_users_and_lists_of_operations_leave_the_cache_alone() -> None:
    """Their answers are cheap, or too many."""
    rules = authorizer("ALLOW User:* READ TOPIC *", super_users=("User:admin",))
    rules.decide(*question("User:admin READ TOPIC orders"))
    rules.decide_for_any(*question("User:admin READ TOPIC orders")[:4])
    rules.operations(ALICE, HOST, TOPIC, "orders")
    assert 0 == rules.cached_decisions


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions of Python are called by `work`; a resumed generator counts."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    "template",
    [
        "ALLOW User:alice READ TOPIC orders-{0}",
        "ALLOW User:alice READ TOPIC orders-{0:04}~",
        "ALLOW User:other-{0} READ TOPIC orders",
        "ALLOW User:alice READ TOPIC orders @10.1.0.{0}",
        "ALLOW User:alice READ GROUP orders-{0}~",
    ],
)
def test_a_first_question_does_not_look_at_every_rule(template: str) -> None:
    """Rules are found by type, principal, host and name; a repeated question looks at none."""
    rules = authorizer(*map(template.format, range(1_000)))
    rules.add([rule("ALLOW User:alice READ TOPIC orders")])
    asked = question("User:alice READ TOPIC orders")
    assert 40 > count_calls(lambda: rules.decide(*asked).is_allowed)
    assert 4 > count_calls(lambda: rules.decide(*asked).is_allowed)
