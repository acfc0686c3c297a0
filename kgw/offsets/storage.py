"""Stores the offset checkpoints of partitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.offsets.recovery import Checkpoint
from kgw.state.base import Change, DamagedRowsError
from kgw.types import PartitionKey, TopicId, format_uuid, parse_partition_key, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.state.base import Row, StateStore

CHECKPOINT_KIND: Final = "checkpoint"


class LoadedCheckpoints(NamedTuple):
    """The readable checkpoints, and the partitions whose checkpoint is damaged."""

    checkpoints: dict[PartitionKey, Checkpoint]
    damaged: frozenset[PartitionKey]
    unreadable_keys: tuple[str, ...] = ()
    """Keys of rows that are not valid for a partition."""


class OffsetStorage:
    """Checkpoints by partition, stored as rows with checksums in a state store.

    A lost checkpoint costs time, but no record or offset.
    """

    def __init__(self, state: StateStore) -> None:
        """Use an open store. Every method raises StorageError."""
        self._state = state

    async def load(self) -> LoadedCheckpoints:
        """Return all checkpoints, and the keys of damaged ones."""
        damaged_keys: list[str] = []
        try:
            rows = await self._state.load(CHECKPOINT_KIND)
        except DamagedRowsError as error:
            rows = error.intact
            damaged_keys.extend(error.damaged)
        return _parse_rows(rows, damaged_keys)

    async def save(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Store new checkpoints of these partitions durably: all or none."""
        await self._state.apply(
            [
                Change(
                    CHECKPOINT_KIND,
                    str(PartitionKey(checkpoint.topic_id, checkpoint.partition)),
                    encode_checkpoint(checkpoint),
                )
                for checkpoint in checkpoints
            ]
        )

    async def delete(self, keys: Iterable[PartitionKey]) -> None:
        """Remove checkpoints, if they exist."""
        await self.delete_unreadable(map(str, keys))

    async def delete_unreadable(self, row_keys: Iterable[str]) -> None:
        """Remove the rows with the `unreadable_keys` of `load`."""
        await self._state.apply([Change(CHECKPOINT_KIND, key, None) for key in row_keys])


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as one JSON object with Kafka's names."""
    fields = checkpoint._asdict()
    fields["topic_id"] = format_uuid(checkpoint.topic_id)
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_checkpoint(value: bytes) -> Checkpoint:
    """Decode the output of `encode_checkpoint`, without unknown fields of a later version.

    Raises ValueError for other text.
    """
    fields = json.loads(value)
    if not isinstance(fields, dict):
        raise ValueError("a checkpoint is a JSON object")  # noqa: TRY004 - one error for all
    try:
        fields["topic_id"] = TopicId(parse_uuid(fields["topic_id"]))
        checkpoint = Checkpoint._make(fields[name] for name in Checkpoint._fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a checkpoint lacks or mistypes {error}") from error
    if any(type(number) is not int for number in checkpoint[1:7]):
        raise ValueError("a checkpoint's offsets and positions are whole numbers")
    if type(checkpoint.clean) is not bool:
        raise ValueError("a checkpoint is clean or it is not")
    return checkpoint


def _parse_rows(rows: dict[str, Row], damaged_keys: list[str]) -> LoadedCheckpoints:
    checkpoints: dict[PartitionKey, Checkpoint] = {}
    damaged: set[PartitionKey] = set()
    unreadable_keys: list[str] = []
    for text in damaged_keys:
        try:
            damaged.add(parse_partition_key(text))
        except ValueError:
            unreadable_keys.append(text)
    for text, row in rows.items():
        try:
            key = parse_partition_key(text)
        except ValueError:
            unreadable_keys.append(text)
            continue
        try:
            checkpoints[key] = decode_checkpoint(row.value)
        except ValueError:
            damaged.add(key)
    return LoadedCheckpoints(checkpoints, frozenset(damaged), tuple(unreadable_keys))
