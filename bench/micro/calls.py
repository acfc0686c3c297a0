"""How many Python functions a warm request calls, in how many files, and what it costs.

A server runs in this process, with the embedded backend, strict, or over a SeaweedFS that is
started for it; instead of a socket there is a transport that hands over bytes. For each kind of
request: the calls of functions of kgw in all threads and the files of these functions, from the
request's first byte until nothing runs any more (the median of some requests); how many of the
calls, and which files, come before the last byte of the answer; and the processor time of the
process for a request that is sent when the one before is answered (the median of several loops).
The processor time includes what the loop and this client take, and the kernel's for writing and
syncing; the calls do not.

How many come before the answer is the least of all requests, since a thread that works behind an
answer may be faster than it. `end` commits a transaction of one partition. Its answer leaves once
the decision is durable; the calls behind the answer write the marker to the partition and note that
the transaction is complete.

    scripts/bench --micro calls [--requests N] [--rounds N] [--directory DIR] [--seaweedmq]
        [--list KIND] [KIND...]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import statistics
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import kgw
from kgw.backend.registry import open_backend
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.config.listeners import Listener
from kgw.errors import ErrorCode
from kgw.gateway import Gateway
from kgw.handlers.dispatch import Dispatcher
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.end_txn import EndTxnRequest
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest
from kgw.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kgw.protocol.messages.sync_group import SyncGroupRequest
from kgw.server.connection import KafkaConnection
from kgw.server.limits import limits_from
from kgw.server.server import Server
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from kgw.protocol.schema import Request, Response

PACKAGE = str(Path(kgw.__file__).parent)
TOPIC = "measured"
PARTITIONS = 4
VALUE = bytes(100)
COUNTED = 21
WARM = 50
SETTLING_S = 0.003
QUIET_LOOKS = 4
"""After so many looks without a call nothing runs any more: what a thread does behind an answer,
and what waits for a disk or for SeaweedFS, is counted, too."""
TRANSACTIONAL_ID = "measured"


Calls = Counter[tuple[str, str]]
"""How often each function was called, by its file and its name."""


class Counted(NamedTuple):
    """The calls of one request."""

    until_answer: Calls
    """Up to the last byte of the answer."""
    afterwards: Calls

    @property
    def calls(self) -> Calls:
        """All of them. Not to be asked for while threads are counted."""
        return self.until_answer + self.afterwards

    def total(self) -> int:
        """Return their number so far."""
        # A sum of a dictionary's values is not interrupted by other threads.
        return self.until_answer.total() + self.afterwards.total()


class Counting:
    """Counts calls of functions of kgw, in this thread and those that are started after it."""

    def __init__(self) -> None:
        self._calls: Calls | None = None

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @staticmethod
    def remove() -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def count_into(self, calls: Calls | None) -> None:
        """Count from now on into this, or nothing."""
        self._calls = calls

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        calls = self._calls
        if calls is not None and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                calls[code.co_filename[len(PACKAGE) + 1 :], code.co_qualname] += 1


class Wire(asyncio.Transport):
    """Both ends of a connection: what is sent arrives at once, answers are looked for in bytes."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.on_answer: Callable[[], object] = lambda: None
        """Called right after the last byte of the last answer."""
        self._written = bytearray()
        self._due = 0
        self._answered: asyncio.Future[None] | None = None
        self._connection = KafkaConnection(server, "PLAINTEXT")
        self._connection.connection_made(self)

    async def ask(self, frames: bytes, count: int = 1) -> bytes:
        """Send so many requests in one piece, and return all of their answers."""
        self._due = count
        self._written.clear()
        answered = self._answered = asyncio.get_running_loop().create_future()
        self._connection.get_buffer(-1)[: len(frames)] = frames
        self._connection.buffer_updated(len(frames))
        await answered
        return bytes(self._written)

    def lose(self) -> None:
        self._connection.connection_lost(None)

    def write(self, data: Any) -> None:
        self._written += data
        self._look()

    def writelines(self, list_of_data: Any) -> None:
        self._written += b"".join(list_of_data)
        self._look()

    def _look(self) -> None:
        position = count = 0
        written = self._written
        while position < len(written):
            position += 4 + int.from_bytes(written[position : position + 4], "big")
            count += 1
        if count == self._due and position == len(written) and self._answered is not None:
            self.on_answer()
            self._answered.set_result(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9092) if name in {"peername", "sockname"} else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


def frame_of(request: Request, version: int) -> bytes:
    return b"".join(request_frame(request, version, 1, "calls"))


def produce(partitions: int) -> bytes:
    batch = bytes(make_batch([VALUE]).buffer)
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return frame_of(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)


def fetch(offset: int) -> bytes:
    """Return what reads one partition, and waits for 1 ms where nothing is."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return frame_of(
        FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
        ),
        12,
    )


def commit() -> bytes:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    return frame_of(OffsetCommitRequest(group_id="commits", topics=[topic]), 8)


def join(group_id: str, member_id: str) -> bytes:
    return frame_of(
        JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(20))],
        ),
        9,
    )


def sync(group_id: str, member_id: str, generation: int) -> bytes:
    return frame_of(
        SyncGroupRequest(group_id=group_id, generation_id=generation, member_id=member_id), 3
    )


def heartbeat(group_id: str, member_id: str, generation: int) -> bytes:
    return frame_of(
        HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id), 4
    )


def answer(frame: bytes, api_key: int, version: int) -> Any:
    response: Response
    _, response = decode_response(memoryview(frame)[4:], api_key, version)
    return response


class Kind:
    """One kind of request: `count` of them in one piece, and what is asked uncounted before."""

    def __init__(self, frame: bytes | Callable[[], bytes], count: int = 1) -> None:
        self._frame = frame
        self.count = count

    async def before(self, wire: Wire) -> None:
        """Bring the server to where the request has something to do."""

    def frame(self) -> bytes:
        return (self._frame if isinstance(self._frame, bytes) else self._frame()) * self.count


class Joining(Kind):
    """A lone member, the leader, that joins again: each time a generation forms at once."""

    def __init__(self, group_id: str) -> None:
        super().__init__(b"")
        self._group_id = group_id
        self.member_id = ""
        self.generation = 0

    async def before(self, wire: Wire) -> None:
        joined = answer(await wire.ask(join(self._group_id, self.member_id)), 11, 9)
        if joined.error_code:  # MEMBER_ID_REQUIRED
            self.member_id = joined.member_id
            joined = answer(await wire.ask(join(self._group_id, self.member_id)), 11, 9)
        self.generation = joined.generation_id
        await wire.ask(sync(self._group_id, self.member_id, self.generation))

    def frame(self) -> bytes:
        return join(self._group_id, self.member_id)


class Beating(Joining):
    """A heartbeat of a member of a stable group."""

    is_in = False

    async def before(self, wire: Wire) -> None:
        if not self.is_in:
            await super().before(wire)
            self.is_in = True

    def frame(self) -> bytes:
        return heartbeat(self._group_id, self.member_id, self.generation)


class EndingTransaction(Kind):
    """The commit of a transaction that has written one batch to one partition."""

    def __init__(self) -> None:
        super().__init__(b"")
        self._producer_id = self._producer_epoch = -1

    async def before(self, wire: Wire) -> None:
        # An epoch of its own for each: sequences begin anew.
        request = InitProducerIdRequest(
            transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000
        )
        begun = await retried(wire, frame_of(request, 5), ApiKey.INIT_PRODUCER_ID, 5)
        self._producer_id, self._producer_epoch = begun.producer_id, begun.producer_epoch
        batch = make_batch(
            [VALUE],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = PartitionProduceData(index=0, records=bytes(batch.buffer))
        produced = ProduceRequest(
            transactional_id=TRANSACTIONAL_ID,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        await retried(wire, frame_of(produced, 12), ApiKey.PRODUCE, 12)

    def frame(self) -> bytes:
        return frame_of(
            EndTxnRequest(
                transactional_id=TRANSACTIONAL_ID,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                committed=True,
            ),
            5,
        )


async def retried(wire: Wire, frame: bytes, api_key: int, version: int) -> Any:
    """Ask again while the transaction before is being completed."""
    while True:
        found = answer(await wire.ask(frame), api_key, version)
        error_code = (
            found.responses[0].partition_responses[0].error_code
            if api_key == ApiKey.PRODUCE
            else found.error_code
        )
        if not error_code:
            return found
        if error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            message = f"{ApiKey(api_key).name} was refused: {error_code}"
            raise RuntimeError(message)
        await asyncio.sleep(SETTLING_S)


async def kinds(gateway: Gateway, wire: Wire) -> dict[str, Kind]:
    topic = await gateway.topic_manager.create(TOPIC, PARTITIONS, {})
    await wire.ask(produce(PARTITIONS))
    log = topic.partitions[0].log
    return {
        "produce": Kind(produce(1)),
        "produce, 5 at once": Kind(produce(1), 5),
        "produce to 4 partitions": Kind(produce(PARTITIONS)),
        "fetch, cached": Kind(lambda: fetch(log.end_offset - 1)),
        "fetch, at the end": Kind(lambda: fetch(log.end_offset)),
        "commit": Kind(commit()),
        "join": Joining("joins"),
        "heartbeat": Beating("beats"),
        "end": EndingTransaction(),
    }


async def count_calls(wire: Wire, kind: Kind, counting: Counting) -> list[Counted]:
    """Return the calls of some requests, those with few calls first."""
    found: list[Counted] = []
    for number in range(WARM + COUNTED):
        await kind.before(wire)
        frame = kind.frame()
        if number < WARM:
            await wire.ask(frame, kind.count)
            continue
        await asyncio.sleep(SETTLING_S)
        counted = Counted(Counter(), Counter())
        wire.on_answer = partial(counting.count_into, counted.afterwards)
        counting.count_into(counted.until_answer)
        await wire.ask(frame, kind.count)
        await settle(counted)
        counting.count_into(None)
        wire.on_answer = lambda: None
        found.append(counted)
    return sorted(found, key=Counted.total)


def median(found: list[Counted]) -> Counted:
    return found[len(found) // 2]


async def settle(counted: Counted) -> None:
    """Wait until no function has been called for a while."""
    quiet = 0
    while quiet < QUIET_LOOKS:
        before = counted.total()
        await asyncio.sleep(SETTLING_S)
        quiet = quiet + 1 if counted.total() == before else 0


async def cpu_us(wire: Wire, kind: Kind, requests: int) -> float:
    """Return the processor time of the process for one request."""
    used_s = 0.0
    for _ in range(requests // kind.count):
        await kind.before(wire)
        frame = kind.frame()
        began_s = process_time()
        await wire.ask(frame, kind.count)
        used_s += process_time() - began_s
    return used_s / (requests // kind.count * kind.count) * 1e6


Settings = dict[str, str]
"""Where a measured server keeps its records, as settings of kgw."""


async def measure(
    storage: Settings, arguments: argparse.Namespace, counting: Counting | None
) -> dict[str, Any]:
    config = Config.of(**storage, lag_interval_ms=0)
    clock = SystemClock()
    gateway = Gateway(config, open_backend(config, clock), clock)
    await gateway.start()
    results: dict[str, Any] = {}
    try:
        gateway.placement.advertise({"PLAINTEXT": Listener("PLAINTEXT", "127.0.0.1", 9092)})
        server = Server(Dispatcher(gateway), limits_from(config), clock, gateway.metrics)
        wire = Wire(server)
        gc.freeze()
        for name, kind in (await kinds(gateway, wire)).items():
            if arguments.kinds and name not in arguments.kinds:
                continue
            if counting is not None:
                results[name] = await count_calls(wire, kind, counting)
                continue
            await cpu_us(wire, kind, WARM)
            results[name] = await cpu_us(wire, kind, arguments.requests)
        wire.lose()
    finally:
        await gateway.aclose()
    return results


def run(
    storage: Settings, arguments: argparse.Namespace, counting: Counting | None = None
) -> dict[str, Any]:
    from uvloop import Loop

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(measure(storage, arguments, counting))


def count(storage: Settings, arguments: argparse.Namespace) -> dict[str, list[Counted]]:
    """Return the calls of the requests of each kind, those with few calls first."""
    counting = Counting()
    counting.install()
    try:
        return run(storage, arguments, counting)
    finally:
        counting.remove()


@contextmanager
def storages(data: Path, *, is_seaweedmq: bool) -> Iterator[Callable[[str], Settings]]:
    """Yield a function that returns the settings of an empty storage; its servers run meanwhile."""
    if not is_seaweedmq:
        yield lambda name: {"log_dirs": str(data / name)}
        return
    # Most runs need none of it.
    from bench.harness.seaweedmq import VOLUMES
    from tests.seaweedfs.binary import fetch
    from tests.seaweedfs.cluster import Cluster, Setup

    fetch()
    with Cluster(data / "seaweedfs", Setup(flags=VOLUMES)).running() as cluster:
        yield lambda name: {"backend": cluster.url(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--seaweedmq", action="store_true", help="over a SeaweedFS")
    parser.add_argument("--list", metavar="KIND", help="print each function and its calls")
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    arguments = parser.parse_args()
    if arguments.list:
        arguments.kinds = [arguments.list]
    data = Path(tempfile.mkdtemp(prefix="bench-calls-", dir=arguments.directory))
    rounds, in_memory = [], []
    try:
        with storages(data, is_seaweedmq=arguments.seaweedmq) as storage:
            counted = count(storage("counted"), arguments)
            if arguments.list:
                print_calls(median(counted[arguments.list]))
                return
            for number in range(arguments.rounds):
                rounds.append(run(storage(f"round{number}"), arguments))
                if not arguments.seaweedmq:
                    in_memory.append(run({"backend": "memory"}, arguments))
    finally:
        shutil.rmtree(data)
    for name, requests in counted.items():
        result: dict[str, float] = {
            "calls": median(requests).total(),
            "files": files_of(median(requests).calls),
            # What comes behind an answer may overtake it.
            "calls_until_answer": min(one.until_answer.total() for one in requests),
            "files_until_answer": min(files_of(one.until_answer) for one in requests),
        }
        for figure, found in (("cpu_us", rounds), ("cpu_us_in_memory", in_memory)):
            if found:
                result[figure] = round(statistics.median(times[name] for times in found), 1)
        print(json.dumps({name: result}))


def print_calls(counted: Counted) -> None:
    """Print how often each function was called, before the answer's end and in all."""
    for (path, name), calls in sorted(counted.calls.items()):
        print(f"{counted.until_answer[path, name]:4} {calls:4} {path} {name}")


def files_of(calls: Calls) -> int:
    return len({path for path, _ in calls})


if __name__ == "__main__":
    main()
