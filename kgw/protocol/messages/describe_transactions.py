"""DescribeTransactions (API key 65)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Request):
    """Ask for the state of transactions (KIP-664)."""

    api_key = ApiKey.DESCRIBE_TRANSACTIONS
    valid_versions = (0, 0)
    flexible_since = 0

    transactional_ids: list[str] = array("string")


class TopicData(Struct):
    """The partitions of one topic that are in it."""

    topic: str = string()
    partitions: list[int] = array("int32")


class TransactionState(Struct):
    """A transaction, or why it cannot be described."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort ..."""
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    """-1 when none is open."""
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response):
    """The transactions."""

    api_key = ApiKey.DESCRIBE_TRANSACTIONS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
