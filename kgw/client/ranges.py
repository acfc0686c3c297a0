"""Finds the offset ranges of partitions by requests that any Kafka server answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.client.values import EARLIEST, LATEST, MAX_TIMESTAMP, EpochRange, PartitionRange

if TYPE_CHECKING:
    from collections.abc import Collection

    from kgw.client.client import AsyncClient

_EPOCHS_MAX = 16
"""A limit, as each epoch costs a request, and every unclean stop begins an epoch."""
_FIRST_TIME_MS = 0


async def describe_ranges(
    client: AsyncClient, topic: str, partitions: Collection[int]
) -> list[PartitionRange]:
    """Return the offset range of each partition. Raises ClientError."""
    starts, ends, stable, firsts, greatest, epochs = await asyncio.gather(
        client.list_offsets(topic, dict.fromkeys(partitions, EARLIEST)),
        client.list_offsets(topic, dict.fromkeys(partitions, LATEST)),
        client.list_offsets(topic, dict.fromkeys(partitions, LATEST), read_committed=True),
        client.list_offsets(topic, dict.fromkeys(partitions, _FIRST_TIME_MS)),
        client.list_offsets(topic, dict.fromkeys(partitions, MAX_TIMESTAMP)),
        _epochs(client, topic, partitions),
    )
    return [
        PartitionRange(
            partition,
            starts[partition].offset,
            ends[partition].offset,
            stable[partition].offset,
            # The current epoch ends at the end of the log.
            max([ends[partition].offset, *(one.end_offset for one in epochs[partition][:1])]),
            firsts[partition].timestamp_ms,
            greatest[partition].timestamp_ms,
            tuple(epochs[partition]),
        )
        for partition in partitions
    ]


async def _epochs(
    client: AsyncClient, topic: str, partitions: Collection[int]
) -> dict[int, list[EpochRange]]:
    """Return each partition's newest epochs, the current one first."""
    found: dict[int, list[EpochRange]] = {partition: [] for partition in partitions}
    description = await client.topic(topic)
    asked = {
        one.partition: one.leader_epoch for one in description.partitions if one.partition in found
    }
    for _ in range(_EPOCHS_MAX):
        answers = await client.epoch_ends(topic, asked)
        asked = {}
        for partition, one in answers.items():
            if one is not None:
                found[partition].append(one)
                if one.leader_epoch > 0:
                    asked[partition] = one.leader_epoch - 1
        if not asked:
            break
    return found
