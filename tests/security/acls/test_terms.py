"""The codes and names of Kafka's words, and the tables about operations."""

from __future__ import annotations

import pytest

from kgw.security.acls.terms import (
    IMPLIED_BY,
    SUPPORTED_OPERATIONS,
    AclOperation,
    CodedTerm,
    PatternType,
    PermissionType,
    ResourceType,
)


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        (
            ResourceType,
            "UNKNOWN ANY TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER",
        ),
        (PatternType, "UNKNOWN ANY MATCH LITERAL PREFIXED"),
        (PermissionType, "UNKNOWN ANY DENY ALLOW"),
        (
            AclOperation,
            (
                "UNKNOWN ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION"
                " DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE CREATE_TOKENS DESCRIBE_TOKENS"
                " TWO_PHASE_COMMIT"
            ),
        ),
    ],
)
def test_codes_are_those_of_kafka(terms: type[CodedTerm], names: str) -> None:
    """The code of a word is its place in Kafka's list."""
    assert list(enumerate(names.split())) == [(term.value, term.name) for term in terms]


@pytest.mark.parametrize("terms", [ResourceType, PatternType, PermissionType, AclOperation])
@pytest.mark.parametrize("code", [-128, -1, 16, 127])
def test_a_code_without_a_word_is_unknown(terms: type[CodedTerm], code: int) -> None:
    """A newer client may send a code that this broker does not know."""
    assert terms(0) is terms.from_code(code)
    assert terms(2) is terms.from_code(2)


@pytest.mark.parametrize(
    "text", ["DescribeConfigs", "DESCRIBE_CONFIGS", "describeconfigs", "describe_configs"]
)
def test_a_word_is_read_as_kafka_tools_read_it(text: str) -> None:
    """Case and underscores do not matter."""
    assert AclOperation.DESCRIBE_CONFIGS is AclOperation.parse(text)


@pytest.mark.parametrize("terms", [ResourceType, PatternType, PermissionType, AclOperation])
def test_a_printed_word_can_be_read(terms: type[CodedTerm]) -> None:
    """Each word except UNKNOWN has a name for tools."""
    for term in list(terms)[1:]:
        assert term is terms.parse(term.tool_name)
        assert term is terms.parse(term.name)
    assert "TransactionalId" == ResourceType.TRANSACTIONAL_ID.tool_name


@pytest.mark.parametrize("text", ["", "Unknown", "Alow", "Allow "])
def test_another_word_is_refused_with_the_known_ones(text: str) -> None:
    """A mistyped rule must not become another rule."""
    with pytest.raises(ValueError, match="is none of Any, Deny, Allow"):
        PermissionType.parse(text)


def test_each_resource_type_has_its_operations() -> None:
    """The table of Kafka's AclEntry; ALL is left out, and belongs to each."""
    names = {
        kind.name: " ".join(one.name for one in sorted(operations))
        for kind, operations in SUPPORTED_OPERATIONS.items()
    }
    assert {
        "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        "CLUSTER": (
            "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE"
        ),
        "TRANSACTIONAL_ID": "WRITE DESCRIBE TWO_PHASE_COMMIT",
        "DELEGATION_TOKEN": "DESCRIBE",
        "USER": "CREATE_TOKENS DESCRIBE_TOKENS",
    } == names


def test_operations_imply_others() -> None:
    """The table of Kafka's StandardAuthorizer."""
    names = {
        implied.name: " ".join(one.name for one in sorted(operations))
        for implied, operations in IMPLIED_BY.items()
    }
    assert {"DESCRIBE": "READ WRITE DELETE ALTER", "DESCRIBE_CONFIGS": "ALTER_CONFIGS"} == names
