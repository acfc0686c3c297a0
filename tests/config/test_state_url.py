from __future__ import annotations

import pytest

from kgw.config.state_url import (
    DISABLE,
    MYSQL,
    POSTGRESQL,
    REQUIRE,
    VERIFY_FULL,
    StateUrl,
    StateUrlError,
    parse_state_url,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "postgresql://kgw@db.example/state",
            StateUrl(POSTGRESQL, "kgw", "db.example", 5432, "state"),
        ),
        (
            "postgres://k%40w@127.0.0.1:6000/st%2Fate?schema=one",
            StateUrl(POSTGRESQL, "k@w", "127.0.0.1", 6000, "st/ate", "one", tls=DISABLE),
        ),
        (
            "mariadb://kgw@[::1]/state?sslmode=require&sslrootcert=/ca.pem&sslcert=/c&sslkey=/k",
            StateUrl(MYSQL, "kgw", "::1", 3306, "state", "kgw", "", REQUIRE, "/ca.pem", "/c", "/k"),
        ),
        (
            "mysql://kgw@/state?socket=/run/mysqld.sock",
            StateUrl(MYSQL, "kgw", "", 3306, "state", socket="/run/mysqld.sock", tls=DISABLE),
        ),
    ],
)
def test_an_address_is_taken_apart(text: str, expected: StateUrl) -> None:
    """Encrypted and verified by default, but for this machine."""
    assert expected == parse_state_url(text)


def test_addresses_elsewhere_are_verified_by_default() -> None:
    """An encryption that does not know to whom would protect from nobody."""
    assert VERIFY_FULL == parse_state_url("mysql://kgw@10.0.0.1/state").tls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "begins with postgresql://"),
        ("sqlite:///file", "begins with postgresql://"),
        ("postgresql://db/state", "needs a user"),
        ("postgresql://kgw@db", "needs a database"),
        ("postgresql://kgw@/state", "needs a host"),
        ("mysql://kgw@db/state?socket=/s", "not both"),
        ("mysql://kgw@db/state?schema=x", "no schemas"),
        ("postgresql://kgw@db/state?schema=", "1 to 63 bytes"),
        ("postgresql://kgw@db/state?sslmode=prefer", "sslmode is one of"),
        ("postgresql://kgw@db/state?sslmod=require", "unknown option sslmod"),
        ("postgresql://kgw@db/state?require", "not NAME=VALUE"),
        ("postgresql://kgw@db:65536/state", "not an address"),
        ("postgresql://kgw@[::1/state", "not an address"),
    ],
)
def test_what_cannot_be_meant_is_an_error(text: str, expected: str) -> None:
    """Each says what is wrong."""
    with pytest.raises(StateUrlError, match=expected):
        parse_state_url(text)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_password_has_no_place_in_an_address(scheme: str) -> None:
    """Nor is it repeated in the error that says so."""
    with pytest.raises(StateUrlError, match="KGW_STATE_PASSWORD") as caught:
        parse_state_url(f"{scheme}://kgw:secret@db/state")
    assert "secret" not in str(caught.value)


def test_an_address_is_told_in_words() -> None:
    """Where, and which database and schema."""
    assert "postgresql database state at db:5432, schema kgw" == str(
        parse_state_url("postgresql://kgw@db/state")
    )
    assert "mysql database state at /run/s" == str(
        parse_state_url("mysql://kgw@/state?socket=/run/s")
    )
