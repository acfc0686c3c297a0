"""A1 and A2 in full size: the time of a refusal does not tell whether a user exists.

The short form counts the work (`test_exchange.py`); only here time is judged, of exchanges by
themselves: a client on a network sees the same differences, and a delay above them.
"""

from __future__ import annotations

import statistics
import time

import pytest

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram import ScramMechanism
from tests.security.sasl.logins import NAMES, credential_of
from tests.security.sasl.scram_client import ScramClient
from tests.security.sasl.test_exchange import challenged, drive, open_one

TIMES = 500
BAR_S = 0.001

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(300)]


def refusal_s(mechanism: str, user: str) -> float:
    """Return how long the server works on a login with a wrong password."""
    exchange = open_one(mechanism)
    if mechanism == "PLAIN":
        message = f"\0{user}\0wrong".encode()
        began_s = time.perf_counter()
    else:
        # The client's own work, which is the larger part, is not the server's.
        message = challenged(exchange, ScramClient(mechanism, "wrong", bare=f"n={user},r=nonce"))
        began_s = time.perf_counter()
    with pytest.raises(AuthenticationFailed):
        drive(exchange, message)
    return time.perf_counter() - began_s


@pytest.mark.parametrize("mechanism", ["PLAIN", *NAMES])
def test_unknown_users_take_as_long(mechanism: str) -> None:
    """The medians of 500 refusals of each kind, taken in turn, differ by less than 1 ms."""
    credential_of(ScramMechanism.SHA_256), credential_of(ScramMechanism.SHA_512)
    known, unknown = [], []
    for _ in range(TIMES):
        known.append(refusal_s(mechanism, "alice"))
        unknown.append(refusal_s(mechanism, "mallory"))
    difference_s = abs(statistics.median(known) - statistics.median(unknown))
    print(
        f"{mechanism}: {1e6 * statistics.median(known):.0f} us, {1e6 * difference_s:.0f} us apart"
    )
    assert difference_s < BAR_S


def test_the_bar_finds_a_server_that_skips_the_work() -> None:
    """The control: without a hash for unknown users the difference is above the bar."""
    taken = [refusal_s("PLAIN", "alice") for _ in range(50)]
    assert statistics.median(taken) > BAR_S
