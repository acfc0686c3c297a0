"""The oracle for access rules agrees with Kafka's own authorizer and with the documentation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.security.oracle.api_table import ERROR_CODES, TABLE, markdown
from tests.security.oracle.cases import Form, Kind, generate
from tests.security.oracle.compare import differences, digest
from tests.security.oracle.oracle import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AccessRules,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    host_text,
)

HERE = Path(__file__).parent
HOST = "10.0.0.1"


def rule(
    name: str,
    operation: Operation = Operation.READ,
    *,
    prefixed: bool = False,
    deny: bool = False,
    principal: str = "User:alice",
    host: str = "*",
) -> Rule:
    """Return a rule about topics."""
    return Rule(
        ResourceType.TOPIC,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        Permission.DENY if deny else Permission.ALLOW,
    )


def may(
    rules: list[Rule],
    name: str,
    operation: Operation = Operation.READ,
    principal: str = "User:alice",
) -> bool:
    """Return whether a principal may do an operation on a topic."""
    return AccessRules(tuple(rules)).allowed(principal, HOST, operation, ResourceType.TOPIC, name)


@pytest.mark.slow
def test_stored_verdicts() -> None:
    """5,000 answers of Kafka 4.4's StandardAuthorizer differ only by its known defect."""
    saved = (HERE / "verdicts.txt").read_text(encoding="utf-8").split()
    cases = list(generate(1, rule_sets=200, questions=25))

    different, known = differences(cases, [int(answer) for answer in saved[1:]])

    assert saved[0] == digest(cases)
    assert [] == different
    assert known < len(cases) / 100


@pytest.mark.slow
def test_cases_cover_every_kind_both_ways() -> None:
    """Each kind of rules and each form of question has allowed and denied cases, but for none."""
    seen = Counter((case.rule_set.kind, case.form, bool(case.expected)) for case in generate(1))

    assert {
        (kind, form, answer)
        for kind in Kind
        for form in Form
        for answer in (True, False)
        if kind != Kind.NONE
    } <= set(seen)


def test_deny_wins_and_default_is_deny() -> None:
    """Nothing is allowed without a rule, and a DENY wins over every ALLOW."""
    assert not may([], "a")
    assert may([rule("a")], "a")
    assert not may([rule("a"), rule("a", prefixed=True, deny=True)], "a")
    assert not may([rule("a"), rule("*", deny=True, principal="User:*")], "a")


def test_implied_operations() -> None:
    """READ implies DESCRIBE if it is allowed; a denied READ leaves DESCRIBE alone."""
    assert may([rule("a")], "a", Operation.DESCRIBE)
    assert not may([rule("a", Operation.CREATE)], "a", Operation.DESCRIBE)
    assert not may([rule("a", Operation.ALTER_CONFIGS)], "a", Operation.DESCRIBE)
    assert may([rule("a", Operation.ALTER_CONFIGS)], "a", Operation.DESCRIBE_CONFIGS)
    assert may([rule("a", Operation.DESCRIBE), rule("a", deny=True)], "a", Operation.DESCRIBE)


def test_wildcards() -> None:
    """`*` is every name if it is literal, and a letter if it is a prefix."""
    assert may([rule("*")], "a")
    assert not may([rule("*", prefixed=True)], "a")
    assert may([rule("*", prefixed=True)], "*a")
    assert not may([rule("a*")], "aa")
    assert may([rule("a", principal="User:*")], "a", principal="Group:x")
    assert not may([rule("a", principal="Group:*")], "a", principal="Group:x")


def test_hosts() -> None:
    """A rule's host is compared with the address as Java writes it."""
    assert "0:0:0:0:0:0:0:1" == host_text("::1")
    assert "10.0.0.1" == host_text("::ffff:10.0.0.1")
    assert "2001:db8:0:0:0:0:0:a" == host_text("2001:0DB8::A")
    assert may([rule("a", host=HOST)], "a")
    assert not may([rule("a", host="10.0.0.11")], "a")


def test_table() -> None:
    """The table has each API once, its errors have codes, and its page is fresh."""
    checks = [check for api in TABLE for check in api.checks]
    odd = {
        (right.operation, right.resource_type)
        for check in checks
        for right in check.rights
        if right.operation not in SUPPORTED_OPERATIONS[right.resource_type]
    }

    assert len(TABLE) == len({api.key for api in TABLE}) == len({api.name for api in TABLE})
    assert all(check.error in ERROR_CODES for check in checks)
    assert {(Operation.DELETE, ResourceType.CLUSTER)} == odd
    assert all(
        (right.resource_type == ResourceType.CLUSTER) == (right.name == CLUSTER_NAME)
        for check in checks
        for right in check.rights
    )
    assert markdown() == (HERE / "api_table.md").read_text(encoding="utf-8")
