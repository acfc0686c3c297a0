"""What single requests may not do, each over a socket: the rules that the campaigns rest on."""

from __future__ import annotations

import asyncio
import json
import resource
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.codec import request_class, response_class
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.api_versions import ApiVersionsRequest
from kgw.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kgw.protocol.messages.fetch import ReplicaState
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.produce import ProduceRequest
from kgw.protocol.schema import Struct
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.handlers.support import batch, fetch_request, produce_request
from tests.hostile import attacks
from tests.hostile.conftest import Attacked
from tests.protocol.random_messages import random_message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.protocol.schema import Request, Response

pytestmark = [pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(60)]

ANSWER_S = 10.0
SERVED = [
    (handler.api_key, version)
    for handler in HANDLERS.values()
    for version in range(handler.min_version, handler.max_version + 1)
]


async def ask(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: Request, version: int
) -> Response:
    """Return the response to a request; raises IncompleteReadError where it is closed instead."""
    reader, writer = streams
    writer.write(b"".join(request_frame(request, version, 7, "hostile")))
    async with asyncio.timeout(patience.seconds(ANSWER_S)):
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
    correlation_id, response = decode_response(frame, request.api_key, version)
    assert 7 == correlation_id
    return response


async def is_closed(address: attacks.Address, frame: bytes) -> bool:
    """Whether a frame ends its connection unanswered."""
    async with attacks.connected(address) as (reader, writer):
        writer.write(frame)
        async with asyncio.timeout(patience.seconds(ANSWER_S)):
            try:
                return await reader.read(1) == b""
            except ConnectionError:
                return True


# --- collections ---------------------------------------------------------------------------------


def _without(value: Struct, version: int) -> Iterator[None]:
    """Change one collection or optional value after the other to nothing, and back."""
    for name, field in type(value).field_table.items():
        if not field.present(version):
            continue
        old = getattr(value, name)
        replacements: list[Any] = [[]] if field.kind == "array" else []
        if field.nullable(version):
            replacements.append(None)
        for replacement in replacements:
            setattr(value, name, replacement)
            yield
            setattr(value, name, old)
        for inner in old if isinstance(old, list) else [old]:
            if isinstance(inner, Struct):
                yield from _without(inner, version)


async def test_empty_and_absent_collections(attacked: Attacked) -> None:
    """Whichever collection is empty or null, in any version of any API: answered, and no bug.

    CVE-2026-83525: an empty array of topics ended the broker's process.
    """
    random = Random(6)
    sent = 0
    async with attacks.connected(attacked.address) as streams:
        for api_key, version in SERVED:
            for _ in range(4):
                message: Any = random_message(request_class(api_key), version, random)
                if isinstance(message, ProduceRequest):
                    message.acks = -1
                if hasattr(message, "max_wait_ms"):
                    message.max_wait_ms = 0
                for _ in _without(message, version):
                    answer = await ask(streams, message, version)
                    assert isinstance(answer, response_class(api_key))
                    sent += 1
    assert sent > 1_000
    assert [] == attacked.bugs()


# --- requests that break the rules ---------------------------------------------------------------


async def test_broken_request_closes_its_own_connection(attacked: Attacked) -> None:
    """Whoever breaks the rules is closed; what others have in hand is answered."""
    async with (
        attacks.connected(attacked.address) as waiting,
        attacks.connected(attacked.address) as asking,
    ):
        await ask(asking, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 4)
        fetch = fetch_request(max_wait_ms=10_000, min_bytes=1)
        answer = asyncio.ensure_future(ask(waiting, fetch, 4))
        for broken in (b"\xff" * 20, b"\0\0\0\x14" + b"\0\x03\0\x09" + b"\xff" * 16):
            assert await is_closed(attacked.address, broken)
        assert not answer.done()
        await ask(asking, produce_request(batch(b"here")), 9)
        fetched: Any = await answer
        assert ErrorCode.NONE == fetched.responses[0].partitions[0].error_code
        assert len(fetched.responses[0].partitions[0].records) > 0


# --- forged and odd ------------------------------------------------------------------------------


async def test_forged_replica_id(attacked: Attacked) -> None:
    """A client that claims to be a follower is served like any consumer (CVE-2018-1288)."""
    async with attacks.connected(attacked.address) as streams:
        await ask(streams, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 4)
        await ask(streams, produce_request(batch(b"one")), 9)
        plain = fetch_request(max_wait_ms=0)
        expected = await ask(streams, plain, 11)
        for replica_id in (-2, 0, 1, 2**31 - 1):
            forged = fetch_request(max_wait_ms=0)
            forged.replica_id = replica_id
            assert expected == await ask(streams, forged, 11)
        found: Any = await ask(streams, MetadataRequest(topics=None), 12)
        by_id = fetch_request(max_wait_ms=0)
        by_id.topics[0].topic_id = found.topics[0].topic_id
        expected_by_id: Any = await ask(streams, by_id, 15)
        assert len(expected_by_id.responses[0].partitions[0].records) > 0
        by_id.replica_state = ReplicaState(replica_id=1, replica_epoch=5)
        assert expected_by_id == await ask(streams, by_id, 15)


NAMES = (
    "..",
    ".",
    "",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:x",
    "a\0b",
    "a\nlevel=error",
    "\u202eorders",
    "%2e%2e%2f",
    "$(reboot)",
    "é",
    "x" * 250,
    "x" * 30_000,
)


@pytest.mark.parametrize("attacked", [("kgw.backend=embedded",)], indirect=True)
async def test_names_reach_neither_paths_nor_log_lines(attacked: Attacked) -> None:
    """Names that are paths or lines are refused; no file is made, each line of the log is whole."""
    before = {path for path in attacked.gateway.data_dir.parent.rglob("*") if path.is_dir()}
    async with attacks.connected(attacked.address) as streams:
        for name in NAMES:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            created: Any = await ask(streams, CreateTopicsRequest(topics=[topic]), 5)
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == created.topics[0].error_code
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            found: Any = await ask(streams, wanted, 4)
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == found.topics[0].error_code
    # A client id gets into the log line of its connection's end.
    for client_id in ("a\n{}", 'a"}', "\x1b[2J", "\0"):
        frame = b"".join(request_frame(ApiVersionsRequest(), 2, 7, client_id))
        async with attacks.connected(attacked.address) as (reader, writer):
            writer.write(frame + b"\xff" * 8)
            assert await attacks.ended(reader, patience.seconds(ANSWER_S))
    after = {path for path in attacked.gateway.data_dir.parent.rglob("*") if path.is_dir()}
    assert before == after
    lines = attacked.gateway.log().splitlines()
    assert any('"protocol"' in line for line in lines)
    assert all(isinstance(json.loads(line), dict) for line in lines)


# --- descriptors ---------------------------------------------------------------------------------


async def test_out_of_descriptors(tmp_path: Path) -> None:
    """When files leave no descriptor for a client, the loop does not spin, and recovers."""
    with GatewayProcess(tmp_path / "data", "kgw.backend=memory") as gateway:
        attacked = Attacked(gateway)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with attacks.connected(attacked.address) as streams:
            await ask(streams, ApiVersionsRequest(), 2)
            allowed = attacked.descriptors() + 2
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (allowed, hard))
            flooding = [asyncio.ensure_future(_knock(attacked.address)) for _ in range(50)]
            cpu_s, began_s = gateway.usage().cpu_s, asyncio.get_running_loop().time()
            for _ in range(20):
                await ask(streams, ApiVersionsRequest(), 2)
                await asyncio.sleep(0.05)
            # A second of a loop that spins would be a second of processor time, unless others
            # take it; those let this second last longer.
            lasted_s = asyncio.get_running_loop().time() - began_s
            assert gateway.usage().cpu_s - cpu_s < 0.5 * max(1.0, lasted_s)
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (hard, hard))
            for one in flooding:
                one.cancel()
            await asyncio.gather(*flooding, return_exceptions=True)
            async with asyncio.timeout(patience.seconds(ANSWER_S)):
                while not await attacks.answered(attacked.address):
                    pass
            await ask(streams, ApiVersionsRequest(), 2)
        assert [] == attacked.bugs()


async def _knock(address: attacks.Address) -> None:
    """Connect, stay as long as that is tolerated, and come back."""
    while True:
        async with attacks.connected(address) as (reader, writer):
            writer.write(attacks.API_VERSIONS_V0)
            await attacks.ended(reader, 5.0)
        await asyncio.sleep(0.01)
