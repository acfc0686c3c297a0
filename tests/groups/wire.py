"""Group members that speak the protocol itself: over sockets, or to a gateway without any."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.leave_group import LeaveGroupResponse
from kgw.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kgw.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from tests import patience
from tests.handlers.support import request_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.protocol.schema import Request, Response

    Ask = Callable[[Request, int], Awaitable[Response]]
    """Sends a request in a version and returns its answer."""

PROTOCOL_TYPE = "workers"
GO_ON = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a member answers by joining again, under the id that it has."""


def commit_request(
    group_id: str,
    member_id: str,
    instance: str | None,
    generation: int,
    topic: str,
    offsets: dict[int, int],
) -> OffsetCommitRequest:
    """Return an OffsetCommit for partitions of one topic, for versions 1 to 9."""
    partitions = [
        {"partition_index": number, "committed_offset": offset}
        for number, offset in offsets.items()
    ]
    request: OffsetCommitRequest = request_of(
        ApiKey.OFFSET_COMMIT,
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[{"name": topic, "partitions": partitions}],
    )
    return request


def errors_of(response: Response) -> list[ErrorCode]:
    """Return every error code of an answer to one of the requests that members send."""
    if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
        return [ErrorCode(one.error_code) for each in response.topics for one in each.partitions]
    if isinstance(response, LeaveGroupResponse):
        codes = [response.error_code, *(one.error_code for one in response.members)]
        return [ErrorCode(code) for code in (codes[1:] if not codes[0] and codes[1:] else codes)]
    answer: Any = response
    return [ErrorCode(answer.error_code)]


class WireMember:
    """A member, and what it knows of its group; `ask` may be put in place of another."""

    def __init__(
        self,
        group_id: str,
        ask: Ask,
        *,
        instance: str | None = None,
        session_ms: int = 6_000,
        rebalance_ms: int = 10_000,
    ) -> None:
        self.group_id = group_id
        self.ask = ask
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.others: tuple[str, ...] = ()
        """Everybody's member ids, to the leader alone."""
        self._session_ms = session_ms
        self._rebalance_ms = rebalance_ms

    def _request(self, api: ApiKey, **fields: Any) -> Any:
        """Return a request that speaks for this member in its group."""
        return request_of(
            api,
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            **fields,
        )

    async def join(self) -> ErrorCode:
        """Take part in a generation; asks again with the id that it is given for that."""
        self.assignment, self.others = b"", ()
        answer: Any = await self.ask(self.join_request(), 5)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self.join()
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.others = tuple(one.member_id for one in answer.members)
        return code

    def join_request(self) -> Any:
        """Return what `join` sends."""
        return self._request(
            ApiKey.JOIN_GROUP,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            protocol_type=PROTOCOL_TYPE,
            protocols=[{"name": "any", "metadata": b""}],
        )

    async def sync(self) -> ErrorCode:
        """Get this member's part; a leader gives everybody a part of the generation."""
        answer: Any = await self.ask(self.sync_request(), 3)
        self.assignment = bytes(answer.assignment)
        return ErrorCode(answer.error_code)

    def sync_request(self) -> Any:
        """Return what `sync` sends."""
        assignments = [
            {"member_id": one, "assignment": f"{self.generation}/{one}".encode()}
            for one in self.others
        ]
        return self._request(
            ApiKey.SYNC_GROUP, generation_id=self.generation, assignments=assignments
        )

    async def heartbeat(self) -> ErrorCode:
        """Say that it lives."""
        request = self._request(ApiKey.HEARTBEAT, generation_id=self.generation)
        (code,) = errors_of(await self.ask(request, 3))
        if code is not ErrorCode.NONE:
            self.assignment = b""
        return code

    async def commit(self, topic: str, offsets: dict[int, int]) -> ErrorCode:
        """Commit, and return the first error, or NONE."""
        request = commit_request(
            self.group_id, self.member_id, self.instance, self.generation, topic, offsets
        )
        codes = errors_of(await self.ask(request, 8))
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

    async def leave(self) -> ErrorCode:
        """Leave, a static member as well."""
        identity = {"member_id": self.member_id, "group_instance_id": self.instance}
        request = request_of(ApiKey.LEAVE_GROUP, group_id=self.group_id, members=[identity])
        (code,) = errors_of(await self.ask(request, 3))
        self.member_id, self.assignment = "", b""
        return code

    async def live(self, done: Callable[[], bool]) -> None:
        """Be a member, joining again whenever asked to, until something has come about."""
        code = ErrorCode.UNKNOWN_MEMBER_ID if not self.assignment else await self.heartbeat()
        while not done():
            if code is not ErrorCode.NONE:
                code = await self.join()
                if code is ErrorCode.NONE:
                    code = await self.sync()
                if code is not ErrorCode.NONE:
                    known = code in GO_ON or code is ErrorCode.UNKNOWN_MEMBER_ID
                    assert known, f"{self.member_id}: {code.name}"
                    await asyncio.sleep(0)
                    continue
            await asyncio.sleep(0.001)
            code = await self.heartbeat()


def is_settled(members: Sequence[WireMember]) -> bool:
    """Whether all have a part of one generation, each another one."""
    (generation, *others) = {one.generation for one in members}
    parts = {one.assignment for one in members}
    return (
        not others
        and len(parts) == len(members)
        and all(part.startswith(f"{generation}/".encode()) for part in parts)
    )


async def settle(members: Sequence[WireMember], timeout_s: float = 10.0) -> None:
    """Let members join until all are in one generation. Raises TimeoutError."""
    async with asyncio.timeout(patience.seconds(timeout_s)), asyncio.TaskGroup() as tasks:
        for one in members:
            tasks.create_task(one.live(lambda: is_settled(members)))
