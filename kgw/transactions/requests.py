"""The requests to a transactional id and their results, without protocol versions.

Every request has the method `refused`, which returns the result for an error. The runtime calls no
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kgw.errors import ErrorCode
    from kgw.types import PartitionKey

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id, and the epoch that fences earlier producers with the same id."""

    id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class ProducerResult(NamedTuple):
    """The producer id and epoch to use from now on.

    NO_PRODUCER if there is an error, or if they do not change.
    """

    error: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER


class InitRequest(NamedTuple):
    """Give a producer its id and epoch, and fence the earlier producer of the transactional id.

    Errors: PRODUCER_FENCED, INVALID_TRANSACTION_TIMEOUT; CONCURRENT_TRANSACTIONS while a
    transaction ends. An open transaction is aborted.
    """

    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """The id and epoch of a producer that continues (KIP-360); None for a new producer."""
    new_producer_id: int = NO_PRODUCER_ID
    """An unused producer id, set after the machine has requested one."""

    def refused(self, error: ErrorCode) -> ProducerResult:
        return ProducerResult(error)


class AddRequest(NamedTuple):
    """Add partitions and groups to the transaction; with `verify_only`, only check for them.

    Adding begins a transaction if none is open. Errors: INVALID_PRODUCER_ID_MAPPING,
    PRODUCER_FENCED; CONCURRENT_TRANSACTIONS if the markers of the previous transaction are not
    written in time; POLICY_VIOLATION for too many groups.
    """

    producer: ProducerIdAndEpoch
    places: AbstractSet[PartitionKey] = frozenset()
    groups: AbstractSet[str] = frozenset()
    verify_only: bool = False
    """Only check that they are in the transaction (KIP-890).

    TRANSACTION_ABORTABLE if they are not, CONCURRENT_TRANSACTIONS without a wait.
    """

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class EndRequest(NamedTuple):
    """Commit or abort the transaction.

    Errors: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; INVALID_TXN_STATE if the other outcome was
    decided or no transaction is open; CONCURRENT_TRANSACTIONS while markers are written.
    """

    producer: ProducerIdAndEpoch
    is_commit: bool
    bumps_epoch: bool
    """Whether the next transaction gets another epoch, as in transaction version 2 (KIP-890)."""
    new_producer_id: int = NO_PRODUCER_ID
    """An unused producer id, set after the machine has requested one."""

    def refused(self, error: ErrorCode) -> ProducerResult:
        return ProducerResult(error)
