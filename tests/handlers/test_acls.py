"""DescribeAcls, CreateAcls and DeleteAcls, with access rules on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.handlers.context import Session
from kgw.protocol.api_keys import ApiKey
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from kgw.testing.gateway import InProcessGateway
from tests.handlers.access_requests import ADMIN, HOST, Guarded, permit
from tests.handlers.support import call, call_in_turns
from tests.security.acls.writing import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.security.acls.binding import AclBinding

RULES = (
    "ALLOW User:alice READ TOPIC orders",
    "DENY User:bob WRITE TOPIC orders @10.0.0.1",
    "ALLOW User:alice ALL TOPIC ord~",
    "ALLOW User:* DESCRIBE TOPIC *",
    "ALLOW User:alice READ GROUP orders",
    "ALLOW User:alice CREATE CLUSTER kafka-cluster",
)
ANYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A gateway with the rules, whose requests come from the super user."""
    async with Guarded() as running:
        running.session = running.admin
        await permit(running, *RULES)
        yield running
        assert {} == running.gateway.internal_errors


def creation(binding: AclBinding, **changed: Any) -> dict[str, Any]:
    """Return a rule as CreateAcls has it."""
    return {
        "resource_type": binding.resource_type,
        "resource_name": binding.resource_name,
        "resource_pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
        **changed,
    }


def described(response: Any) -> set[tuple[Any, ...]]:
    """Return the rules in a DescribeAcls response."""
    assert (ErrorCode.NONE, "") == (response.error_code, response.error_message)
    return {
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for resource in response.resources
        for one in resource.acls
    }


def matched(result: Any) -> set[tuple[Any, ...]]:
    """Return the rules that a filter of DeleteAcls has found."""
    assert (ErrorCode.NONE, None) == (result.error_code, result.error_message)
    assert {ErrorCode.NONE} >= {one.error_code for one in result.matching_acls}
    return {
        (
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in result.matching_acls
    }


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5]),
    ({"resource_type_filter": ResourceType.GROUP}, [4]),
    ({"resource_name_filter": "orders"}, [0, 1, 4]),
    ({"resource_name_filter": "ord"}, [2]),
    ({"resource_name_filter": "orders", "pattern_type_filter": PatternType.LITERAL}, [0, 1, 4]),
    ({"pattern_type_filter": PatternType.PREFIXED}, [2]),
    ({"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH}, [0, 1, 2, 3, 4]),
    (
        {
            "resource_type_filter": ResourceType.TOPIC,
            "resource_name_filter": "order",
            "pattern_type_filter": PatternType.MATCH,
        },
        [2, 3],
    ),
    ({"resource_name_filter": "*"}, [3]),
    ({"principal_filter": "User:*"}, [3]),
    ({"principal_filter": "User:al"}, []),
    ({"host_filter": "10.0.0.1"}, [1]),
    ({"host_filter": "*", "resource_type_filter": ResourceType.TOPIC}, [0, 2, 3]),
    ({"operation": AclOperation.READ}, [0, 4]),
    ({"operation": AclOperation.ALL}, [2]),
    ({"permission_type": PermissionType.DENY}, [1]),
    ({"resource_type_filter": ResourceType.CLUSTER}, [5]),
    ({"resource_type_filter": ResourceType.USER}, []),
]


@pytest.mark.parametrize(("changed", "found"), FILTERS)
@pytest.mark.parametrize("version", [1, 3])
async def test_rules_are_found(
    guarded: Guarded, version: int, changed: dict[str, Any], found: list[int]
) -> None:
    """Null and ANY find everything; MATCH finds the rules that a resource of the name is under."""
    response = await call(guarded, ApiKey.DESCRIBE_ACLS, version, **{**ANYTHING, **changed})
    assert {tuple(rule(RULES[number])) for number in found} == described(response)


@pytest.mark.parametrize(("changed", "found"), FILTERS)
async def test_rules_are_removed(
    guarded: Guarded, changed: dict[str, Any], found: list[int]
) -> None:
    """Those that the filter finds, and no others; the answer has them."""
    response = await call(guarded, ApiKey.DELETE_ACLS, 3, filters=[{**ANYTHING, **changed}])
    (result,) = response.filter_results
    assert {tuple(rule(RULES[number])) for number in found} == matched(result)
    left = [rule(one) for number, one in enumerate(RULES) if number not in found]
    assert sorted(left) == sorted(guarded.access.bindings())


async def test_version_0_knows_literal_patterns_only(guarded: Guarded) -> None:
    """Prefixed patterns came with version 1; a client that cannot see them does not delete them."""
    old = {name: value for name, value in ANYTHING.items() if name != "pattern_type_filter"}
    response = await call(guarded, ApiKey.DESCRIBE_ACLS, 0, **old)
    literal = {tuple(rule(one)) for one in RULES if "~" not in one}
    assert literal == described(response)
    response = await call(guarded, ApiKey.DELETE_ACLS, 0, filters=[old])
    assert literal == matched(response.filter_results[0])
    assert [rule(RULES[2])] == guarded.access.bindings()
    created = creation(rule(RULES[0]))
    del created["resource_pattern_type"]
    response = await call(guarded, ApiKey.CREATE_ACLS, 0, creations=[created])
    assert [0] == [one.error_code for one in response.results]
    assert rule(RULES[0]) in guarded.access.bindings()


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_rules_are_added(guarded: Guarded, version: int) -> None:
    """They hold at once; a rule that is there already is no error, and is not there twice."""
    new = [rule("ALLOW User:carol WRITE TOPIC new~ @::1"), rule(RULES[0])]
    response = await call(
        guarded, ApiKey.CREATE_ACLS, version, creations=[creation(one) for one in new]
    )
    assert [(0, "")] * 2 == [(one.error_code, one.error_message) for one in response.results]
    assert sorted([*map(rule, RULES), new[0]]) == sorted(guarded.access.bindings())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"resource_type": 0}, "A rule cannot have the resource type UNKNOWN"),
    ({"resource_type": 1}, "A rule cannot have the resource type ANY"),
    ({"resource_type": 99}, "A rule cannot have the resource type UNKNOWN"),
    ({"resource_pattern_type": 1}, "A rule cannot have the pattern type ANY"),
    ({"resource_pattern_type": 2}, "A rule cannot have the pattern type MATCH"),
    ({"operation": 1}, "A rule cannot have the operation ANY"),
    ({"operation": 77}, "A rule cannot have the operation UNKNOWN"),
    ({"permission_type": 1}, "A rule cannot have the permission type ANY"),
    ({"resource_name": ""}, "The resource name is empty"),
    (
        {"resource_type": ResourceType.CLUSTER},
        "The only resource of type CLUSTER is kafka-cluster",
    ),
    ({"principal": "alice"}, "The principal 'alice' is not TYPE:NAME, as in User:alice"),
    ({"principal": "User:"}, "The principal 'User:' is not TYPE:NAME, as in User:alice"),
    ({"resource_name": "n" * 2_001}, "The resource name has more than 2000 characters"),
    ({"principal": "User:" + "n" * 1_996}, "The principal has more than 2000 characters"),
    ({"host": "n" * 2_001}, "The host has more than 2000 characters"),
]


async def test_more_rules_than_allowed_are_refused() -> None:
    """With POLICY_VIOLATION, each by itself; what is there already is no error."""
    async with Guarded(access_rules_max=2) as guarded:
        guarded.session = guarded.admin
        asked = [RULES[0], RULES[0], RULES[1], RULES[2], RULES[0]]
        response = await call(
            guarded, ApiKey.CREATE_ACLS, 3, creations=[creation(rule(one)) for one in asked]
        )
        found = [(one.error_code, one.error_message) for one in response.results]
        reason = "kgw.access.rules.max allows 2 access rules"
        full = (ErrorCode.POLICY_VIOLATION, reason)
        assert [(0, ""), (0, ""), (0, ""), full, (0, "")] == found
        assert {rule(RULES[0]), rule(RULES[1])} == set(guarded.access.bindings())


async def test_a_wrong_rule_is_refused_by_itself(guarded: Guarded) -> None:
    """With INVALID_REQUEST and the reason; the other rules of the request are added."""
    good = [rule(f"ALLOW User:carol READ TOPIC new-{number}") for number in range(2)]
    creations = [
        creation(good[0]),
        *(creation(rule(RULES[0]), **changed) for changed, _ in WRONG),
        creation(good[1]),
    ]
    response = await call(guarded, ApiKey.CREATE_ACLS, 3, creations=creations)
    found = [(one.error_code, one.error_message) for one in response.results]
    refused = [(ErrorCode.INVALID_REQUEST, reason) for _, reason in WRONG]
    assert [(0, ""), *refused, (0, "")] == found
    assert sorted([*map(rule, RULES), *good]) == sorted(guarded.access.bindings())


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type_filter": 0},
        {"pattern_type_filter": 0},
        {"operation": 0},
        {"permission_type": 0},
        {"operation": 99},
    ],
)
async def test_a_wrong_filter_is_refused_by_itself(
    guarded: Guarded, changed: dict[str, Any]
) -> None:
    """It finds nothing, and removes nothing; the other filters of the request are obeyed."""
    response = await call(guarded, ApiKey.DESCRIBE_ACLS, 3, **{**ANYTHING, **changed})
    assert (ErrorCode.INVALID_REQUEST, []) == (response.error_code, response.resources)
    assert "UNKNOWN" in response.error_message
    good = {**ANYTHING, "resource_type_filter": ResourceType.GROUP}
    response = await call(guarded, ApiKey.DELETE_ACLS, 3, filters=[{**ANYTHING, **changed}, good])
    wrong, right = response.filter_results
    assert (ErrorCode.INVALID_REQUEST, []) == (wrong.error_code, wrong.matching_acls)
    assert {tuple(rule(RULES[4]))} == matched(right)
    assert len(RULES) - 1 == len(guarded.access.bindings())


async def test_two_filters_find_the_same_rule(guarded: Guarded) -> None:
    """Both say so, as in Kafka, and it is removed once."""
    filters = [{**ANYTHING, "host_filter": "10.0.0.1"}, {**ANYTHING, "permission_type": 2}]
    response = await call(guarded, ApiKey.DELETE_ACLS, 3, filters=filters)
    expected = {tuple(rule(RULES[1]))}
    assert [expected] * 2 == [matched(one) for one in response.filter_results]


async def test_rules_are_there_after_a_restart() -> None:
    """The answer says that they are durable."""
    backend, config = MemoryBackend(), Config.of(super_users="User:admin")
    admin = Session(client_host=HOST, principal=ADMIN)
    added = [rule("DENY User:alice READ TOPIC orders"), rule("ALLOW User:bob READ TOPIC orders")]
    async with InProcessGateway(config, backend) as gateway:
        gateway.session = admin
        await call(gateway, ApiKey.CREATE_ACLS, 3, creations=[creation(one) for one in added])
        wanted = {**ANYTHING, "principal_filter": "User:bob"}
        await call(gateway, ApiKey.DELETE_ACLS, 3, filters=[wanted])
    async with InProcessGateway(config, backend) as gateway:
        gateway.session = admin
        response = await call(gateway, ApiKey.DESCRIBE_ACLS, 3, **ANYTHING)
        assert {tuple(added[0])} == described(response)


async def test_who_may_change_rules(guarded: Guarded) -> None:
    """ALTER on the cluster; DESCRIBE is enough to read them; a refusal changes nothing."""
    guarded.session = guarded.alice
    before = guarded.access.bindings()

    async def ask() -> list[int]:
        found = await call(guarded, ApiKey.DESCRIBE_ACLS, 3, **ANYTHING)
        wanted = creation(rule("ALLOW User:alice ALL TOPIC *"))
        added = await call(guarded, ApiKey.CREATE_ACLS, 3, creations=[wanted])
        nothing = {**ANYTHING, "host_filter": "nowhere"}
        removed = await call(guarded, ApiKey.DELETE_ACLS, 3, filters=[nothing])
        return [
            found.error_code,
            added.results[0].error_code,
            removed.filter_results[0].error_code,
        ]

    assert [31, 31, 31] == await ask()
    assert before == guarded.access.bindings()
    await permit(guarded, "ALLOW User:alice DESCRIBE CLUSTER kafka-cluster")
    assert [0, 31, 31] == await ask()
    await permit(guarded, "ALLOW User:alice ALTER CLUSTER kafka-cluster")
    assert [0, 0, 0] == await ask()
    assert rule("ALLOW User:alice ALL TOPIC *") in guarded.access.bindings()


async def test_changes_are_in_the_audit_log(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """With the principal and the address of the client, and the rule."""
    with caplog.at_level(logging.INFO, "kgw.audit"):
        created = [creation(rule("DENY User:bob ALL TOPIC x"))]
        await call(guarded, ApiKey.CREATE_ACLS, 3, creations=created)
        removed = [{**ANYTHING, "resource_name_filter": "x"}]
        await call(guarded, ApiKey.DELETE_ACLS, 3, filters=removed)
    fields = {"principal": "User:admin", "host": HOST, "rule": rule("DENY User:bob ALL TOPIC x")}
    assert [("rule added", fields), ("rule removed", fields)] == [
        (one.getMessage(), one.__dict__["kgw_fields"])
        for one in caplog.records
        if one.name == "kgw.audit"
    ]


async def test_many_rules_take_turns(guarded: Guarded) -> None:
    """3,000 rules are added, found and removed in steps."""
    many = [
        creation(rule("ALLOW User:carol READ TOPIC t"), principal=f"User:u{number}")
        for number in range(3_000)
    ]
    response = await call_in_turns(guarded, ApiKey.CREATE_ACLS, 3, creations=many, least=30)
    assert {0} == {one.error_code for one in response.results}
    wanted = {**ANYTHING, "resource_name_filter": "t"}
    response = await call_in_turns(guarded, ApiKey.DESCRIBE_ACLS, 3, **wanted, least=10)
    assert 3_000 == len(described(response))
    response = await call_in_turns(guarded, ApiKey.DELETE_ACLS, 3, filters=[wanted], least=10)
    assert 3_000 == len(matched(response.filter_results[0]))
    assert len(RULES) == len(guarded.access.bindings())
