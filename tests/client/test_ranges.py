from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.client import (
    AsyncClient,
    EpochRange,
    FoundRecord,
    PartitionDescription,
    TopicDescription,
    describe_ranges,
)
from kgw.client.values import EARLIEST, LATEST
from kgw.types import ZERO_TOPIC_ID, TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping


class EpochServer:
    """Stands in for a client of a server with a topic whose partitions have these epochs."""

    def __init__(self, *partitions: dict[int, int]) -> None:
        """Take, by partition, where each leader epoch ended."""
        self._partitions = partitions

    async def topic(self, name: str) -> TopicDescription:
        described = tuple(
            PartitionDescription(number, 0, max(epochs), (0,), (0,))
            for number, epochs in enumerate(self._partitions)
        )
        return TopicDescription(TopicName(name), ZERO_TOPIC_ID, False, described)

    async def list_offsets(
        self, _: str, timestamps: Mapping[int, int], **__: object
    ) -> dict[int, FoundRecord]:
        found = {}
        for number, timestamp in timestamps.items():
            end = max(self._partitions[number].values())
            known = {EARLIEST: min(end, 1), LATEST: end}
            found[number] = FoundRecord(known.get(timestamp, -1), 999 if end else -1, 0)
        return found

    async def epoch_ends(
        self, _: str, leader_epochs: Mapping[int, int]
    ) -> dict[int, EpochRange | None]:
        found: dict[int, EpochRange | None] = {}
        for number, limit in leader_epochs.items():
            epoch = max((one for one in self._partitions[number] if one <= limit), default=None)
            found[number] = (
                None if epoch is None else EpochRange(epoch, self._partitions[number][epoch])
            )
        return found


async def test_epochs_are_listed_back_from_the_current_one() -> None:
    """Each with the offset at which it ended; those that wrote nothing are passed."""
    client = cast("AsyncClient", EpochServer({0: 1, 1: 2, 3: 3, 4: 3}, {0: 0}))
    first, second = await describe_ranges(client, "events", [0, 1])
    assert (1, 3, 3, 3, 2) == (
        first.log_start_offset,
        first.high_watermark,
        first.last_stable_offset,
        first.end_offset,
        first.offset_count,
    )
    assert (999, 999) == (first.first_timestamp_ms, first.greatest_timestamp_ms)
    assert ((4, 3), (3, 3), (1, 2), (0, 1)) == first.epochs
    assert ((0, 0),) == second.epochs


async def test_no_more_epochs_are_asked_for_than_are_shown() -> None:
    """Each costs a request, and every unclean stop begins one."""
    client = cast("AsyncClient", EpochServer({epoch: epoch for epoch in range(41)}))
    (found,) = await describe_ranges(client, "events", [0])
    assert list(range(40, 24, -1)) == [one.leader_epoch for one in found.epochs]
