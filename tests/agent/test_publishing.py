"""Publishing through the agent's API, as a client of SMQ does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from tests.agent.smq_client import M, ended, field_of, value_of

if TYPE_CHECKING:
    from tests.agent.conftest import Agent


async def test_a_record_is_answered_with_its_offset(agent: Agent) -> None:
    """Each with its number in the stream, once it is stored; the topic is made for the session."""
    publisher = await agent.client.publisher(partition_count=1)
    for number in range(3):
        await publisher.send(b"k", v=number)
    answers = [await publisher.answer() for _ in range(3)]
    assert [(1, 0, 0), (2, 1, 1), (3, 2, 2)] == [
        (one.ack_sequence, one.base_offset, one.last_offset) for one in answers
    ]
    assert not any(one.error for one in answers)
    assert grpc.StatusCode.OK is await publisher.close()
    assert 3 == agent.topic().partitions[0].log.high_watermark
