"""InitProducerId (API key 22)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class InitProducerIdRequest(schema.Request, api_key=ApiKey.INIT_PRODUCER_ID):
    """Ask for a producer id. For a transactional id, also end its last producer's transaction.

    Versions:
        1: same layout; the response is sent before throttling
        3: the producer's present id and epoch, to raise the epoch (KIP-360)
        4: same layout; PRODUCER_FENCED may be returned (KIP-588)
        5: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        6: two-phase commit; not yet stable in Kafka (KIP-939)
    """

    transactional_id: str | None = schema.string(nullable_since=0)
    """Null for a producer that is idempotent, but not transactional."""
    transaction_timeout_ms: int = schema.int32()
    """The time after which the coordinator aborts an open transaction."""
    producer_id: int = schema.int64(since=3, default=-1)
    """-1: none yet."""
    producer_epoch: int = schema.int16(since=3, default=-1)
    """-1: none yet."""
    enable2_pc: bool = schema.boolean(since=6)
    """Whether transactions wait for a decision from outside of Kafka and never time out."""
    keep_prepared_txn: bool = schema.boolean(since=6)
    """Whether a prepared transaction must not be aborted."""


class InitProducerIdResponse(schema.Response, api_key=ApiKey.INIT_PRODUCER_ID):
    """A producer id and epoch.

    Versions:
        1: same layout; sent before throttling, not after
        6: the transaction that was kept (KIP-939)
    """

    throttle_time_ms: int = schema.int32(ignorable=True)
    error_code: int = schema.int16()
    producer_id: int = schema.int64(default=-1)
    producer_epoch: int = schema.int16()
    ongoing_txn_producer_id: int = schema.int64(since=6, default=-1)
    """-1: none."""
    ongoing_txn_producer_epoch: int = schema.int16(since=6, default=-1)
    """-1: none."""
