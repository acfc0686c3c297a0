"""Members of consumer groups as bare sockets with ready-made frames, for any Kafka server."""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.loads.frames import CLIENT_ID, HEARTBEAT_VERSION, frame_of
from bench.loads.poller import Wire
from kgw.protocol.framing import decode_response
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kgw.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.loads.poller import Poller

JOIN_VERSION, SYNC_VERSION = 5, 3
METADATA_BYTES = 100
ASSIGNMENT = bytes(60)
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
HEARTBEAT_INTERVAL_S = 3.0
MEMBER_ID_REQUIRED = 79
ERROR_AT = 8
"""Correlation id and throttle time come before the error in the answers that are read here."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class GroupLoad:
    """A group whose members join, sync and heartbeat; what its last rebalance took."""

    def __init__(self, poller: Poller, group_id: str, member_count: int) -> None:
        self.group_id = group_id
        self.poller = poller
        self.members = [MemberLoad(poller, self, index) for index in range(member_count)]
        self.round = 0
        self.unsynced = 0
        self.last_join_s = 0.0
        self.leader_heard_s = 0.0
        self.leader_sent_s = 0.0
        self.last_answer_s = 0.0

    @property
    def coordinator_s(self) -> float:
        """From before the last JoinGroup to the last SyncGroup's answer, less the leader's time."""
        think_s = self.leader_sent_s - self.leader_heard_s
        return self.last_answer_s - self.last_join_s - think_s

    def prepare(self) -> None:
        """Make the frames of the next round ready: a changed subscription makes all take part."""
        self.round += 1
        self.unsynced = len(self.members)
        for member in self.members:
            member.prepare()

    def assignments(self) -> list[SyncGroupRequestAssignment]:
        """What the leader hands out."""
        return [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=ASSIGNMENT)
            for one in self.members
        ]


class MemberLoad:
    """One member on a connection of its own."""

    def __init__(self, poller: Poller, group: GroupLoad, index: int) -> None:
        self.group = group
        self.index = index
        self.wire = Wire(poller)
        self.wire.on_frame = self._joined
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self._join = bytearray()
        self._sync = bytearray()
        self._lead = bytearray()
        # Behind the header (with the client id) and the group id, in SyncGroup v3.
        self._generation_at = 14 + len(CLIENT_ID) + 2 + len(group.group_id)

    def prepare(self) -> None:
        """Make this round's frames."""
        metadata = self.group.round.to_bytes(4, "big") + bytes(METADATA_BYTES - 4)
        self._join = frame_of(
            JoinGroupRequest(
                group_id=self.group.group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                protocol_type="bench",
                protocols=[JoinGroupRequestProtocol(name="any", metadata=metadata)],
            ),
            JOIN_VERSION,
        )
        self._sync = self._sync_frame([])
        self._lead = self._sync_frame(self.group.assignments()) if self.leads else bytearray()
        self.wire.on_frame = self._joined

    def join(self) -> None:
        """Take part in the round."""
        self.group.last_join_s = time.perf_counter()
        self.wire.send(self._join)

    def _sync_frame(self, parts: list[SyncGroupRequestAssignment]) -> bytearray:
        request = SyncGroupRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=parts,
        )
        return frame_of(request, SYNC_VERSION)

    def _joined(self, frame: bytearray) -> None:
        heard_s = time.perf_counter()
        error = _INT16.unpack_from(frame, ERROR_AT)[0]
        if error:
            assert error == MEMBER_ID_REQUIRED, f"JoinGroup was answered with {error}"
            self.member_id = decoded_join(frame).member_id
            self.group.unsynced -= 1
            return
        (self.generation,) = _INT32.unpack_from(frame, ERROR_AT + 2)
        self.leads, self.member_id = leads(frame)
        self.wire.on_frame = self._synced
        if not self.leads:
            _INT32.pack_into(self._sync, self._generation_at, self.generation)
            self.wire.send(self._sync)
            return
        self.group.leader_heard_s = heard_s
        sync = self._lead or self._sync_frame(self.group.assignments())
        _INT32.pack_into(sync, self._generation_at, self.generation)
        self.group.leader_sent_s = time.perf_counter()
        self.wire.send(sync)

    def _synced(self, frame: bytearray) -> None:
        error = _INT16.unpack_from(frame, ERROR_AT)[0]
        assert not error, f"SyncGroup was answered with {error}"
        self.group.last_answer_s = time.perf_counter()
        self.group.unsynced -= 1

    def heartbeat_frame(self) -> bytearray:
        """A heartbeat of the generation that the member is in."""
        return frame_of(
            HeartbeatRequest(
                group_id=self.group.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
            ),
            HEARTBEAT_VERSION,
        )


def decoded_join(frame: bytearray) -> JoinGroupResponse:
    """The answer to a JoinGroup, as a message."""
    answer = decode_response(frame, JoinGroupRequest.api_key, JOIN_VERSION)[1]
    assert isinstance(answer, JoinGroupResponse)
    return answer


def leads(frame: bytearray) -> tuple[bool, str]:
    """Whether the member that this answer is for leads, and its id; read by hand, for speed."""
    position = ERROR_AT + 6
    strings = []
    for _ in range(3):
        size = _INT16.unpack_from(frame, position)[0]
        position += 2
        strings.append(frame[position : position + size])
        position += size
    _protocol, leader_id, member_id = strings
    return leader_id == member_id, member_id.decode()


class Rebalanced(NamedTuple):
    """What a rebalance took: as the members see it, and of each group what the coordinator took."""

    elapsed_s: float
    coordinator_s: list[float]


def rebalance(groups: Sequence[GroupLoad], *, seed: int = 0) -> Rebalanced:
    """Have every member of every group join at once, in no order, and sync."""
    for group in groups:
        group.prepare()
    members = [member for group in groups for member in group.members]
    random.Random(seed).shuffle(members)
    began_s = time.perf_counter()
    for member in members:
        member.join()
    groups[0].poller.run(lambda: not any(group.unsynced for group in groups))
    elapsed_s = time.perf_counter() - began_s
    return Rebalanced(elapsed_s, [group.coordinator_s for group in groups])


class Heartbeats:
    """A heartbeat of every member every 3 s, evenly spread, for as long as the poller runs."""

    def __init__(
        self, groups: Sequence[GroupLoad], interval_s: float = HEARTBEAT_INTERVAL_S
    ) -> None:
        self.latencies_s: list[float] = []
        members = [member for group in groups for member in group.members]
        began_s = time.perf_counter()
        for number, member in enumerate(members):
            first_s = began_s + interval_s * number / len(members)
            groups[0].poller.at(first_s, _Beat(member, interval_s, self.latencies_s).send)


class _Beat:
    """The heartbeats of one member."""

    def __init__(self, member: MemberLoad, interval_s: float, latencies_s: list[float]) -> None:
        self._interval_s = interval_s
        self._wire = member.wire
        self._poller = member.group.poller
        self._frame = member.heartbeat_frame()
        self._latencies_s = latencies_s
        self._sent_s = 0.0
        self._wire.on_frame = self._answered

    def send(self) -> None:
        self._sent_s = time.perf_counter()
        self._poller.at(self._sent_s + self._interval_s, self.send)
        self._wire.send(self._frame)

    def _answered(self, frame: bytearray) -> None:
        error = _INT16.unpack_from(frame, ERROR_AT)[0]
        assert not error, f"Heartbeat was answered with {error}"
        self._latencies_s.append(time.perf_counter() - self._sent_s)


def formed(poller: Poller, names: Sequence[str], member_count: int) -> list[GroupLoad]:
    """Groups whose members have joined once.

    A server waits for members that it has given an id to: all are asked for first, so that no group
    begins without those that come late.
    """
    groups = [GroupLoad(poller, name, member_count) for name in names]
    rebalance(groups)
    rebalance(groups)
    return groups
