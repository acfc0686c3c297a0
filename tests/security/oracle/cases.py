"""Cases for an authorizer: questions about small sets of rules whose names collide.

`generate` makes the same cases for the same seed. `python -m tests.security.oracle.cases` writes
them as the text that StandardAuthorizerVerdicts.java reads.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from tests.security.oracle.oracle import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AccessRules,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    operation_bits,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("a", "aa", "aaa", "ab", "aba", "b", "ba", "A", "*", "a*", "hardcode")
PATTERNS = ("a", "aa", "aaa", "ab", "b", "A", "*", "a*", "h", "hard", "hardcode", "hardcoded")
# No client is called `User:*`: the StandardAuthorizer of Kafka 4.4 fails on such a client.
PRINCIPALS = ("User:alice", "User:bob", "User:al", "User:CN=x,O=y:z", "Group:alice")
RULE_PRINCIPALS = (*PRINCIPALS, "User:alice", "User:alice", "User:*", "User:*", "Group:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.11", "::1", "::ffff:10.0.0.1", "2001:db8::A")
RULE_HOSTS = (
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.0",
    "::1",
    "0:0:0:0:0:0:0:1",
    "2001:db8:0:0:0:0:0:a",
    "2001:db8::a",
)
TYPES = (
    ResourceType.TOPIC,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
    ResourceType.USER,
    ResourceType.DELEGATION_TOKEN,
)


class Kind(StrEnum):
    """What a set of rules is meant to show."""

    NONE = "none"
    ALLOW = "allow"
    DENY = "deny"
    PREFIXED = "prefixed"
    WILDCARD = "wildcard"
    HOST = "host"
    SUPER = "super"
    REMOVED = "removed"
    EVERYONE = "everyone"
    MIXED = "mixed"


class Form(StrEnum):
    """Which function of an authorizer a question is for."""

    ALLOWED = "allowed"
    ANY = "any"
    OPERATIONS = "operations"


@dataclass(frozen=True)
class RuleSet:
    """Rules that are added, those of them that are removed again, and the settings.

    `snapshot` says that the rules which stay are loaded at once, not one after another.
    """

    kind: Kind
    added: tuple[Rule, ...] = ()
    removed: tuple[int, ...] = ()
    super_users: tuple[str, ...] = ()
    allow_if_no_rule: bool = False
    snapshot: bool = False

    def access_rules(self) -> AccessRules:
        """Return the oracle for the rules that stay."""
        stay = tuple(
            rule for number, rule in enumerate(self.added) if number not in set(self.removed)
        )
        return AccessRules(stay, frozenset(self.super_users), self.allow_if_no_rule)


@dataclass(frozen=True)
class Case:
    """One question about a set of rules, and the answer of the oracle.

    `expected` is a bool, or for `Form.OPERATIONS` the 32-bit field of the allowed operations.
    """

    rule_set: RuleSet = field(repr=False)
    form: Form
    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    resource_name: str
    expected: int

    def answer(self, oracle: AccessRules) -> int:
        """Return what an oracle answers."""
        match self.form:
            case Form.ALLOWED:
                return oracle.allowed(
                    self.principal,
                    self.host,
                    self.operation,
                    self.resource_type,
                    self.resource_name,
                )
            case Form.ANY:
                return oracle.allowed_for_any(
                    self.principal, self.host, self.operation, self.resource_type
                )
            case Form.OPERATIONS:
                return operation_bits(
                    oracle.operations(
                        self.principal, self.host, self.resource_type, self.resource_name
                    )
                )


def generate(seed: int, rule_sets: int = 400, questions: int = 30) -> Iterator[Case]:
    """Yield `questions` cases for each of `rule_sets` sets of rules."""
    chance = random.Random(seed)
    for number in range(rule_sets):
        rule_set = make_rule_set(chance, list(Kind)[number % len(Kind)])
        oracle = rule_set.access_rules()
        for _ in range(questions):
            yield make_case(chance, rule_set, oracle)


def make_rule_set(chance: random.Random, kind: Kind) -> RuleSet:
    """Return a set of rules of the kind."""
    count = 0 if kind == Kind.NONE else chance.choice((1, 2, 3, 5, 8, 20))
    focus = chance.choice(TYPES)
    rules = dict.fromkeys(make_rule(chance, kind, focus) for _ in range(count))
    removed: tuple[int, ...] = ()
    if kind == Kind.REMOVED:
        removed = tuple(sorted(chance.sample(range(len(rules)), chance.randint(1, len(rules)))))
    super_users: tuple[str, ...] = ()
    if kind == Kind.SUPER or chance.random() < 0.05:
        super_users = tuple(chance.sample((*PRINCIPALS, "User:*"), chance.randint(1, 2)))
    return RuleSet(
        kind,
        tuple(rules),
        removed,
        super_users,
        allow_if_no_rule=kind == Kind.EVERYONE or chance.random() < 0.05,
        snapshot=chance.random() < 0.5,
    )


def make_rule(chance: random.Random, kind: Kind, focus: ResourceType) -> Rule:
    """Return a rule as it occurs in sets of the kind, mostly about the resource type `focus`."""
    resource_type = focus if chance.random() < 0.8 else chance.choice(TYPES)
    prefixed = chance.random() < {Kind.PREFIXED: 0.8, Kind.ALLOW: 0.0}.get(kind, 0.4)
    if resource_type == ResourceType.CLUSTER:
        name = CLUSTER_NAME
        prefixed = False
    elif kind == Kind.WILDCARD and chance.random() < 0.5:
        name = "*"
        prefixed = chance.random() < 0.2
    elif resource_type == ResourceType.USER:
        name = chance.choice((*PRINCIPALS, "User:", "User", "*"))
    else:
        name = chance.choice(PATTERNS)
    deny = {Kind.ALLOW: 0.0, Kind.DENY: 0.6, Kind.MIXED: 0.4, Kind.WILDCARD: 0.3}.get(kind, 0.25)
    any_host = chance.random() < (0.2 if kind == Kind.HOST else 0.8)
    operations = [*sorted_operations(resource_type), Operation.ALL, Operation.ALL]
    return Rule(
        resource_type,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        chance.choice(RULE_PRINCIPALS),
        "*" if any_host else chance.choice(RULE_HOSTS),
        chance.choice(list(Operation) if chance.random() < 0.1 else operations),
        Permission.DENY if chance.random() < deny else Permission.ALLOW,
    )


def make_case(chance: random.Random, rule_set: RuleSet, oracle: AccessRules) -> Case:
    """Return a question that at least one rule of the set may be about, and its answer."""
    near = chance.choice(rule_set.added) if rule_set.added and chance.random() < 0.8 else None
    resource_type = near.resource_type if near else chance.choice(TYPES)
    if resource_type == ResourceType.CLUSTER:
        name = CLUSTER_NAME
    elif resource_type == ResourceType.USER:
        name = chance.choice(PRINCIPALS)
    elif near and chance.random() < 0.5:
        name = near.resource_name + chance.choice(("", "", "a", "*"))
    else:
        name = chance.choice((*NAMES, ""))
    principal = chance.choice(PRINCIPALS)
    if near and near.principal in PRINCIPALS and chance.random() < 0.5:
        principal = near.principal
    host = chance.choice(HOSTS) if chance.random() < 0.7 else HOSTS[0]
    operation: Operation
    if near and near.operation != Operation.ALL and chance.random() < 0.4:
        operation = near.operation
    else:
        operation = chance.choice(sorted_operations(resource_type))
    form = chance.choice((Form.ALLOWED, Form.ALLOWED, Form.ALLOWED, Form.ANY, Form.OPERATIONS))
    case = Case(rule_set, form, principal, host, operation, resource_type, name, expected=0)
    return replace(case, expected=int(case.answer(oracle)))


def sorted_operations(resource_type: ResourceType) -> list[Operation]:
    """Return the operations of a type of resource, in a fixed order."""
    return sorted(SUPPORTED_OPERATIONS[resource_type])


def write(cases: list[Case], file: TextIO) -> None:
    """Write cases as lines of fields that tabs separate.

    `S` begins a set of rules (allow_if_no_rule, snapshot, super users), `A` adds a rule, `R`
    removes the rule of that number, `Q` asks.
    """
    rule_set: RuleSet | None = None
    for case in cases:
        if case.rule_set is not rule_set:
            rule_set = case.rule_set
            write_line(
                file,
                "S",
                str(rule_set.allow_if_no_rule).lower(),
                str(rule_set.snapshot).lower(),
                ";".join(rule_set.super_users),
            )
            for rule in rule_set.added:
                write_line(
                    file,
                    "A",
                    rule.resource_type,
                    rule.resource_name,
                    rule.pattern_type,
                    rule.principal,
                    rule.host,
                    rule.operation,
                    rule.permission,
                )
            for number in rule_set.removed:
                write_line(file, "R", str(number))
        write_line(
            file,
            "Q",
            case.form,
            case.principal,
            case.host,
            case.operation,
            case.resource_type,
            case.resource_name,
        )


def write_line(file: TextIO, *fields: str) -> None:
    """Write one line of fields."""
    file.write("\t".join(fields) + "\n")


def main() -> None:
    """Write the cases of a seed to the standard output."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule-sets", type=int, default=400)
    parser.add_argument("--questions", type=int, default=30)
    arguments = parser.parse_args()
    write(list(generate(arguments.seed, arguments.rule_sets, arguments.questions)), sys.stdout)


if __name__ == "__main__":
    main()
