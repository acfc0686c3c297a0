"""AddPartitionsToTxn (API key 24)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AddPartitionsToTxnTopic(schema.Struct):
    """The partitions of one topic."""

    name: str = schema.string()
    partitions: list[int] = schema.array("int32")


class AddPartitionsToTxnTransaction(schema.Struct):
    """The partitions of one transaction."""

    transactional_id: str = schema.string()
    producer_id: int = schema.int64()
    producer_epoch: int = schema.int16()
    verify_only: bool = schema.boolean()
    """Only check that the partitions are in it; add none."""
    topics: list[AddPartitionsToTxnTopic] = schema.array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(schema.Request, api_key=ApiKey.ADD_PARTITIONS_TO_TXN):
    """Add partitions to a transaction, or check that they are in it.

    Versions up to 3 are for clients, later ones for brokers.

    Versions:
        1: same layout; the response is sent before throttling
        2: same layout; PRODUCER_FENCED may be returned (KIP-588)
        4: several transactions at once; may verify only (KIP-890)
        5: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
    """

    transactions: list[AddPartitionsToTxnTransaction] = schema.array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = schema.string(until=3)
    v3_and_below_producer_id: int = schema.int64(until=3)
    v3_and_below_producer_epoch: int = schema.int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = schema.array(
        AddPartitionsToTxnTopic, until=3
    )


class AddPartitionsToTxnPartitionResult(schema.Struct):
    """The result for one partition."""

    partition_index: int = schema.int32()
    partition_error_code: int = schema.int16()


class AddPartitionsToTxnTopicResult(schema.Struct):
    """The results for one topic's partitions."""

    name: str = schema.string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = schema.array(
        AddPartitionsToTxnPartitionResult, may_be_encoded=True
    )


class AddPartitionsToTxnResult(schema.Struct):
    """The results for one transaction's partitions."""

    transactional_id: str = schema.string()
    topic_results: list[AddPartitionsToTxnTopicResult] = schema.array(
        AddPartitionsToTxnTopicResult, may_be_encoded=True
    )


class AddPartitionsToTxnResponse(schema.Response, api_key=ApiKey.ADD_PARTITIONS_TO_TXN):
    """The result for each partition.

    Versions:
        1: same layout; sent before throttling, not after
        2: same layout; PRODUCER_FENCED may be returned (KIP-588)
        4: several transactions at once (KIP-890)
        5: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = schema.array(
        AddPartitionsToTxnResult, since=4, may_be_encoded=True
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = schema.array(
        AddPartitionsToTxnTopicResult, until=3, may_be_encoded=True
    )
