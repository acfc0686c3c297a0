"""When the key set is fetched again."""

from __future__ import annotations

from kgw.security.oauth.refresh_rule import FEWEST_SECONDS_BETWEEN_ASKED, RefreshRule


def test_pauses_after_failures_double() -> None:
    """Up to the longest one; a success begins anew."""
    rule = RefreshRule(3600.0, 0.1, 0.7)
    pauses = []
    for _ in range(6):
        rule.fail(100.0)
        pauses.append(round(rule.next_s - 100.0, 3))
    assert [0.1, 0.2, 0.4, 0.7, 0.7, 0.7] == pauses
    rule.succeed(100.0)
    assert 3700.0 == rule.next_s
    rule.fail(3700.0)
    assert 3700.1 == rule.next_s


def test_a_retry_is_no_later_than_the_next_regular_fetch() -> None:
    """Also if the longest pause is longer, or shorter than the first one."""
    rule = RefreshRule(5.0, 60.0, 10.0)
    rule.fail(0.0)
    assert 5.0 == rule.next_s
    rule = RefreshRule(3600.0, 60.0, 10.0)
    for _ in range(3):
        rule.fail(0.0)
        assert 60.0 == rule.next_s


def test_clients_cannot_hurry_the_server() -> None:
    """Each fetch, whatever comes of it, rules out others that tokens ask for."""
    rule = RefreshRule(3600.0, 0.1, 10.0)
    assert rule.may_ask(1.0)
    rule.begin(1.0)
    assert not rule.may_ask(1.0 + FEWEST_SECONDS_BETWEEN_ASKED - 0.001)
    rule.succeed(2.0)
    assert not rule.may_ask(10.9)
    assert rule.may_ask(11.0)
