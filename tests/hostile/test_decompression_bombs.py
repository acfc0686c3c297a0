"""Campaign P4: batches that want to become gigabytes, produced to a gateway process.

In its full size it is held to 64 MB more memory, and another client to its usual latency.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.produce import ProduceResponse
from kgw.records.builder import encode_batch
from tests.handlers.support import batch, produce_request
from tests.hostile import attacks
from tests.hostile.test_hostile import (
    CANARY_P99_MS,
    FULL,
    MEGABYTE,
    memory_stands_still,
)
from tests.hostile.test_rules import ask
from tests.records.bombs import bombs, full_size_bombs

if TYPE_CHECKING:
    from kgw.records.batch import Compression
    from tests.hostile.conftest import Attacked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LIMIT_BYTES = 1_000_000
"""Of a payload: the usual max.message.bytes takes it."""
MEMORY_BAR_BYTES = 64 << 20
REFUSALS = {"CORRUPT_MESSAGE", "MESSAGE_TOO_LARGE", "INVALID_RECORD"}
VALIDATED = ("kgw.validation=records",)
RECOMPRESSED = ("compression.type=uncompressed",)
UNLIMITED = (
    "compression.type=uncompressed",
    "kgw.decompressed.bytes.max=400000000",
    "kgw.decompression.ratio.max=1000000",
)


def produced(codec: Compression, payload: bytes) -> bytearray:
    """Return a batch with this payload that a header shows nothing of."""
    return encode_batch(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=0,
        record_count=1,
    )


async def detonate(attacked: Attacked, *, every: int, rounds: int) -> tuple[Counter[str], int, int]:
    """Produce bombs, one after the other; return the answers, their number, the most memory."""
    armed = [
        produced(codec, payload)
        for _, codec, payload in chain(bombs(), full_size_bombs(LIMIT_BYTES))
        if len(payload) <= LIMIT_BYTES
    ]
    random = Random(4)
    codes: Counter[str] = Counter()
    grown = 0
    async with attacks.connected(attacked.address) as streams:
        topics = [MetadataRequestTopic(name="bombs")]
        await ask(streams, MetadataRequest(topics=topics), 12)
        await ask(streams, produce_request(batch(b"v"), name="bombs"), 9)
        await memory_stands_still(attacked)
        before = attacked.anonymous_bytes()
        for _ in range(rounds):
            random.shuffle(armed)
            for bomb in armed[::every]:
                attacked.reset_peak()
                response = await ask(streams, produce_request(bomb, name="bombs"), 9)
                assert isinstance(response, ProduceResponse)
                answer = response.responses[0].partition_responses[0]
                codes[ErrorCode(answer.error_code).name] += 1
                usage = attacked.gateway.usage()
                grown = max(grown, usage.peak_bytes - usage.file_bytes - before)
    return codes, codes.total(), grown


@pytest.mark.parametrize(
    ("every", "rounds"),
    [
        pytest.param(4, 1, id="short", marks=pytest.mark.campaign),
        pytest.param(1, 20, id="full", marks=FULL),
    ],
)
@pytest.mark.parametrize(
    "attacked", [VALIDATED, RECOMPRESSED], indirect=True, ids=["validated", "recompressed"]
)
async def test_bombs_are_refused(
    attacked: Attacked, every: int, rounds: int, request: pytest.FixtureRequest
) -> None:
    """Each with an error code; memory stays within its bar, and others are served."""
    is_full = request.node.get_closest_marker("full") is not None
    with attacked.canary() as canary:
        codes, count, grown = await detonate(attacked, every=every, rounds=rounds)
    print(f"{count} bombs: {codes}, {grown / MEGABYTE:.1f} MB more; {canary}")
    assert count >= (2_000 if is_full else 30)
    assert set(codes) <= REFUSALS
    assert grown <= MEMORY_BAR_BYTES
    assert (0, "") == (canary["errors"], canary["first_error"])
    assert canary["p99_ms"] <= CANARY_P99_MS or not is_full
    assert [] == attacked.bugs()


@pytest.mark.campaign
@pytest.mark.parametrize("attacked", [UNLIMITED], indirect=True, ids=["unlimited"])
async def test_the_control_explodes(attacked: Attacked) -> None:
    """Without the limits the same bombs take more memory than that: the campaign can fail."""
    _, _, grown = await detonate(attacked, every=10, rounds=1)
    print(f"{grown / MEGABYTE:.1f} MB more")
    assert grown > MEMORY_BAR_BYTES
