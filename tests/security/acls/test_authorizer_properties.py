"""Any rules, any changes of them, any questions: the authorizer agrees with the definitions."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kgw.security.acls.authorizer import Authorizer
from kgw.security.acls.binding import AclBinding, AclBindingFilter
from kgw.security.acls.terms import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kgw.security.principal import Principal

NAMES = ["a", "ab", "abc", "b", "*", "*a"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
USERS = ["User:a", "User:ab", "User:*", "Group:a"]
OPERATIONS = [
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
]
rules = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(USERS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY]),
)


class Client(NamedTuple):
    """Who asks, and from where."""

    principal: Principal
    host: str


clients = st.builds(
    Client,
    st.builds(Principal, st.sampled_from(["User", "Group"]), st.sampled_from(["a", "ab", "c"])),
    st.sampled_from(HOSTS[1:]),
)
SUPER_USER = Principal("Group", "ab")


def matches(one: AclBinding, client: Client, resource_type: ResourceType, name: str) -> bool:
    """Return whether a rule is about this client and resource, straight from the definition."""
    text = f"{client.principal.principal_type}:{client.principal.name}"
    return (
        one.resource_type == resource_type
        and (one.principal in {text, "User:*"})
        and (one.host in {client.host, "*"})
        and (
            name.startswith(one.resource_name)
            if one.pattern_type == PatternType.PREFIXED
            else one.resource_name in {name, "*"}
        )
    )


def model_allows(
    all_rules: list[AclBinding],
    client: Client,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Decide by a walk over all rules."""
    if client.principal == SUPER_USER:
        return True
    about = [one for one in all_rules if matches(one, client, resource_type, name)]
    if any(
        one.permission == PermissionType.DENY and one.operation in {operation, AclOperation.ALL}
        for one in about
    ):
        return False
    allowing = {operation.name, "ALL"}
    if operation.name == "DESCRIBE":
        allowing |= {"READ", "WRITE", "DELETE", "ALTER"}
    if operation.name == "DESCRIBE_CONFIGS":
        allowing |= {"ALTER_CONFIGS"}
    return any(
        one.permission == PermissionType.ALLOW and one.operation.name in allowing for one in about
    )


def model_finds(acl_filter: AclBindingFilter, one: AclBinding) -> bool:
    """Return whether a filter finds a rule, straight from the definition."""
    if acl_filter.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED}:
        is_type = one.pattern_type == acl_filter.pattern_type
    else:
        is_type = True
    if acl_filter.resource_name is None:
        is_name = True
    elif acl_filter.pattern_type == PatternType.MATCH:
        is_name = (
            acl_filter.resource_name.startswith(one.resource_name)
            if one.pattern_type == PatternType.PREFIXED
            else one.resource_name in {acl_filter.resource_name, "*"}
        )
    else:
        is_name = one.resource_name == acl_filter.resource_name
    return (
        is_type
        and is_name
        and (acl_filter.resource_type == ResourceType.ANY or acl_filter[0] == one[0])
        and (acl_filter.principal is None or acl_filter.principal == one.principal)
        and (acl_filter.host is None or acl_filter.host == one.host)
        and acl_filter.operation in {AclOperation.ANY, one.operation}
        and acl_filter.permission in {PermissionType.ANY, one.permission}
    )


def assert_agrees(authorizer: Authorizer, all_rules: list[AclBinding], client: Client) -> None:
    """Ask everything about topics twice, so that the second answer is from the cache."""
    topic = ResourceType.TOPIC
    witnesses = [*NAMES, "z", *(name + "z" for name in NAMES)]
    for operation in OPERATIONS[1:]:
        by_name = {
            name: model_allows(all_rules, client, operation, topic, name) for name in witnesses
        }
        for name, is_allowed in by_name.items():
            decision = authorizer.decide(*client, operation, topic, name)
            assert is_allowed == decision.is_allowed
            assert is_allowed == authorizer.decide(*client, operation, topic, name).is_allowed
            if decision.binding is not None:
                assert decision.binding in all_rules
                assert matches(decision.binding, client, topic, name)
                assert is_allowed == (decision.binding.permission == PermissionType.ALLOW)
        any_name = any(by_name.values())
        assert any_name == authorizer.decide_for_any(*client, operation, topic).is_allowed
        assert any_name == authorizer.decide_for_any(*client, operation, topic).is_allowed
    for name in witnesses:
        expected = {
            one
            for one in SUPPORTED_OPERATIONS[topic]
            if model_allows(all_rules, client, one, topic, name)
        }
        assert expected == authorizer.operations(*client, topic, name)


@given(st.lists(rules, max_size=6), clients)
def test_decisions_follow_from_the_definitions(all_rules: list[AclBinding], client: Client) -> None:
    """Names beyond the rules stand for all others: the letter z is in none."""
    authorizer = Authorizer([SUPER_USER])
    authorizer.add(all_rules)
    assert_agrees(authorizer, all_rules, client)


@given(st.lists(rules, min_size=1, max_size=6, unique=True), st.data(), clients)
def test_after_a_removal_the_other_rules_stay(
    all_rules: list[AclBinding], data: st.DataObject, client: Client
) -> None:
    """Answers, also those from the cache, are those of an authorizer that never had the rule."""
    authorizer = Authorizer([SUPER_USER])
    authorizer.add(all_rules)
    assert_agrees(authorizer, all_rules, client)
    removed = data.draw(st.sampled_from(all_rules))
    assert [removed] == authorizer.remove([removed])
    left = [one for one in all_rules if one != removed]
    assert left == authorizer.bindings()
    assert_agrees(authorizer, left, client)


@given(st.lists(st.tuples(st.booleans(), rules), max_size=12), clients, st.integers(1, 5))
def test_any_changes_leave_the_rules_that_are_listed(
    steps: list[tuple[bool, AclBinding]], client: Client, max_cached: int
) -> None:
    """Rules come and go one by one, with questions between, and the cache is small."""
    authorizer = Authorizer([SUPER_USER], max_cached=max_cached)
    listed: dict[AclBinding, None] = {}
    asked = (*client, AclOperation.READ, ResourceType.TOPIC)
    for is_added, one in steps:
        if is_added:
            assert ([] if one in listed else [one]) == authorizer.add([one])
            listed[one] = None
        else:
            assert ([one] if one in listed else []) == authorizer.remove([one])
            listed.pop(one, None)
        for name in NAMES:
            expected = model_allows(list(listed), client, *asked[2:], name)
            assert expected == authorizer.decide(*asked, name).is_allowed
            assert authorizer.cached_decisions <= max_cached
    assert list(listed) == authorizer.bindings()
    assert_agrees(authorizer, list(listed), client)


filters = st.builds(
    AclBindingFilter,
    st.sampled_from([ResourceType.ANY, ResourceType.TOPIC]),
    st.none() | st.sampled_from([*NAMES, "abcd"]),
    st.sampled_from(list(PatternType)[1:]),
    st.none() | st.sampled_from(USERS),
    st.none() | st.sampled_from(HOSTS),
    st.sampled_from([AclOperation.ANY, AclOperation.ALL, AclOperation.READ]),
    st.sampled_from(list(PermissionType)[1:]),
)


@given(st.lists(rules, max_size=8, unique=True), filters)
def test_filters_find_what_the_definitions_say(
    all_rules: list[AclBinding], acl_filter: AclBindingFilter
) -> None:
    """Every other rule is left out."""
    expected = [one for one in all_rules if model_finds(acl_filter, one)]
    assert expected == [one for one in all_rules if acl_filter.matches(one)]
