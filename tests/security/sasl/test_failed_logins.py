"""The limits of failed logins: of a name, of a network, and who is exempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.security.sasl.failed_logins import Attempt, FailedLogins, network_of

PER_MINUTE = 60
OF_A_NAME = 10
HOST = "192.0.2.7"
OTHER = "192.0.2.8"


class Clock:
    """The failed logins of a server, and its time."""

    def __init__(self, failed: FailedLogins | None = None, per_minute: int = PER_MINUTE) -> None:
        self.failed = failed or FailedLogins()
        self.per_minute = per_minute
        self.now_s = 1_000.0

    def begin(self, name: str, network: str = HOST) -> Attempt | None:
        return self.failed.begin(network, name, self.now_s, self.per_minute)

    def fails(self, name: str, network: str = HOST) -> bool:
        """Try a wrong password; return whether it was checked."""
        attempt = self.begin(name, network)
        if attempt is None:
            return False
        self.failed.fail(attempt, self.now_s, self.per_minute)
        return True

    def works(self, name: str, network: str = HOST) -> bool:
        """Try the right password; return whether it was checked."""
        attempt = self.begin(name, network)
        if attempt is None:
            return False
        self.failed.succeed(attempt)
        return True

    def spend(self, network: str = HOST) -> None:
        """Use up the limit of a network with many names."""
        for number in range(self.per_minute):
            assert self.fails(f"guess-{number}", network)

    def is_limited(self, network: str = HOST) -> bool:
        return self.failed.is_limited(network, self.now_s, self.per_minute)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a name", "a name"),
    ],
)
def test_networks(host: str, network: str) -> None:
    """An IPv4 address is one; of an IPv6 address the first 64 bits are."""
    assert network == network_of(host)


def test_one_client_with_a_wrong_password_refuses_nobody_else() -> None:
    """However often it tries, only its name is refused, and only in its network."""
    clock = Clock()
    assert [True] * OF_A_NAME + [False] * 990 == [clock.fails("bad") for _ in range(1000)]
    assert clock.works("good")
    assert clock.works("another")
    assert clock.works("bad", OTHER)
    assert not clock.is_limited()
    for _ in range(600):
        clock.now_s += 1
        clock.fails("bad")
        assert clock.works(f"good-{clock.now_s}")


def test_many_names_use_up_the_network() -> None:
    """Then a name that never logged in from there is not checked; elsewhere it is."""
    clock = Clock()
    clock.spend()
    assert clock.is_limited()
    assert not clock.works("good")
    assert clock.works("good", OTHER)
    assert not clock.is_limited(OTHER)


def test_who_has_logged_in_before_is_exempt() -> None:
    """A guesser behind the same address locks out nobody who has logged in from it."""
    clock = Clock()
    assert clock.works("good")
    clock.spend()
    assert [True] * 100 == [clock.works("good") for _ in range(100)]
    assert [False] * 3 == [clock.works(one) for one in ("Good", "good ", "goo")]


def test_an_exempt_name_can_be_guessed_as_rarely_as_another() -> None:
    """Its own limit holds, and its failures keep nobody else out for longer."""
    clock = Clock()
    assert clock.works("good")
    clock.spend()
    assert [True] * OF_A_NAME + [False] * 90 == [clock.fails("good") for _ in range(100)]
    assert not clock.works("good")
    clock.now_s += 1
    assert clock.works("another")


def test_the_limit_ends_by_itself() -> None:
    """One login more for each part of a minute, and all of them after a minute."""
    clock = Clock()
    clock.spend()
    clock.now_s += 0.9
    assert not clock.fails("a")
    clock.now_s += 0.1
    assert clock.fails("b")
    assert not clock.fails("c")
    clock.now_s += 60
    clock.spend()


def test_refused_logins_extend_nothing() -> None:
    """A client that never pauses gets its share of checks, and no more than that."""
    clock = Clock()
    clock.spend()
    checked = 0
    for number in range(6_000):
        clock.now_s += 0.1
        checked += clock.fails(f"name-{number}")
    assert PER_MINUTE * 10 - 1 <= checked <= PER_MINUTE * 10


def test_one_name_gets_its_share() -> None:
    """Over ten minutes a name is checked ten times a minute."""
    clock = Clock()
    checked = 0
    for _ in range(6_000):
        clock.now_s += 0.1
        checked += clock.fails("bad")
    assert OF_A_NAME * 11 - 1 <= checked <= OF_A_NAME * 11


def test_passwords_that_are_checked_at_the_same_time_are_paid_for() -> None:
    """All of them have begun below the limit; the network waits for as long as they cost."""
    clock = Clock()
    begun = [clock.begin("guess") for _ in range(200)]
    for attempt in begun:
        assert attempt is not None
        clock.failed.fail(attempt, clock.now_s, PER_MINUTE)
    clock.now_s += 140
    assert not clock.fails("other")
    clock.now_s += 1
    assert clock.fails("another")


def test_a_name_is_refused_for_two_minutes_at_most() -> None:
    """Also when many passwords of it were checked at the same time."""
    clock = Clock()
    assert clock.works("good")
    for attempt in [clock.begin("good") for _ in range(50)]:
        assert attempt is not None
        clock.failed.fail(attempt, clock.now_s, PER_MINUTE)
    clock.now_s += 59
    assert not clock.works("good")
    clock.now_s += 7
    assert clock.works("good")


@given(st.lists(st.sampled_from(["known", "unknown"]), max_size=60), st.integers(0, 40))
def test_a_limited_network_does_not_tell_who_logged_in(names: list[str], later_s: int) -> None:
    """What a client can see of two names is the same, whether they have logged in or not."""

    def seen(has_logged_in: str) -> list[bool]:
        clock = Clock()
        assert clock.works(has_logged_in)
        clock.spend()
        told = []
        for name in names:
            clock.fails(name)
            told.append(clock.is_limited())
        clock.now_s += later_s
        for name in names:
            # What the client is answered: refused, or failed with or without too many others.
            attempt = clock.begin(name)
            if attempt is not None:
                clock.failed.fail(attempt, clock.now_s, PER_MINUTE)
            told.append(attempt is None or clock.is_limited())
        return told

    assert seen("known") == seen("unknown") == seen("nobody")


@pytest.mark.parametrize("per_minute", [1, 2, 5, 6, 7, 59, 100])
def test_every_limit_holds_exactly(per_minute: int) -> None:
    """A name gets a sixth, and one at least; a network gets what is configured."""
    clock = Clock(per_minute=per_minute)
    of_a_name = max(1, per_minute // 6)
    assert [True] * of_a_name + [False] == [clock.fails("a") for _ in range(of_a_name + 1)]
    others = [clock.fails(f"b{number}") for number in range(per_minute)]
    assert [True] * (per_minute - of_a_name) + [False] * of_a_name == others


def test_no_limit() -> None:
    """With 0 every password is checked, and nothing is kept."""
    clock = Clock(per_minute=0)
    assert all(clock.fails("a") for _ in range(1_000))
    assert not clock.is_limited()
    assert 0 == clock.failed.size


def test_the_limit_can_be_switched_while_the_server_runs() -> None:
    """A login that has begun under another limit ends under the new one."""
    clock = Clock(per_minute=0)
    attempt = clock.begin("a")
    assert attempt is not None
    clock.per_minute = PER_MINUTE
    clock.failed.fail(attempt, clock.now_s, PER_MINUTE)
    clock.per_minute = 0
    clock.spend()
    assert clock.works("b")


def test_memory_is_bounded() -> None:
    """A client with very many addresses and names takes no more than the tables hold."""
    clock = Clock(FailedLogins(max_networks=50, max_names=70))
    for number in range(1_000):
        clock.now_s += 1
        clock.fails("x" * 100_000, f"192.0.2.{number}")
        clock.works(f"user-{number}", f"192.0.2.{number}")
    assert 50 + 70 + 70 == clock.failed.size


def test_made_up_names_do_not_reset_the_count_of_a_name() -> None:
    """Whoever guesses a password gets no more checks by asking for very many other names."""
    clock = Clock(FailedLogins(max_names=500))
    assert clock.works("good")
    clock.spend()
    checked = 0
    for turn in range(30):
        while clock.fails("good"):
            checked += 1
        for number in range(600):
            clock.now_s += 8 / 600
            clock.fails(f"guess-{turn}-{number}")
    in_that_time = OF_A_NAME + 29 * 8 * OF_A_NAME // 60
    assert in_that_time - 1 <= checked <= in_that_time


@pytest.mark.parametrize("before", [0, 5_000])
def test_very_many_names_at_once_buy_one_check_for_a_table_of_them(before: int) -> None:
    """A name that was replaced is checked once, and has the count of the name it replaces."""
    clock = Clock(FailedLogins(max_names=100))
    assert clock.works("good")
    clock.spend()
    for number in range(before):
        clock.fails(f"early-{number}")
    checked = 0
    for number in range(10_000):
        checked += clock.fails("good")
        clock.fails(f"guess-{number}")
    assert checked <= OF_A_NAME + 10_000 / 100


def test_a_name_that_was_replaced_is_counted_on() -> None:
    """If all other names have larger counts, the name loses its place, and no count is lost."""
    clock = Clock(FailedLogins(max_names=2))
    assert [True] * 9 == [clock.fails("bad") for _ in range(9)]
    for name in ("a", "b", "a", "b", "c"):
        clock.fails(name, OTHER)
    for _ in range(10):
        clock.fails("c", OTHER)
    assert clock.fails("d", OTHER)
    assert [True] + [False] * 9 == [clock.fails("bad") for _ in range(10)]


def test_a_new_name_in_a_full_table_begins_with_the_smallest_count() -> None:
    """It waits for as long as the name that it has replaced, and not for longer."""
    clock = Clock(FailedLogins(max_names=2))
    assert [True] * 5 == [clock.fails("a") for _ in range(5)]
    assert [True] * 3 == [clock.fails("b") for _ in range(3)]
    assert [True] * 7 + [False] == [clock.fails("c") for _ in range(8)]
    clock.now_s += 60
    assert [True] * 10 + [False] == [clock.fails("d") for _ in range(11)]


def test_a_full_table_keeps_the_networks_that_fail_most() -> None:
    """Many other networks with a failure each do not open one that is limited."""
    clock = Clock(FailedLogins(max_networks=50))
    clock.spend()
    for number in range(500):
        clock.now_s += 0.001
        assert clock.fails("a", f"other-{number}")
    assert clock.is_limited()


def test_who_logs_in_again_stays_exempt() -> None:
    """In a full table the name is forgotten that has not logged in for the longest time."""
    clock = Clock(FailedLogins(max_names=3))
    for number in range(200):
        assert clock.works("good")
        assert clock.works(f"user-{number}", f"other-{number}")
    clock.spend()
    assert clock.works("good")


def test_long_names_share_an_entry() -> None:
    """No user has a name of more than 200 bytes: no entry takes more memory than that."""
    clock = Clock()
    for number in range(OF_A_NAME):
        assert clock.fails("x" * 201 + str(number))
    assert not clock.fails("x" * 50_000)
    assert clock.works("x" * 200)
