"""The text form of a principal."""

from __future__ import annotations

import pytest

from kgw.security.principal import Principal, parse_principal


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:CN=kgw:1,O=Kafka", Principal("User", "CN=kgw:1,O=Kafka")),
        ("User:*", Principal("User", "*")),
        ("Group:a b", Principal("Group", "a b")),
    ],
)
def test_a_principal_is_parsed_and_written(text: str, principal: Principal) -> None:
    """A name may contain colons, spaces and a star."""
    assert parse_principal(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_another_text_is_refused(text: str) -> None:
    """A principal has a type and a name."""
    with pytest.raises(ValueError, match="is not TYPE:NAME"):
        parse_principal(text)
