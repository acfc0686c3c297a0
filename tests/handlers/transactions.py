"""Transactions in a partition, for tests of those who read: written past the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.completion import Completion
from kgw.errors import ErrorCode
from kgw.partitions.append.transactions import TransactionMarker
from tests.handlers.support import START_MS, batch, topic_of

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition
    from kgw.records.batch import RecordBatch
    from kgw.testing.gateway import InProcessGateway


def allowed(_: RecordBatch) -> Completion[ErrorCode]:
    """Say that a transaction has the partition."""
    completion: Completion[ErrorCode] = Completion()
    completion.set_result(ErrorCode.NONE)
    return completion


class Transactions:
    """The partition orders-0, and producers that write to it in transactions."""

    def __init__(self, gateway: InProcessGateway) -> None:
        self._gateway = gateway
        self._sequences: dict[int, int] = {}

    @property
    def partition(self) -> Partition:
        return topic_of(self._gateway).partitions[0]

    async def write(self, producer_id: int, *values: bytes, timestamp_ms: int = START_MS) -> int:
        """Append a batch of an open or a new transaction, and return its offset."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        records = batch(
            *values,
            timestamps_ms=[timestamp_ms] * len(values),
            producer_id=producer_id,
            base_sequence=sequence,
            is_transactional=True,
        )
        result = self.partition.admission.append(records, verify=allowed).result
        assert result is not None
        return (await result).base_offset

    async def end(self, producer_id: int, *, is_commit: bool) -> int:
        """Append a marker, and return its offset."""
        marker = TransactionMarker(producer_id, 0, 0, is_commit)
        return (await self.partition.admission.append_marker(marker)).base_offset
