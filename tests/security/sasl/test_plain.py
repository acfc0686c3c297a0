"""The message of PLAIN."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.plain import MAX_PASSWORD_BYTES, PlainMessage, parse_plain
from kgw.security.sasl.scram_messages import MAX_NAME_BYTES

LONG_NAME = "x" * MAX_NAME_BYTES
LONG_PASSWORD = "y" * MAX_PASSWORD_BYTES


@pytest.mark.parametrize(
    ("message", "user", "password"),
    [
        (b"\0alice\0secret", "alice", "secret"),
        (b"alice\0alice\0secret", "alice", "secret"),
        ("\0j\u00fcrgen\0caf\u00e9".encode(), "j\u00fcrgen", "caf\u00e9"),
        (b"\0a,b=c\0 ", "a,b=c", " "),
        (f"{LONG_NAME}\0{LONG_NAME}\0{LONG_PASSWORD}".encode(), LONG_NAME, LONG_PASSWORD),
    ],
)
def test_a_message_is_parsed(message: bytes, user: str, password: str) -> None:
    """Without an authorization id, or with the own one."""
    assert parse_plain(message) == PlainMessage(user, password)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "the message has not exactly three parts"),
        (b"alice", "the message has not exactly three parts"),
        (b"alice\0secret", "the message has not exactly three parts"),
        (b"\0alice\0secret\0", "the message has not exactly three parts"),
        (b"\0alice\0secret\0more", "the message has not exactly three parts"),
        (b"\0\0alice\0secret", "the message has not exactly three parts"),
        (b"\0\0secret", "the user name or the password is empty"),
        (b"\0alice\0", "the user name or the password is empty"),
        (b"\0\0", "the user name or the password is empty"),
        (b"bob\0alice\0secret", "the client asks for the identity of another user"),
        (b"Alice\0alice\0secret", "the client asks for the identity of another user"),
        (b"alice \0alice\0secret", "the client asks for the identity of another user"),
        (b"\xff\0alice\0secret", "the message is not UTF-8"),
        (b"\0\xff\0secret", "the message is not UTF-8"),
        (b"\0alice\0secret\xff", "the message is not UTF-8"),
        (f"\0{LONG_NAME}x\0secret".encode(), "the user name or the password is too long"),
        (f"\0alice\0{LONG_PASSWORD}y".encode(), "the user name or the password is too long"),
        (b"\0alice\0" + b"y" * 1_000_000, "the message is too long"),
        (b"\0" * 1_000_000, "the message is too long"),
    ],
)
def test_another_message_is_refused(message: bytes, reason: str) -> None:
    """With an error that holds nothing of it."""
    with pytest.raises(AuthenticationFailed) as caught:
        parse_plain(message)
    error = caught.value
    assert error.reason == reason
    assert error.message == (
        "Authentication failed during authentication due to invalid credentials "
        "with SASL mechanism PLAIN"
    )
    assert (error.__context__, error.__cause__) == (None, None)
    assert "secret" not in f"{error!r} {error.reason} {error.user}"


def test_a_parsed_message_does_not_show_its_password() -> None:
    """A log line may contain it."""
    assert repr(parse_plain(b"\0alice\0secret")) == "PlainMessage(user='alice')"


@given(st.binary(max_size=100))
def test_other_bytes_raise_nothing_else(message: bytes) -> None:
    """A message is refused, or means what it says."""
    try:
        parsed = parse_plain(message)
    except AuthenticationFailed:
        return
    assert message.endswith(f"\0{parsed.user}\0{parsed.password}".encode())
