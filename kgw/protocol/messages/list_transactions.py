"""ListTransactions (API key 66)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ListTransactionsRequest(schema.Request, api_key=ApiKey.LIST_TRANSACTIONS):
    """List the transactions that this broker coordinates (KIP-664).

    Versions:
        1: filter by duration (KIP-994)
        2: filter by a pattern of ids (KIP-1152)
    """

    state_filters: list[str] = schema.array("string")
    """Empty: all."""
    producer_id_filters: list[int] = schema.array("int64")
    """Empty: all."""
    duration_filter: int = schema.int64(since=1, default=-1)
    """In milliseconds: only transactions that are open for longer; negative: all."""
    transactional_id_pattern: str | None = schema.string(since=2, nullable_since=2, default=None)
    """A regular expression; null or empty: all."""


class TransactionState(schema.Struct):
    """A transaction."""

    transactional_id: str = schema.string()
    producer_id: int = schema.int64()
    transaction_state: str = schema.string()


class ListTransactionsResponse(schema.Response, api_key=ApiKey.LIST_TRANSACTIONS):
    """The transactions.

    Versions:
        1: same layout
        2: same layout; INVALID_REGULAR_EXPRESSION may be returned (KIP-1152)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    unknown_state_filters: list[str] = schema.array("string")
    """States in the filter that do not exist."""
    transaction_states: list[TransactionState] = schema.array(TransactionState, may_be_encoded=True)
