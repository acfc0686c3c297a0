"""DescribeTransactions (API key 65)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeTransactionsRequest(schema.Request, api_key=ApiKey.DESCRIBE_TRANSACTIONS):
    """Ask for the state of transactions (KIP-664)."""

    transactional_ids: list[str] = schema.array("string")


class TopicData(schema.Struct):
    """The partitions of one topic that are in the transaction."""

    topic: str = schema.string()
    partitions: list[int] = schema.array("int32")


class TransactionState(schema.Struct):
    """A transaction, or the error if it cannot be described."""

    error_code: int = schema.int16()
    transactional_id: str = schema.string()
    transaction_state: str = schema.string()
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort ..."""
    transaction_timeout_ms: int = schema.int32()
    transaction_start_time_ms: int = schema.int64()
    """-1 when none is open."""
    producer_id: int = schema.int64()
    producer_epoch: int = schema.int16()
    topics: list[TopicData] = schema.array(TopicData)


class DescribeTransactionsResponse(schema.Response, api_key=ApiKey.DESCRIBE_TRANSACTIONS):
    """The transactions."""

    throttle_time_ms: int = schema.int32()
    transaction_states: list[TransactionState] = schema.array(TransactionState, may_be_encoded=True)
