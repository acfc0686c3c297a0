"""One access rule: the refused ones, the stored form, and the filters."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.security.acls.binding import AclBinding, AclBindingFilter, check, check_filter, decode
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType

RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    PermissionType.ALLOW,
)
STORED = (
    b'{"type":"TOPIC","name":"orders","pattern":"LITERAL","principal":"User:alice","host":"*",'
    b'"operation":"READ","permission":"ALLOW"}'
)
rules = st.builds(
    AclBinding,
    st.sampled_from(list(ResourceType)[2:]).filter(lambda one: one is not ResourceType.CLUSTER),
    st.text(min_size=1),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.builds("{}:{}".format, st.sampled_from(["User", "Group"]), st.text(min_size=1)),
    st.text(),
    st.sampled_from(list(AclOperation)[2:]),
    st.sampled_from([PermissionType.DENY, PermissionType.ALLOW]),
)


@pytest.mark.parametrize(
    "rule",
    [
        RULE,
        RULE._replace(pattern_type=PatternType.PREFIXED),
        RULE._replace(resource_name="*"),
        RULE._replace(permission=PermissionType.DENY, operation=AclOperation.ALL),
        RULE._replace(principal="User:CN=kgw:1,O=Kafka", host="10.0.0.1"),
        RULE._replace(resource_type=ResourceType.CLUSTER, resource_name="kafka-cluster"),
        # Kafka's tools refuse this operation on a topic, Kafka's broker stores the rule.
        RULE._replace(operation=AclOperation.IDEMPOTENT_WRITE),
        RULE._replace(host="not an address"),
        RULE._replace(host=""),
        RULE._replace(resource_name="n" * 2_000, principal="User:" + "n" * 1_995, host="n" * 2_000),
    ],
)
def test_a_rule_is_accepted_as_kafka_accepts_it(rule: AclBinding) -> None:
    """CreateAcls stores it."""
    check(rule)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (RULE._replace(resource_type=ResourceType.UNKNOWN), "have the resource type UNKNOWN"),
        (RULE._replace(resource_type=ResourceType.ANY), "have the resource type ANY"),
        (RULE._replace(pattern_type=PatternType.UNKNOWN), "have the pattern type UNKNOWN"),
        (RULE._replace(pattern_type=PatternType.ANY), "have the pattern type ANY"),
        (RULE._replace(pattern_type=PatternType.MATCH), "have the pattern type MATCH"),
        (RULE._replace(operation=AclOperation.UNKNOWN), "have the operation UNKNOWN"),
        (RULE._replace(operation=AclOperation.ANY), "have the operation ANY"),
        (RULE._replace(permission=PermissionType.UNKNOWN), "have the permission type UNKNOWN"),
        (RULE._replace(permission=PermissionType.ANY), "have the permission type ANY"),
        (RULE._replace(resource_name=""), "The resource name is empty"),
        (
            RULE._replace(resource_type=ResourceType.CLUSTER),
            "The only resource of type CLUSTER is kafka-cluster",
        ),
        (
            RULE._replace(resource_type=ResourceType.CLUSTER, resource_name="*"),
            "The only resource of type CLUSTER is kafka-cluster",
        ),
        (RULE._replace(principal="alice"), "The principal 'alice' is not TYPE:NAME"),
        (RULE._replace(principal="User:"), "The principal 'User:' is not TYPE:NAME"),
        (RULE._replace(principal=":alice"), "The principal ':alice' is not TYPE:NAME"),
        (RULE._replace(principal=""), "The principal '' is not TYPE:NAME"),
        (RULE._replace(resource_name="n" * 2_001), "The resource name has more than 2000 char"),
        (RULE._replace(principal="User:" + "n" * 1_996), "The principal has more than 2000 char"),
        (RULE._replace(host="n" * 2_001), "The host has more than 2000 characters"),
    ],
)
def test_a_rule_is_refused_with_its_reason(rule: AclBinding, text: str) -> None:
    """CreateAcls answers INVALID_REQUEST, and stored rules are no exception."""
    with pytest.raises(ValueError, match=text):
        check(rule)
    with pytest.raises(ValueError, match=text):
        decode(rule.encode())


def test_a_rule_is_printed_as_kafka_prints_it() -> None:
    """The text of Java's AclBinding."""
    assert (
        "(pattern=ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL), "
        "entry=(principal=User:alice, host=*, operation=READ, permissionType=ALLOW))"
    ) == str(RULE)


def test_a_rule_as_it_is_stored() -> None:
    """Rules of earlier releases must be read for ever: this is one."""
    assert STORED == RULE.encode()
    assert RULE == decode(STORED)


@given(rules)
def test_a_rule_comes_back_as_it_was(rule: AclBinding) -> None:
    """Whatever the names contain."""
    assert rule == decode(rule.encode())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xff",
        b"[" * 100_000,
        STORED[:-1],
        STORED + b"}",
        STORED.replace(b'"READ"', b'"REED"'),
        STORED.replace(b'"READ"', b"3"),
        STORED.replace(b'"TOPIC"', b'["TOPIC"]'),
        STORED.replace(b'"orders"', b"null"),
        STORED.replace(b',"host":"*"', b""),
        STORED.replace(b"}", b',"until":"2027"}'),
    ],
)
def test_damage_is_a_value_error(value: bytes) -> None:
    """A damaged rule is never read as another one; nor is a rule with an unknown field."""
    with pytest.raises(ValueError):  # noqa: PT011  the texts of the JSON module are not ours
        decode(value)


@pytest.mark.parametrize("field", ["type", "name", "pattern", "principal", "host", "operation"])
def test_a_missing_field_is_a_value_error(field: str) -> None:
    """No field has a default."""
    fields = json.loads(STORED)
    del fields[field]
    with pytest.raises(ValueError, match="not the fields of an access rule"):
        decode(json.dumps(fields).encode())


LITERAL = RULE
WILDCARD = RULE._replace(resource_name="*")
PREFIX = RULE._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
EXACT_PREFIX = RULE._replace(pattern_type=PatternType.PREFIXED)
LONGER = RULE._replace(resource_name="orders2", pattern_type=PatternType.PREFIXED)
SHORT_LITERAL = RULE._replace(resource_name="ord")


@pytest.mark.parametrize(
    ("acl_filter", "found"),
    [
        (
            AclBindingFilter(),
            [LITERAL, WILDCARD, PREFIX, EXACT_PREFIX, LONGER, SHORT_LITERAL],
        ),
        (AclBindingFilter(pattern_type=PatternType.LITERAL), [LITERAL, WILDCARD, SHORT_LITERAL]),
        (AclBindingFilter(pattern_type=PatternType.PREFIXED), [PREFIX, EXACT_PREFIX, LONGER]),
        (
            AclBindingFilter(pattern_type=PatternType.MATCH),
            [LITERAL, WILDCARD, PREFIX, EXACT_PREFIX, LONGER, SHORT_LITERAL],
        ),
        (AclBindingFilter(resource_name="orders"), [LITERAL, EXACT_PREFIX]),
        (
            AclBindingFilter(resource_name="orders", pattern_type=PatternType.LITERAL),
            [LITERAL],
        ),
        (
            AclBindingFilter(resource_name="orders", pattern_type=PatternType.PREFIXED),
            [EXACT_PREFIX],
        ),
        (
            AclBindingFilter(resource_name="orders", pattern_type=PatternType.MATCH),
            [LITERAL, WILDCARD, PREFIX, EXACT_PREFIX],
        ),
        (AclBindingFilter(resource_name="*", pattern_type=PatternType.MATCH), [WILDCARD]),
        (AclBindingFilter(resource_name="*"), [WILDCARD]),
        (AclBindingFilter(resource_name="other", pattern_type=PatternType.MATCH), [WILDCARD]),
        (AclBindingFilter(resource_name="other"), []),
    ],
)
def test_a_filter_finds_rules_by_pattern(
    acl_filter: AclBindingFilter, found: list[AclBinding]
) -> None:
    """MATCH finds the patterns that match a name, the other types the pattern's own text."""
    everything = [LITERAL, WILDCARD, PREFIX, EXACT_PREFIX, LONGER, SHORT_LITERAL]
    assert found == [one for one in everything if acl_filter.matches(one)]


@pytest.mark.parametrize(
    ("acl_filter", "is_found"),
    [
        (AclBindingFilter(resource_type=ResourceType.TOPIC), True),
        (AclBindingFilter(resource_type=ResourceType.GROUP), False),
        (AclBindingFilter(resource_type=ResourceType.UNKNOWN), False),
        (AclBindingFilter(principal="User:alice"), True),
        (AclBindingFilter(principal="User:bob"), False),
        (AclBindingFilter(principal="User:*"), False),
        (AclBindingFilter(principal=""), False),
        (AclBindingFilter(host="*"), True),
        (AclBindingFilter(host="10.0.0.1"), False),
        (AclBindingFilter(operation=AclOperation.READ), True),
        (AclBindingFilter(operation=AclOperation.DESCRIBE), False),
        (AclBindingFilter(operation=AclOperation.ALL), False),
        (AclBindingFilter(permission=PermissionType.ALLOW), True),
        (AclBindingFilter(permission=PermissionType.DENY), False),
    ],
)
def test_a_filter_compares_the_other_fields(acl_filter: AclBindingFilter, is_found: bool) -> None:
    """Wildcards and ALL in a filter are texts and words like others."""
    assert is_found is acl_filter.matches(RULE)


def test_a_filter_with_an_unknown_word_is_refused() -> None:
    """DeleteAcls must not delete rules by a filter that this broker understands in part."""
    check_filter(AclBindingFilter())
    for acl_filter, text in [
        (AclBindingFilter(resource_type=ResourceType.UNKNOWN), "resource type"),
        (AclBindingFilter(pattern_type=PatternType.UNKNOWN), "pattern type"),
        (AclBindingFilter(operation=AclOperation.UNKNOWN), "operation"),
        (AclBindingFilter(permission=PermissionType.UNKNOWN), "permission type"),
    ]:
        with pytest.raises(ValueError, match=f"the {text} UNKNOWN"):
            check_filter(acl_filter)
