"""G6 in short: a gateway that is killed while groups commit and rebalance loses nothing."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient, ClientError, Connection, GroupClient
from kgw.errors import ErrorCode
from kgw.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kgw.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 8
WORKERS = 10
TOPIC = "orders"


class Worker:
    """A static member, alone in its group, that commits one offset after the other."""

    def __init__(self, number: int) -> None:
        self.group_id = f"group-{number}"
        self.instance = f"instance-{number}"
        self.sent = 0
        self.acknowledged = 0
        self.member_id = ""
        self.generation = -1

    async def run(self, gateway: GatewayProcess, *, is_new: bool, rejoins: bool) -> None:
        """Work until the connection is lost."""
        connection = await Connection.open(gateway.host, gateway.port)
        try:
            if is_new:
                await self.join(connection)
            else:
                await self.check_undisturbed(connection)
            while True:
                await self.commit(connection)
                if rejoins:
                    await self.join(connection)
        except ClientError:
            pass
        finally:
            await connection.aclose()

    async def join(self, connection: Connection) -> None:
        """Bring the group to another generation, and make it stable."""
        joined = await connection.ask(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="workers",
                protocols=[JoinGroupRequestProtocol(name="any", metadata=b"")],
            ),
            JoinGroupResponse,
            version=5,
        )
        assert ErrorCode.NONE == joined.error_code
        # The same one where the kill came before its assignment.
        assert joined.generation_id >= self.generation, "a generation came back"
        self.member_id, self.generation = joined.member_id, joined.generation_id
        part = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        synced = await connection.ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                assignments=[part],
            ),
            SyncGroupResponse,
            version=3,
        )
        assert (ErrorCode.NONE, b"all") == (synced.error_code, synced.assignment)

    async def check_undisturbed(self, connection: Connection) -> None:
        """The member is still one, unless a further generation was stored and not heard of."""
        answer = await connection.ask(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            ),
            HeartbeatResponse,
        )
        if answer.error_code == ErrorCode.ILLEGAL_GENERATION:
            await self.join(connection)
        else:
            assert ErrorCode.NONE == answer.error_code

    async def commit(self, connection: Connection) -> None:
        self.sent += 1
        answer = await connection.ask(
            OffsetCommitRequest(
                group_id=self.group_id,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                topics=[
                    OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=self.sent
                            )
                        ],
                    )
                ],
            ),
            OffsetCommitResponse,
            version=8,
        )
        (partition,) = answer.topics[0].partitions
        if partition.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self.join(connection)  # killed between a generation and its assignment
            return
        assert ErrorCode.NONE == partition.error_code
        self.acknowledged = self.sent


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(120)
async def test_kills_lose_no_commit_and_disturb_no_member(tmp_path: Path) -> None:
    """Every acknowledged commit is there, members go on, generations never go back."""
    random = Random(6)
    workers = [Worker(number) for number in range(WORKERS)]
    gateway = GatewayProcess(tmp_path / "data")
    await asyncio.to_thread(gateway.start)
    async with await AsyncClient.connect(gateway.host, gateway.port) as client:
        await AdminClient(client).create_topic(TOPIC)
    try:
        for kill in range(KILLS):
            running = [
                asyncio.ensure_future(one.run(gateway, is_new=kill == 0, rejoins=number % 2 == 0))
                for number, one in enumerate(workers)
            ]
            await asyncio.wait(running, timeout=random.uniform(0.1, 0.4))
            await asyncio.to_thread(gateway.kill)
            for one in running:
                await one
            await asyncio.to_thread(gateway.start)
            async with await AsyncClient.connect(gateway.host, gateway.port) as client:
                for worker in workers:
                    offsets = await GroupClient(client).offsets(worker.group_id)
                    stored = offsets[TOPIC, 0].offset
                    assert worker.acknowledged <= stored <= worker.sent
        assert all(one.acknowledged > KILLS for one in workers)
    finally:
        if gateway.running:
            await asyncio.to_thread(gateway.stop)
