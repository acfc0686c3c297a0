"""What Apache Kafka 4.4 was heard to answer, and what kgw answers to the same requests.

e2e/test_differential.py asks a real Kafka, and writes the answers that are kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.clock import SystemClock
from kgw.config import Config
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec, response_class
from kgw.testing.gateway import InProcessGateway
from tests.differential.asking import answers, kept
from tests.differential.listed import LISTED, differences, judge, row_of
from tests.differential.requests import PLANS
from tests.differential.servers import InProcess, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
FEWEST = 2_000


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway as the Kafka that was asked: node 1, no topic made by asking for it."""
    config = Config.of(
        node_id=1, auto_create_topics_enable=False, group_initial_rebalance_delay_ms=0
    )
    async with InProcessGateway(config, clock=SystemClock()) as running:
        yield running
        assert {} == running.gateway.internal_errors


@pytest.mark.parametrize("api", PLANS, ids=lambda api: api.name)
async def test_answers_as_kafka_does(gateway: InProcessGateway, api: ApiKey) -> None:
    """To every request, but for what is listed with its reason; and that is met, too."""
    server = Server(InProcess(gateway))
    await server.meet()
    found = await answers(server, api)
    expected = kept(api)
    assert [name for name, _ in expected] == [case.name for case, _ in found]
    unlisted = []
    met = set()
    for (name, kafka), (_, kgw) in zip(expected, found, strict=True):
        for line, row in judge(api.name, name, kafka, kgw):
            if row is None:
                unlisted.append(f"{name}: {line}")
            met.add(row)
    assert [] == unlisted
    assert [] == [row for row in LISTED if row.api == api.name and row not in met]


class _Liar(InProcess):
    """A gateway that says the offset after the one that is asked for."""

    async def exchange(self, frame: bytes, api: ApiKey, version: int) -> bytes | str:
        answer = await super().exchange(frame, api, version)
        if api is not ApiKey.OFFSET_FETCH or isinstance(answer, str):
            return answer
        header = 5 if version >= 6 else 4
        response: Any = codec(response_class(api), version).decode(answer, header)
        for topics in [group.topics for group in response.groups] or [response.topics]:
            for one in [one for topic in topics for one in topic.partitions]:
                one.committed_offset += one.committed_offset >= 0
        return answer[:header] + codec(response_class(api), version).encode(response)


async def test_a_wrong_answer_is_found(gateway: InProcessGateway) -> None:
    """An offset that is off by one, wherever one is told."""
    api = ApiKey.OFFSET_FETCH
    server = Server(_Liar(gateway))
    await server.meet()
    lines = [
        line
        for (_, kafka), (_, kgw) in zip(kept(api), await answers(server, api), strict=True)
        for line in differences(kafka, kgw)
    ]
    assert len(lines) >= 100
    assert not any(row_of(api.name, line) for line in lines)


def test_every_api_is_asked() -> None:
    """So many requests as were promised, and none of what is served is left out."""
    from kgw.handlers.table import HANDLERS
    from tests.handlers.features_off import REQUESTS

    # What is off, and what tells of disks and settings, is compared by test_features_off.py.
    assert set(HANDLERS) == set(PLANS) | set(REQUESTS)
    assert set() == set(PLANS) & set(REQUESTS)
    assert {row.api for row in LISTED} <= {api.name for api in PLANS}
    assert sum(len(kept(api)) for api in PLANS) >= FEWEST
