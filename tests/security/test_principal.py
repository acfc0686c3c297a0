"""The text form of a principal."""

from __future__ import annotations

import pytest

from kgw.security.principal import (
    ADMIN_TOKEN,
    ANONYMOUS,
    USER_TYPE,
    Principal,
    parse_principal,
)


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


def test_the_token_is_no_user() -> None:
    """No login gives the principal of the admin side's token, whatever a user is called."""
    assert USER_TYPE != ADMIN_TOKEN.principal_type
    assert ANONYMOUS != ADMIN_TOKEN
