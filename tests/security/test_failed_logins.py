"""How often logins from one address may fail."""

from __future__ import annotations

from kgw.security.failed_logins import FailedLogins


def test_a_burst_and_then_one_in_a_second() -> None:
    """Ten at once, then one each second, and ten again after a while."""
    failed = FailedLogins()
    assert [True] * 10 + [False] == [failed.admits("a", 100.0) for _ in range(11)]
    assert not failed.admits("a", 100.9)
    assert failed.admits("a", 101.0)
    assert not failed.admits("a", 101.5)
    assert [True] * 10 + [False] == [failed.admits("a", 200.0) for _ in range(11)]


def test_addresses_are_apart() -> None:
    """An address with many failures is no harm to another one."""
    failed = FailedLogins(burst=1)
    assert failed.admits("a", 0.0)
    assert not failed.admits("a", 0.0)
    assert failed.admits("b", 0.0)


def test_a_success_costs_nothing() -> None:
    """Whoever logs in again and again is admitted; failures before stay counted."""
    failed = FailedLogins(burst=2)
    for _ in range(50):
        assert failed.admits("a", 0.0)
        failed.succeed("a", 0.0)
    assert 0 == len(failed)
    assert failed.admits("a", 0.0)
    for _ in range(50):
        assert failed.admits("a", 0.0)
        failed.succeed("a", 0.0)
    assert failed.admits("a", 0.0)
    assert not failed.admits("a", 0.0)


def test_attempts_at_the_same_time() -> None:
    """An attempt counts as soon as it begins: a hundred at once are ten."""
    failed = FailedLogins()
    assert 10 == sum(failed.admits("a", 0.0) for _ in range(100))


def test_the_bound() -> None:
    """The address that was seen longest ago is forgotten first."""
    failed = FailedLogins(burst=1, most=2)
    assert failed.admits("a", 0.0)
    assert failed.admits("b", 0.0)
    assert not failed.admits("a", 0.0)
    assert failed.admits("c", 0.0)
    assert 2 == len(failed)
    assert not failed.admits("a", 0.0)
    assert failed.admits("b", 0.0)
