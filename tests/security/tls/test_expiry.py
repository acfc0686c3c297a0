"""When a certificate that expires is warned of."""

from __future__ import annotations

from kgw.security.tls.expiry import WARN_BEFORE_S, CertificateExpiry, ExpiryRule
from kgw.testing.certificates import DAY_S

END_S = 1_900_000_000.0
ENDS = CertificateExpiry("ssl.keystore.location: the certificate CN=a", END_S)


def rule(now_s: float = END_S - 100 * DAY_S) -> ExpiryRule:
    """Return a rule for a certificate that is used since then."""
    one = ExpiryRule()
    one.begin(ENDS, now_s)
    return one


def test_without_a_certificate() -> None:
    """Nothing is known, and nothing is said."""
    one = ExpiryRule()
    assert one.left_s(END_S) is None
    assert one.warning(END_S) is None


def test_once_a_day_from_two_weeks_before() -> None:
    """Looks every ten minutes find a warning a day, and one at the end, which is another text."""
    one = rule()
    begin_s = END_S - 20 * DAY_S
    told = [
        (now_s, warning)
        for number in range(22 * 144)
        if (warning := one.warning(now_s := begin_s + number * 600)) is not None
    ]
    assert END_S - WARN_BEFORE_S == told[0][0]
    before = [now_s for now_s, warning in told if " expires on 2030-03-17 at " in warning]
    after = [now_s for now_s, warning in told if " expired on 2030-03-17 at " in warning]
    assert len(told) == len(before) + len(after)
    assert [END_S - day * DAY_S for day in range(14, -1, -1)] == before
    assert [END_S + 600, END_S + 600 + DAY_S] == after
    assert told[0][1].startswith(ENDS.certificate)


def test_the_seconds_that_are_left() -> None:
    """They go on below nothing."""
    assert 5.0 == rule().left_s(END_S - 5)
    assert -5.0 == rule().left_s(END_S + 5)


def test_a_certificate_that_is_loaded_after_its_end() -> None:
    """Its load has told of it; a day later the rule does."""
    one = rule(END_S + 10)
    assert one.warning(END_S + 20) is None
    assert one.warning(END_S + 10 + DAY_S) is not None


def test_the_same_certificate_again() -> None:
    """A load of the same certificate is no reason for another warning; a new certificate is."""
    one = rule()
    assert one.warning(END_S - DAY_S) is not None
    one.begin(ENDS, END_S - DAY_S + 10)
    assert one.warning(END_S - DAY_S + 20) is None
    one.begin(ENDS._replace(not_after_s=END_S + DAY_S), END_S - DAY_S + 30)
    assert one.warning(END_S - DAY_S + 40) is not None
    one.begin(ENDS._replace(not_after_s=END_S + 100 * DAY_S), END_S)
    assert one.warning(END_S + 1) is None


def test_a_clock_that_was_set_back() -> None:
    """The next warning does not wait until the clock is where it was."""
    one = rule()
    assert one.warning(END_S - DAY_S) is not None
    assert one.warning(END_S - 3 * DAY_S) is not None
