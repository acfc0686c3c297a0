"""Passwords that need not be hashed again, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.security.proved_passwords import LASTS_S, ProvedPasswords
from kgw.security.sasl.scram import ScramMechanism
from tests.security.sasl.logins import credential_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.security.sasl.scram import ScramCredential

SHA_256 = ScramMechanism.SHA_256
MESSAGE = b"\0alice\0secret"


class Users:
    """The present credentials of users, and what is remembered of their passwords."""

    def __init__(self, most: int = 10) -> None:
        self.stored: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self.proved = ProvedPasswords(b"random", most=most)

    def set(self, user: str, password: str) -> None:
        """Give a user a password."""
        self.stored[user] = {SHA_256: credential_of(SHA_256, password)}

    def of_user(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        """Return the credentials of a user."""
        return self.stored.get(user, {})

    def prove(self, message: bytes, user: str, now_s: float = 0.0) -> None:
        """Remember a message."""
        self.proved.add(message, user, dict(self.of_user(user)), now_s)

    def user_of(self, message: bytes = MESSAGE, now_s: float = 1.0) -> str | None:
        """Return the user of a message."""
        return self.proved.user_of(message, self.of_user, now_s)


@pytest.fixture
def users() -> Users:
    """Alice, whose password was right."""
    one = Users()
    one.set("alice", "secret")
    one.prove(MESSAGE, "alice")
    return one


def test_the_same_message(users: Users) -> None:
    """A user with the password that was right is known; nobody else is, with whatever is close."""
    assert "alice" == users.user_of()
    for other in (b"\0alice\0Secret", b"\0alice\0secret ", b"\0bob\0secret", b"\0alice\0", b""):
        assert None is users.user_of(other)


def test_the_time(users: Users) -> None:
    """It ends after its time, however often the password was sent meanwhile."""
    for now_s in (1.0, LASTS_S / 2, LASTS_S - 1):
        assert "alice" == users.user_of(now_s=now_s)
    assert None is users.user_of(now_s=LASTS_S)
    assert 0 == len(users.proved)


@pytest.mark.parametrize("change", ["another password", "deleted", "another mechanism, too"])
def test_changed_users(users: Users, change: str) -> None:
    """A user who has changed has to prove the password again, also when changed back."""
    before = dict(users.stored["alice"])
    if change == "another password":
        users.set("alice", "other")
    elif change == "deleted":
        del users.stored["alice"]
    else:
        other = ScramMechanism.SHA_512
        users.stored["alice"][other] = credential_of(other, "other")
    assert None is users.user_of()
    users.stored["alice"] = before
    assert None is users.user_of()


def test_a_change_during_the_hash() -> None:
    """What was compared with credentials of before proves nothing about those of now."""
    users = Users()
    users.set("alice", "secret")
    compared = dict(users.of_user("alice"))
    users.set("alice", "other")
    users.proved.add(MESSAGE, "alice", compared, 0.0)
    assert None is users.user_of()


def test_the_bound() -> None:
    """The proofs that have ended make room; if there are none, the oldest one does."""
    users = Users(most=2)
    users.set("alice", "secret")
    users.prove(b"1", "alice", 0.0)
    users.prove(b"2", "alice", 10.0)
    users.prove(b"3", "alice", 20.0)
    assert [None, "alice", "alice"] == [users.user_of(one, 21.0) for one in (b"1", b"2", b"3")]
    users.prove(b"4", "alice", 10.0 + LASTS_S)
    users.prove(b"5", "alice", 400.0)
    assert 2 == len(users.proved)
    assert ["alice", "alice"] == [users.user_of(one, 401.0) for one in (b"4", b"5")]


def test_no_password_is_shown(users: Users) -> None:
    """Its text form has no password, and no digest of one."""
    assert "<ProvedPasswords of 1 messages>" == repr(users.proved)
