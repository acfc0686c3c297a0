"""ListTransactions (API key 66)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Request):
    """List the transactions that this broker coordinates (KIP-664).

    Versions:
        1: filter by duration (KIP-994)
        2: filter by a pattern of ids (KIP-1152)
    """

    api_key = ApiKey.LIST_TRANSACTIONS
    valid_versions = (0, 2)
    flexible_since = 0

    state_filters: list[str] = array("string")
    """Empty: all."""
    producer_id_filters: list[int] = array("int64")
    """Empty: all."""
    duration_filter: int = int64(since=1, default=-1)
    """In milliseconds, those open for longer; negative: all."""
    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)
    """A regular expression; null or empty: all."""


class TransactionState(Struct):
    """A transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response):
    """The transactions.

    Versions:
        1: same layout
        2: same layout; INVALID_REGULAR_EXPRESSION may come back (KIP-1152)
    """

    api_key = ApiKey.LIST_TRANSACTIONS
    valid_versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array("string")
    """Filters that name no state."""
    transaction_states: list[TransactionState] = array(TransactionState)
