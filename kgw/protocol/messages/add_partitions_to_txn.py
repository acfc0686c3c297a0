"""AddPartitionsToTxn (API key 24)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class AddPartitionsToTxnTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array("int32")


class AddPartitionsToTxnTransaction(Struct):
    """The partitions of one transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    """Add nothing, say whether they are in it."""
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Request):
    """Take partitions into a transaction, or ask whether they are in it.

    Versions up to 3 are for clients, those after for brokers.

    Versions:
        1: same layout; the answer is sent before throttling
        2: same layout; PRODUCER_FENCED may come back (KIP-588)
        4: several transactions at once; may verify only (KIP-890)
        5: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
    """

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    valid_versions = (0, 5)
    flexible_since = 3

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    """What became of one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """What became of one topic's partitions."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


class AddPartitionsToTxnResult(Struct):
    """What became of one transaction's partitions."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Response):
    """What became of each partition.

    Versions:
        1: same layout; sent before throttling, not after
        2: same layout; PRODUCER_FENCED may come back (KIP-588)
        4: several transactions at once (KIP-890)
        5: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
    """

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    valid_versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3
    )
