"""Group members and committers as bare sockets with ready-made frames, for any Kafka server.

One thread and one epoll, so that the generator takes little of the cores that it shares
with the server. Times are perf_counter seconds, taken before a frame is sent and after it was read:
what they say of a server has the kernel's and the generator's own part in it.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.heartbeat import HeartbeatRequest
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
from kgw.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.protocol.schema import Request

TOPIC = "bench"
CLIENT_ID = "bench"
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION, FETCH_VERSION = 5, 3, 3, 8, 11
METADATA_BYTES = 100
ASSIGNMENT = bytes(60)
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
HEARTBEAT_INTERVAL_S = 3.0
FETCH_WAIT_MS = 500
MEMBER_ID_REQUIRED = 79
CORRELATION_ID_AT = 8
"""Size, API key and version come before the correlation id in a request's frame."""
ERROR_AT = 8
"""Correlation id and throttle time come before the error in the answers that are read here."""
STUCK_S = 120.0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def frame_of(message: Request, version: int) -> bytearray:
    """A whole frame, with room for the correlation id."""
    return bytearray(b"".join(request_frame(message, version, 0, CLIENT_ID)))


class Wire:
    """A connection that is read when the poller says so."""

    def __init__(self, poller: Poller) -> None:
        self.socket = socket.create_connection((poller.host, poller.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.on_frame: Callable[[bytearray], None] = lambda _: None
        poller.add(self)

    def send(self, frame: bytearray, correlation_id: int = 0) -> None:
        """Send one frame; a request is never larger than what the kernel takes."""
        _INT32.pack_into(frame, CORRELATION_ID_AT, correlation_id)
        self.socket.sendall(frame)

    def read(self) -> None:
        """Read what has come and hand over the frames, without their length."""
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            message = "the server closed a connection"
            raise ConnectionError(message)
        received = self.received
        received += chunk
        while len(received) >= _INT32.size:
            end = _INT32.size + _INT32.unpack_from(received)[0]
            if len(received) < end:
                break
            frame = received[_INT32.size : end]
            del received[:end]
            self.on_frame(frame)


class Poller:
    """All connections of one load, and what is to be done at which time."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._epoll = select.epoll()
        self._wires: dict[int, Wire] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0

    def add(self, wire: Wire) -> None:
        """Read this connection from now on."""
        self._wires[wire.socket.fileno()] = wire
        self._epoll.register(wire.socket, select.EPOLLIN)

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        """Call something at a time of perf_counter."""
        self._timer_count += 1
        heapq.heappush(self._timers, (when_s, self._timer_count, call))

    def run(self, is_done: Callable[[], bool]) -> None:
        """Read and call until it is done. Raises TimeoutError when nothing comes any more."""
        heard_s = time.perf_counter()
        while not is_done():
            now_s = time.perf_counter()
            while self._timers and self._timers[0][0] <= now_s:
                heapq.heappop(self._timers)[2]()
            wait_s = max(0.0, self._timers[0][0] - now_s) if self._timers else 1.0
            ready = self._epoll.poll(min(wait_s, 1.0))
            for descriptor, _ in ready:
                self._wires[descriptor].read()
            if ready:
                heard_s = time.perf_counter()
            elif time.perf_counter() - heard_s > STUCK_S:
                message = "the server answers no more"
                raise TimeoutError(message)

    def close(self) -> None:
        """Close every connection."""
        for wire in self._wires.values():
            wire.socket.close()
        self._epoll.close()
        self._wires.clear()


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
        """From the last JoinGroup to the last SyncGroup answer, without the leader's own time."""
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


def rebalance(groups: Sequence[GroupLoad], spread_s: float, *, seed: int = 0) -> list[float]:
    """Have all members of all groups join; return each group's coordinator time.

    With a spread, groups begin one after the other in that time, each with all its members at once;
    without, every member of every group joins at once, in no order.
    """
    poller = groups[0].poller
    for group in groups:
        group.prepare()
    if spread_s:
        began_s = time.perf_counter() + 0.05
        for number, group in enumerate(groups):
            for member in group.members:
                poller.at(began_s + spread_s * number / len(groups), member.join)
    else:
        members = [member for group in groups for member in group.members]
        random.Random(seed).shuffle(members)
        for member in members:
            member.join()
    poller.run(lambda: not any(group.unsynced for group in groups))
    return [group.coordinator_s for group in groups]


class Heartbeats(NamedTuple):
    """What members saw that only stay in their groups."""

    latencies_s: list[float]
    fetches: int


def stay(groups: Sequence[GroupLoad], fetching: Sequence[Wire], seconds: float) -> Heartbeats:
    """Heartbeat every 3 s, evenly spread, and keep a long poll on the connections `fetching`."""
    poller = groups[0].poller
    latencies: list[float] = []
    end_s = time.perf_counter() + seconds
    in_flight = [0]
    fetches = [0]
    members = [member for group in groups for member in group.members]
    for number, member in enumerate(members):
        beat = _Beat(poller, member, latencies, in_flight, end_s)
        first_s = time.perf_counter() + HEARTBEAT_INTERVAL_S * number / len(members)
        poller.at(first_s, beat.send)
    for number, wire in enumerate(fetching):
        frame = fetch_frame(number)

        def again(_: bytearray, wire: Wire = wire, frame: bytearray = frame) -> None:
            in_flight[0] -= 1
            fetches[0] += 1
            if time.perf_counter() < end_s:
                in_flight[0] += 1
                wire.send(frame)

        wire.on_frame = again
        in_flight[0] += 1
        first_s = time.perf_counter() + FETCH_WAIT_MS / 1000 * number / len(fetching)
        poller.at(first_s, partial(wire.send, frame))
    poller.run(lambda: time.perf_counter() >= end_s and not in_flight[0])
    return Heartbeats(latencies, fetches[0])


class _Beat:
    """The heartbeats of one member."""

    def __init__(
        self,
        poller: Poller,
        member: MemberLoad,
        latencies: list[float],
        in_flight: list[int],
        end_s: float,
    ) -> None:
        self.poller = poller
        self.wire = member.wire
        self.frame = member.heartbeat_frame()
        self.latencies = latencies
        self.in_flight = in_flight
        self.end_s = end_s
        self.sent_s = 0.0
        self.wire.on_frame = self.answered

    def send(self) -> None:
        self.sent_s = time.perf_counter()
        if self.sent_s >= self.end_s:
            return
        self.in_flight[0] += 1
        self.poller.at(self.sent_s + HEARTBEAT_INTERVAL_S, self.send)
        self.wire.send(self.frame)

    def answered(self, frame: bytearray) -> None:
        error = _INT16.unpack_from(frame, ERROR_AT)[0]
        assert not error, f"Heartbeat was answered with {error}"
        self.latencies.append(time.perf_counter() - self.sent_s)
        self.in_flight[0] -= 1


def fetch_frame(partition_index: int) -> bytearray:
    """A long poll on one partition, without a fetch session."""
    partition = FetchPartition(
        partition=partition_index,
        fetch_offset=0,
        current_leader_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    return frame_of(request, FETCH_VERSION)


def commit_frame(group_id: str, partitions: range, offset: int) -> bytearray:
    """Commit the same offset for some partitions, from outside of any membership."""
    return frame_of(
        OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                        for index in partitions
                    ],
                )
            ],
        ),
        COMMIT_VERSION,
    )


class _Committer:
    """A connection that commits, one request after the other."""

    def __init__(
        self, poller: Poller, number: int, batch: int, latencies: list[float], end_s: float
    ) -> None:
        first = 0 if batch > 1 else number
        group_id = f"committer-{number}"
        partitions = range(first, first + batch)
        self._frames = [commit_frame(group_id, partitions, offset) for offset in range(1, 5)]
        self._wire = Wire(poller)
        self._wire.on_frame = self._answered
        self._latencies = latencies
        self._end_s = end_s
        self._sent = 0
        self._sent_s = 0.0
        self._answer = b""
        self.is_done = False

    def send(self) -> None:
        self._sent_s = time.perf_counter()
        if self._sent_s >= self._end_s:
            self.is_done = True
            return
        self._sent += 1
        self._wire.send(self._frames[self._sent % len(self._frames)], self._sent)

    def _answered(self, frame: bytearray) -> None:
        assert _INT32.unpack_from(frame)[0] == self._sent
        # All answers are alike: the first is looked into, the others are compared with it.
        body = bytes(frame[_INT32.size :])
        if not self._answer:
            refuse_errors(frame)
            self._answer = body
        assert body == self._answer
        self._latencies.append(time.perf_counter() - self._sent_s)
        self.send()


def refuse_errors(frame: bytearray) -> None:
    """Fail when a commit was not accepted for every partition."""
    answer: Any = decode_response(frame, OffsetCommitRequest.api_key, COMMIT_VERSION)[1]
    assert isinstance(answer, OffsetCommitResponse)
    errors = {one.error_code for topic in answer.topics for one in topic.partitions}
    assert errors == {0}, f"OffsetCommit was answered with {errors}"


def commit(host: str, port: int, connections: int, batch: int, seconds: float) -> list[float]:
    """Commit `batch` partitions a request for some seconds; return how long each request took."""
    latencies: list[float] = []
    poller = Poller(host, port)
    end_s = time.perf_counter() + seconds
    committers = [
        _Committer(poller, number, batch, latencies, end_s) for number in range(connections)
    ]
    for one in committers:
        one.send()
    poller.run(lambda: all(one.is_done for one in committers))
    poller.close()
    return latencies


def formed(poller: Poller, names: Sequence[str], member_count: int) -> list[GroupLoad]:
    """Groups whose members have joined once.

    A server waits for members that it has given an id to: all are asked for first, so that no group
    begins without those that come late.
    """
    groups = [GroupLoad(poller, name, member_count) for name in names]
    rebalance(groups, 0.0)
    rebalance(groups, 0.0)
    return groups
