from __future__ import annotations

import pytest

from kgw.client import (
    CannotConnectError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
    ServerRefusedError,
    UnsupportedApiError,
)
from kgw.errors import ErrorCode


def test_a_refusal_is_one_line_with_code_and_reason() -> None:
    """The code is named; the server's words follow where they say more than the name."""
    assert "cannot: NOT_CONTROLLER" == str(ServerRefusedError(41, "cannot", "NOT_CONTROLLER"))
    assert "cannot: NOT_CONTROLLER (why)" == str(ServerRefusedError(41, "cannot", "why"))


def test_a_code_of_a_newer_kafka_is_a_number() -> None:
    """A code that is not known is kept as a number and not retried."""
    error = ServerRefusedError(9999, "cannot")
    assert "cannot: error code 9999" == str(error)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not error.retriable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServerRefusedError(ErrorCode.MESSAGE_TOO_LARGE, "cannot"), False),
        (ServerRefusedError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "cannot"), False),
        (ServerRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "cannot"), True),
        (ServerRefusedError(ErrorCode.REQUEST_TIMED_OUT, "cannot"), True),
        # It was tried for half a minute, and the first answer may have been lost.
        (ServerRefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "cannot"), True),
        (ConnectionLostError("gone"), True),
        (CannotConnectError("away"), True),
        (RequestTimedOutError("silent"), True),
        (UnsupportedApiError("old"), False),
    ],
)
def test_only_what_is_refused_for_good_is_not_done(error: ClientError, expected: bool) -> None:
    """Whoever tells a person that something has not happened must know it."""
    assert expected == error.may_be_done
