from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, create_topic, produce

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend


async def epoch_end(
    gateway: InProcessGateway,
    leader_epoch: int,
    version: int = 4,
    *,
    name: str = "orders",
    current_leader_epoch: int = -1,
) -> EpochEndOffset:
    """Ask for one partition, and return its answer."""
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=0,
                        leader_epoch=leader_epoch,
                        current_leader_epoch=current_leader_epoch,
                    )
                ],
            )
        ]
    )
    response = await gateway.ask(request, version, OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(5))
async def test_where_epochs_ended(backend: MemoryBackend, version: int) -> None:
    """A past epoch ended where the next began, the current one at the log's end."""
    crashed = InProcessGateway(backend=backend)
    await crashed.gateway.start()
    await create_topic(crashed)
    await produce(crashed, batch(b"a", b"b"))
    await backend.crash()
    async with InProcessGateway(backend=backend) as gateway:
        await produce(gateway, batch(b"c"))
        for epoch, end_offset in ((0, 2), (1, 3)):
            answer = await epoch_end(gateway, epoch, version)
            assert ErrorCode.NONE == answer.error_code
            assert end_offset == answer.end_offset
            assert (epoch if version >= 1 else -1) == answer.leader_epoch


async def test_unknown_epochs(gateway: InProcessGateway) -> None:
    """An epoch that never was has no end."""
    await create_topic(gateway)
    answer = await epoch_end(gateway, 5)
    assert (ErrorCode.NONE, -1, -1) == (answer.error_code, answer.leader_epoch, answer.end_offset)


async def test_unknown_topic(gateway: InProcessGateway) -> None:
    """A topic that does not exist has no epochs."""
    answer = await epoch_end(gateway, 0, name="missing")
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == answer.error_code


async def test_leader_epoch_is_checked(gateway: InProcessGateway) -> None:
    """A client that knows of a later leader is not answered by this one."""
    await create_topic(gateway)
    answer = await epoch_end(gateway, 0, current_leader_epoch=1)
    assert ErrorCode.UNKNOWN_LEADER_EPOCH == answer.error_code
