from __future__ import annotations

from kgw.client import ServerRefusedError
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
