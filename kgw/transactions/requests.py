"""What is asked of a transactional id and what it answers, free of protocol versions.

Every request says how it is refused: the runtime knows no more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kgw.errors import ErrorCode
    from kgw.types import PartitionKey

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class Producer(NamedTuple):
    """Who writes: a producer id, and the epoch that fences those before."""

    id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class ProducerResult(NamedTuple):
    """Whose turn it is from now on; NO_PRODUCER with an error, and where nothing was asked."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


class InitRequest(NamedTuple):
    """A producer wants its id and epoch; who had the transactional id before it is fenced.

    PRODUCER_FENCED, INVALID_TRANSACTION_TIMEOUT; CONCURRENT_TRANSACTIONS while a transaction ends,
    which an open one does because of this request.
    """

    timeout_ms: int
    expected: Producer | None = None
    """What the producer has, which goes on (KIP-360); None for a new one."""
    new_producer_id: int = NO_PRODUCER_ID
    """A fresh one, given when the machine has asked for it."""

    def refused(self, error: ErrorCode) -> ProducerResult:
        return ProducerResult(error)


class AddRequest(NamedTuple):
    """Partitions and groups are to be in the transaction, which begins with the first of them.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; CONCURRENT_TRANSACTIONS when the transaction
    before has not ended soon enough; POLICY_VIOLATION for too many groups.
    """

    producer: Producer
    places: AbstractSet[PartitionKey] = frozenset()
    groups: AbstractSet[str] = frozenset()

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class VerifyRequest(NamedTuple):
    """Are these partitions and groups in the transaction (KIP-890)? Nothing changes.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; TRANSACTION_ABORTABLE
    when they are not.
    """

    producer: Producer
    places: AbstractSet[PartitionKey] = frozenset()
    groups: AbstractSet[str] = frozenset()

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class EndRequest(NamedTuple):
    """The transaction is to be committed or aborted.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; INVALID_TXN_STATE where the other is decided, or
    nothing is open; CONCURRENT_TRANSACTIONS while markers are written.
    """

    producer: Producer
    is_commit: bool
    bumps_epoch: bool
    """Whether the next transaction has another epoch: version 2 of transactions (KIP-890)."""
    new_producer_id: int = NO_PRODUCER_ID
    """A fresh one, given when the machine has asked for it."""

    def refused(self, error: ErrorCode) -> ProducerResult:
        return ProducerResult(error)
