"""What access rules cost: a question, a request, and how long a large request holds the loop.

A question to the rules is asked for the first time, and again, when its decision is in the cache.
Requests are handled in this process over a backend in memory, by one gateway without rules and one
with them, in turn: `step_us` is the difference of their least processor time. The bar is 3 us a
request with 1,000 rules, once its decisions are cached. `held_ms` is the processor time of the
longest turn of the loop while a client that may see no topic names so many of them.

    scripts/bench --micro access [--rules N] [--requests N] [--rounds N] [--names N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from time import process_time
from typing import TYPE_CHECKING

from kgw.backend.memory import MemoryBackend
from kgw.clock import SystemClock
from kgw.completion import until_done
from kgw.config import Config, Listener
from kgw.gateway import Gateway
from kgw.handlers.context import Later, Session
from kgw.handlers.dispatch import Dispatcher
from kgw.protocol.framing import request_frame
from kgw.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kgw.security.acls.authorizer import Authorizer
from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from kgw.security.principal import Principal
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.protocol.schema import Request

TOPIC, GROUP, HOST = "measured", "measured", "192.0.2.1"
ALICE = Principal("User", "alice")
WARM = 200


def rule(
    operation: AclOperation,
    name: str,
    principal: str = str(ALICE),
    pattern: PatternType = PatternType.LITERAL,
    resource_type: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, principal, "*", operation, PermissionType.ALLOW)


def rules(count: int) -> Iterator[AclBinding]:
    """Yield the rules that the requests need, and others: of the client, a tenth with prefixes."""
    yield rule(AclOperation.READ, TOPIC)
    yield rule(AclOperation.WRITE, TOPIC)
    yield rule(AclOperation.READ, GROUP, resource_type=ResourceType.GROUP)
    for number in range(count - 3):
        if number % 10 == 0:
            prefix = f"{number:x}" * (1 + number % 7)
            yield rule(AclOperation.READ, prefix, pattern=PatternType.PREFIXED)
        else:
            yield rule(AclOperation.READ, f"topic-{number}", f"User:u{number % 50}")


def question_us(count: int, asked: int) -> dict[str, float]:
    """Return what a question costs for the first time, and again."""
    authorizer = Authorizer([], max_cached=2 * asked)
    authorizer.add(rules(count))
    names = [f"topic-{number}" for number in range(asked)]
    found = {}
    for name in ("first_us", "repeated_us"):
        began_s = process_time()
        for one in names:
            authorizer.decide(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, one)
        found[name] = round((process_time() - began_s) / asked * 1e6, 2)
    return found


def frame_of(request: Request, version: int) -> bytes:
    """Return a request without its length."""
    return b"".join(request_frame(request, version, 1, "access"))[4:]


def frames() -> dict[str, bytes]:
    batch = bytes(make_batch([bytes(100)]).buffer)
    data = [PartitionProduceData(index=0, records=batch)]
    wanted = [FetchPartition(partition=0, partition_max_bytes=1 << 10)]
    return {
        "produce": frame_of(
            ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
            ),
            9,
        ),
        "fetch": frame_of(
            FetchRequest(max_bytes=1 << 10, topics=[FetchTopic(topic=TOPIC, partitions=wanted)]),
            11,
        ),
        "heartbeat": frame_of(
            HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="member"), 4
        ),
        "metadata": frame_of(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9),
    }


class Served:
    """A gateway, and the session of its client."""

    def __init__(self, **settings: str) -> None:
        config = Config.of(**settings)
        self.gateway = Gateway(config, MemoryBackend(), SystemClock())
        self.dispatcher = Dispatcher(self.gateway)
        self.session = Session(client_host=HOST, principal=ALICE)

    async def open(self) -> None:
        self.gateway.advertise({"PLAINTEXT": Listener("PLAINTEXT", "127.0.0.1", 9092)})
        await self.gateway.start()
        await self.gateway.topic_manager.create(TOPIC, 1, {})

    async def aclose(self) -> None:
        await self.gateway.aclose()
        if self.gateway.internal_errors:
            raise RuntimeError(self.gateway.internal_errors)

    async def ask(self, frame: bytes) -> None:
        """Handle a request until its answer is encoded."""
        answer = self.dispatcher.start(memoryview(bytearray(frame)), self.session)
        if isinstance(answer, Later):
            await until_done(answer.due)
            self.dispatcher.encode(answer)

    async def cpu_us(self, frame: bytes, count: int) -> float:
        """Return the processor time of a request."""
        began_s = process_time()
        for _ in range(count):
            await self.ask(frame)
        return (process_time() - began_s) / count * 1e6


async def requests_us(
    off: Served, on: Served, count: int, rounds: int
) -> dict[str, dict[str, float]]:
    found = {}
    for name, frame in frames().items():
        for one in (off, on):
            await one.cpu_us(frame, WARM)
        rounds_us = [
            (await off.cpu_us(frame, count), await on.cpu_us(frame, count)) for _ in range(rounds)
        ]
        # The least is what other processes have disturbed least.
        off_us, on_us = (min(figures) for figures in zip(*rounds_us, strict=True))
        found[name] = {
            "off_us": round(off_us, 2),
            "on_us": round(on_us, 2),
            "step_us": round(on_us - off_us, 2),
        }
    return found


async def held_ms(served: Served, request: Request, version: int) -> float:
    """Return the most processor time of a turn of the loop: the least of some tries."""
    frame = frame_of(request, version)
    return round(min([await longest_turn_s(served, frame) for _ in range(7)]) * 1e3, 1)


async def longest_turn_s(served: Served, frame: bytes) -> float:
    longest_s, last_s = 0.0, process_time()
    asking = asyncio.ensure_future(served.ask(frame))
    while not asking.done():
        await asyncio.sleep(0)
        now_s = process_time()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    await asking
    return longest_s


async def measure(arguments: argparse.Namespace) -> None:
    off, on = Served(), Served(super_users="User:admin")
    for one in (off, on):
        await one.open()
    access = on.gateway.access
    assert access is not None
    await access.add([*rules(arguments.rules)])
    # As in `kgw serve`.
    gc.freeze()
    gc.set_threshold(5_000, 1, 500)
    # Long, as a request has only so many elements for its bytes.
    names = [f"hidden-{number:0200}" for number in range(arguments.names)]
    metadata = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    described = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=1
    )
    found = {
        "rules": arguments.rules,
        "question": question_us(arguments.rules, 5_000),
        "requests": await requests_us(off, on, arguments.requests, arguments.rounds),
        "held_ms": {
            "metadata": await held_ms(on, metadata, 9),
            "describe_topic_partitions": await held_ms(on, described, 0),
        },
    }
    for one in (off, on):
        await one.aclose()
    print(json.dumps(found, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--names", type=int, default=25_000)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
