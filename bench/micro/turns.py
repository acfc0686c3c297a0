"""How long each API holds the event loop, asked about ten thousand partitions at once.

A server with sockets and the embedded backend runs in this process, watched as by
`kgw.debug.slow.callback.ms`; a thread is its client. For each request: the longest thing that was
run without a break, in processor time of the loop's thread, and its name.

    scripts/bench --micro turns [--topics N] [--partitions N] [--rounds N] [--root DIR] [ONLY...]

`ONLY` are beginnings of names; `transaction` is one over 5,000 partitions, `small` reads 16 MB in
batches of one record.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import socket
import struct
import sys
import tempfile
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, cast

import kgw.server.slow_callbacks
from kgw.backend.registry import open_backend
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.config.listeners import Listener
from kgw.gateway import Gateway
from kgw.handlers.produce import PARTITIONS_PER_TURN
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, response_class
from kgw.protocol.framing import decode_response_header, request_frame
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kgw.protocol.messages.end_txn import EndTxnRequest
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kgw.protocol.messages.metadata import MetadataRequest
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kgw.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder
from kgw.server.limits import limits_from
from kgw.server.server import Server
from kgw.server.slow_callbacks import SlowCallbacks, StackWatch, WatchedDispatcher, watched_loop
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
    from kgw.protocol.schema import Request, Response

SEEN_S = 0.0015
TOLD_S = 0.003
GROUP = "measured"
TRANSACTIONAL_ID = "measured"
TRANSACTION_PARTITIONS = 5_000
SMALL_COMMITS = 1_000
ONE_TOPIC = "one"
BATCH_BYTES = 6_000
SEGMENT_BYTES = 1 << 29
TRANSACTION = "transaction"
SMALL = "small"
SMALL_PARTITIONS = 4
SMALL_BATCHES = 25_000
"""In each: one record of 100 bytes, 4 MB together."""
SMALL_CACHED = 6_000
"""So many of them are in memory."""


SMALL_BATCH = bytes(make_batch([bytes(100)]).buffer)


class Longest(SlowCallbacks):
    """Keeps the longest of what it sees, and logs nothing."""

    def __init__(self, clock: SystemClock, *, is_verbose: bool) -> None:
        super().__init__(clock, SEEN_S)
        self.is_verbose = is_verbose
        self.found: dict[str, tuple[float, str | None]] = {}

    def _report(
        self,
        kind: str,
        used_s: float,
        describe: Callable[[], Mapping[str, object]],
        place: str | None,
    ) -> None:
        name = f"{kind} {describe().get('name')}"
        if used_s > self.found.get(name, (0.0, None))[0]:
            self.found[name] = (used_s, place)

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """As in the class above; and note how much was found to be garbage."""
        super().collected(phase, info)
        if self.is_verbose and info["collected"] > 100:
            print(f"garbage in cycles: {info}", file=sys.stderr)

    def take(self) -> dict[str, float]:
        """Return the longest things since the last call, in milliseconds, the worst first."""
        found, self.found = self.found, {}
        worst = sorted(found.items(), key=lambda one: -one[1][0])
        for name, (used_s, place) in worst:
            if self.is_verbose and used_s > TOLD_S:
                print(f"{used_s * 1e3:.1f} ms {name}: {place}", file=sys.stderr)
        return {name: round(used_s * 1e3, 1) for name, (used_s, _) in worst[:3]}


class Turns:
    """Watches how long the loop takes for everything that is ready at a time, small or large."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        before_s = thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = thread_time()
            self._longest_s = max(self._longest_s, now_s - before_s)
            before_s = now_s

    def take(self) -> dict[str, float]:
        """Return the longest turn since the last call, in milliseconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return {"a turn of the loop": round(longest_s * 1e3, 1)}

    def stop(self) -> None:
        self._task.cancel()


class Client:
    """A connection that sends one request after the other, or several at once."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._stream = self._socket.makefile("rb")

    def ask(self, *requests: tuple[Request, int]) -> list[Response]:
        """Send the requests, and return their answers."""
        frames = [b"".join(request_frame(one, version, 1, "turns")) for one, version in requests]
        answers = []
        for frame in frames:
            self._socket.sendall(frame)
        for request, version in requests:
            (size,) = struct.unpack(">i", self._stream.read(4))
            answer = memoryview(self._stream.read(size))
            _, position = decode_response_header(answer, request.api_key, version)
            response = codec(response_class(request.api_key), version)
            answers.append(response.decode(answer, position))
        return answers

    def consume(self, offset: int) -> tuple[int, int]:
        """Read all small batches from an offset on; return how many bytes, in how many answers."""
        offsets = [offset] * SMALL_PARTITIONS
        size_bytes = answers = 0
        while min(offsets) < SMALL_BATCHES:
            (response,) = self.ask((fetch_request({SMALL: offsets}), 12))
            answers += 1
            for part in response.responses[0].partitions:  # type: ignore[attr-defined]
                size_bytes += len(part.records)
                offsets[part.partition_index] += len(part.records) // len(SMALL_BATCH)
        return size_bytes, answers


def fetch_request(
    offsets: Mapping[str, Sequence[int]], *, epoch: int = -1, wait_ms: int = 500
) -> FetchRequest:
    """Return what reads each partition of some topics from its offset on."""
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                    for index, offset in enumerate(of_topic)
                ],
            )
            for name, of_topic in offsets.items()
        ],
    )


class Requests:
    """What is asked, of every partition of some topics."""

    def __init__(self, names: list[str], partitions: int) -> None:
        self.names = names
        self.indexes = [*range(partitions)]

    def produce(
        self, value: bytes = b"value", *, batch: bytes = b"", transactional_id: str | None = None
    ) -> ProduceRequest:
        batch = batch or bytes(make_batch([value]).buffer)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=name,
                    partition_data=[
                        PartitionProduceData(index=index, records=batch) for index in self.indexes
                    ],
                )
                for name in self.names
            ],
        )

    def fetch(self, offset: int, *, epoch: int = -1, wait_ms: int = 500) -> FetchRequest:
        offsets = dict.fromkeys(self.names, [offset] * len(self.indexes))
        return fetch_request(offsets, epoch=epoch, wait_ms=wait_ms)

    def list_offsets(self, timestamp: int) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                        for index in self.indexes
                    ],
                )
                for name in self.names
            ]
        )

    def commit(self, *, alike: bool, group: str = GROUP) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=1,
                            committed_metadata="" if alike else f"{index}" * (1 + index % 2),
                        )
                        for index in self.indexes
                    ],
                )
                for name in self.names
            ],
        )

    def offset_fetch(self, *, everything: bool) -> OffsetFetchRequest:
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=self.indexes)
            for name in self.names
        ]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=None if everything else topics)
        return OffsetFetchRequest(groups=[group])

    def epochs(self) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=index, leader_epoch=0)
                        for index in self.indexes
                    ],
                )
                for name in self.names
            ]
        )

    def delete_records(self, offset: int) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=offset)
                        for index in self.indexes
                    ],
                )
                for name in self.names
            ],
            timeout_ms=30_000,
        )

    def all(self) -> Iterator[tuple[str, list[tuple[Request, int]]]]:
        """Yield what is measured: a name, and what is sent without waiting for answers."""
        yield "Produce v8", [(self.produce(), 8)]
        yield "Produce v9, three at once", [(self.produce(), 9)] * 3
        yield "Fetch, records", [(self.fetch(offset=0), 12)]
        yield "Fetch, at the end", [(self.fetch(offset=4, wait_ms=100), 12)] * 2
        yield "Fetch, the first of a session", [(self.fetch(offset=4, epoch=0, wait_ms=100), 12)]
        yield "ListOffsets, latest", [(self.list_offsets(-1), 7)]
        yield "ListOffsets, by time", [(self.list_offsets(1_700_000_000_000), 7)]
        yield "OffsetCommit, alike", [(self.commit(alike=True), 8)]
        yield "OffsetCommit, not alike", [(self.commit(alike=False), 8)]
        yield "OffsetFetch", [(self.offset_fetch(everything=False), 8)]
        yield "OffsetFetch of everything", [(self.offset_fetch(everything=True), 8)]
        yield "OffsetForLeaderEpoch", [(self.epochs(), 4)]
        yield "Metadata", [(MetadataRequest(topics=None), 12)]
        single = Requests(self.names[:1], 1)
        commits = [
            single.commit(alike=True, group=f"{GROUP}-{number}") for number in range(SMALL_COMMITS)
        ]
        yield "1,000 commits", [(commit, 8) for commit in commits]
        yield "DeleteRecords", [(self.delete_records(1), 2)]


def to_one_topic(partitions: int) -> Iterator[tuple[str, list[tuple[Request, int]]]]:
    """Yield Produce requests to partitions of one topic: as many as one turn takes, and more."""
    for count, value in (
        (PARTITIONS_PER_TURN, bytes(BATCH_BYTES)),
        (PARTITIONS_PER_TURN, b"value"),
        (1_000, bytes(BATCH_BYTES)),
        (partitions, b"value"),
    ):
        name = f"Produce v9 to {count:,} of one topic, {len(value):,} B each"
        yield name, [(Requests([ONE_TOPIC], count).produce(value), 9)]


async def create(gateway: Gateway, names: list[str], partitions: int) -> None:
    for first in range(0, len(names), 100):
        await asyncio.gather(
            *(
                gateway.topic_manager.create(name, partitions, {})
                for name in names[first : first + 100]
            )
        )


async def measure(
    offenders: Longest, data: Path, arguments: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Ask everything, and return what held the loop for longest."""
    config = Config.of(log_dirs=str(data), partitions_max=100_000)
    clock = SystemClock()
    gateway = Gateway(config, open_backend(config, clock), clock)
    await gateway.start()
    results: dict[str, dict[str, float]] = {}
    watch = StackWatch(offenders)
    try:
        dispatcher = WatchedDispatcher(gateway, offenders)
        watch.start()
        server = Server(dispatcher, limits_from(config), clock, gateway.metrics)
        listeners = await server.open([Listener("PLAINTEXT", "127.0.0.1", 0)])
        gateway.placement.advertise({one.name: one for one in listeners})
        names = [f"topic-{number}" for number in range(arguments.topics)]
        requests = Requests(names, arguments.partitions)
        await create(gateway, requests.names, arguments.partitions)
        gc.callbacks.append(offenders.collected)
        gc.freeze()
        gc.set_threshold(5_000, 1, 500)  # as the server sets it
        results["creating"] = offenders.take()
        client = Client(listeners[0].port)
        await ask(client, requests.all(), offenders, arguments, results)
        await create(gateway, [ONE_TOPIC], arguments.topics * arguments.partitions)
        gc.freeze()
        offenders.take()
        to_one = to_one_topic(arguments.topics * arguments.partitions)
        await ask(client, to_one, offenders, arguments, results)
        for number in range(arguments.rounds):
            change = replaced_by({"log.segment.bytes": f"{SEGMENT_BYTES + number}"})
            await gateway.configure_broker(change)
            await asyncio.sleep(0.05)
            note(results, "another default", offenders.take())
        if not arguments.only or TRANSACTION in arguments.only:
            count = min(TRANSACTION_PARTITIONS, arguments.topics * arguments.partitions)
            one_topic = Requests([ONE_TOPIC], count)
            results |= await measure_transactions(offenders, client, one_topic, arguments.rounds)
        if not arguments.only or SMALL in arguments.only:
            results |= await measure_small(gateway, offenders, client, arguments.rounds)
        await server.aclose()
    finally:
        gc.callbacks.remove(offenders.collected)
        watch.stop()
        await gateway.aclose()
    return results


async def ask(
    client: Client,
    asked_of: Iterator[tuple[str, list[tuple[Request, int]]]],
    offenders: Longest,
    arguments: argparse.Namespace,
    results: dict[str, dict[str, float]],
) -> None:
    """Ask all that is wanted, several times each, and note what held the loop for longest."""
    # What is sent is made in the client's thread: it is no work of the server's.
    while (one := await asyncio.to_thread(next, asked_of, None)) is not None:
        name, asked = one
        if arguments.only and not any(name.startswith(only) for only in arguments.only):
            continue
        for number in range(arguments.rounds):
            await asyncio.to_thread(client.ask, *asked)
            await asyncio.sleep(0.05)
            note(results, f"{name}, first" if number == 0 else name, offenders.take())


def replaced_by(texts: dict[str, str]) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return what changes any settings to these."""
    return lambda _: texts


def note(results: dict[str, dict[str, float]], label: str, taken: dict[str, float]) -> None:
    """Keep the best of several rounds."""
    results[label] = min(results.get(label, taken), taken, key=worst_of)


async def measure_transactions(
    offenders: Longest, client: Client, requests: Requests, rounds: int
) -> dict[str, dict[str, float]]:
    """Write a transaction over many partitions: its parts, and all of its end."""
    results: dict[str, dict[str, float]] = {}
    turns = Turns()
    init = InitProducerIdRequest(
        transactional_id=TRANSACTIONAL_ID,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    (given,) = await asyncio.to_thread(client.ask, (init, 5))
    producer_id, epoch = given.producer_id, given.producer_epoch  # type: ignore[attr-defined]
    count = len(requests.names) * len(requests.indexes)

    async def measured(name: str, request: Request, version: int) -> Response:
        (answer,) = await asyncio.to_thread(client.ask, (request, version))
        await asyncio.sleep(0.05)
        label = f"{name} in a transaction over {count:,} partitions"
        note(results, label, turns.take() | offenders.take())
        return answer

    for _ in range(rounds):
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
        )
        builder.add(value=b"value", timestamp_ms=0)
        batch = bytes(builder.build())
        offenders.take()
        await measured(
            "Produce", requests.produce(batch=batch, transactional_id=TRANSACTIONAL_ID), 12
        )
        end = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        ended = await measured("EndTxn", end, 5)
        epoch = ended.producer_epoch  # type: ignore[attr-defined]
        while True:
            # Repeated, it is refused as long as markers are on their way.
            (again,) = await asyncio.to_thread(client.ask, (end, 5))
            if not again.error_code:  # type: ignore[attr-defined]
                break
            await asyncio.sleep(0.02)
        label = f"markers of a transaction over {count:,} partitions"
        note(results, label, turns.take() | offenders.take())
    turns.stop()
    return results


async def measure_small(
    gateway: Gateway, offenders: Longest, client: Client, rounds: int
) -> dict[str, dict[str, float]]:
    """Read batches of one record: what holds the loop, and what its thread uses for each GB."""
    topic = await gateway.topic_manager.create(SMALL, SMALL_PARTITIONS, {})
    logs = [cast("EmbeddedPartitionLog", one.log) for one in topic.partitions.values()]
    for _ in range(0, SMALL_BATCHES, 1_000):
        for log in logs:
            await log.append([read_batch(bytearray(SMALL_BATCH)) for _ in range(1_000)])
    results: dict[str, dict[str, float]] = {}

    async def read(name: str, offset: int) -> None:
        offenders.take()
        began_s = thread_time()
        size_bytes, answers = await asyncio.to_thread(client.consume, offset)
        used_s = thread_time() - began_s
        taken = offenders.take()
        taken |= {"s a GB": round(used_s / size_bytes * 1e9, 2), "answers": answers}
        results[name] = min(results.get(name, taken), taken, key=lambda one: one["s a GB"])

    for _ in range(rounds):
        await read("Fetch, small batches in memory", SMALL_BATCHES - SMALL_CACHED)
    for log in logs:
        log.tail.forget_below(SMALL_BATCHES)
    for _ in range(rounds):
        await read("Fetch, small batches in the page cache", 0)
    return results


def worst_of(taken: dict[str, float]) -> float:
    return max(taken.values(), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--verbose", action="store_true", help="say where the time went")
    parser.add_argument("only", nargs="*", metavar="ONLY")
    arguments = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="bench-turns-", dir=arguments.root))
    # What is described is decoded again, as garbage for the collector: not while it is measured.
    kgw.server.slow_callbacks.describe_request = lambda frame: {"name": ApiKey(frame[1]).name}
    offenders = Longest(SystemClock(), is_verbose=arguments.verbose)

    def new_loop() -> asyncio.AbstractEventLoop:
        from uvloop import Loop

        return watched_loop(Loop, offenders)

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            results = runner.run(measure(offenders, data, arguments))
        for label, longest in results.items():
            print(json.dumps({label: longest}))
    finally:
        shutil.rmtree(data)


if __name__ == "__main__":
    main()
