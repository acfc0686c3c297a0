"""What clients of a gateway hear whose state another has taken over, before its lease tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend, private_directory
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from tests.groups.wire import WireMember, commit_request
from tests.handlers.support import call, create_topic, request_of
from tests.handlers.test_placement import codes_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STATE = f"{private_directory('kafka')}/state"


class Replaced:
    """A gateway that serves a topic, and what takes its state over."""

    def __init__(self) -> None:
        self._store = FilerStore()
        self._clock = ManualClock()
        filer = self._filer()
        state = ChainStateStore(filer, self._clock, STATE)
        backend = SeaweedMqBackend(filer, "kafka", state, clock=self._clock)
        config = Config.of(lag_interval_ms=0, group_initial_rebalance_delay_ms=0)
        self.gateway = InProcessGateway(config, backend, self._clock)

    def _filer(self) -> MemoryFiler:
        return MemoryFiler(self._store, self._clock)

    async def replace(self) -> None:
        """Have another gateway take the state over."""
        filer = self._filer()
        await filer.open()
        await ChainStateStore(filer, self._clock, STATE).open()

    async def call(self, api: ApiKey, version: int, **fields: Any) -> set[int]:
        """Return the error codes of an answer."""
        return codes_in(await call(self.gateway, api, version, **fields))


@pytest.fixture
async def replaced() -> AsyncIterator[Replaced]:
    """One, and nothing that it calls a bug of its own."""
    one = Replaced()
    async with one.gateway:
        await create_topic(one.gateway)
        yield one
    assert {} == one.gateway.internal_errors


async def test_what_a_group_cannot_store_is_not_coordinated_here(replaced: Replaced) -> None:
    """Commits, the assignment of a generation, deletion: clients look for the new coordinator."""
    gateway = replaced.gateway
    joined = WireMember("joined", gateway.request)
    assert ErrorCode.NONE is await joined.join()
    kept = WireMember("kept", gateway.request)
    assert ErrorCode.NONE is await kept.commit("orders", {0: 1})
    await replaced.replace()

    assert ErrorCode.NOT_COORDINATOR is await joined.sync()
    assert ErrorCode.NOT_COORDINATOR is await kept.commit("orders", {0: 2})
    assert {ErrorCode.NOT_COORDINATOR} == codes_in(
        await gateway.request(commit_request("new", "", None, -1, "orders", {0: 1}), 8)
    )
    assert {ErrorCode.NOT_COORDINATOR} == await replaced.call(
        ApiKey.DELETE_GROUPS, 2, groups_names=["kept"]
    )
    assert {ErrorCode.NOT_COORDINATOR} == await replaced.call(
        ApiKey.OFFSET_DELETE,
        0,
        group_id="kept",
        topics=[{"name": "orders", "partitions": [{"partition_index": 0}]}],
    )


async def test_what_a_transaction_cannot_store_is_not_coordinated_here(replaced: Replaced) -> None:
    """From the first id to the end, and the offsets that are committed in it."""
    gateway = replaced.gateway
    given: Any = await call(
        gateway, ApiKey.INIT_PRODUCER_ID, 4, transactional_id="copier", transaction_timeout_ms=1000
    )
    producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    topics = [{"name": "orders", "partitions": [0]}]
    mine = {
        "v3_and_below_transactional_id": "copier",
        "v3_and_below_producer_id": given.producer_id,
    }
    added = await replaced.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        **mine,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=topics,
    )
    assert set() == added
    offsets = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    pending = {"transactional_id": "copier", "group_id": "copied", "topics": offsets, **producer}
    assert set() == await replaced.call(
        ApiKey.ADD_OFFSETS_TO_TXN, 3, transactional_id="copier", group_id="copied", **producer
    )
    await replaced.replace()

    answers = {
        api: await replaced.call(api, version, **fields)
        for api, version, fields in (
            (ApiKey.TXN_OFFSET_COMMIT, 3, {**pending, "generation_id_or_member_epoch": -1}),
            (
                ApiKey.ADD_OFFSETS_TO_TXN,
                3,
                {"transactional_id": "copier", "group_id": "other", **producer},
            ),
            (ApiKey.END_TXN, 3, {"transactional_id": "copier", "committed": True, **producer}),
            (
                ApiKey.INIT_PRODUCER_ID,
                4,
                {"transactional_id": "another", "transaction_timeout_ms": 1000},
            ),
        )
    }
    assert [{ErrorCode.NOT_COORDINATOR}] * len(answers) == list(answers.values())


async def test_a_partition_that_a_transaction_cannot_take_in(replaced: Replaced) -> None:
    """The transaction is not begun here any more; nor is there an id for anybody else."""
    given: Any = await call(
        replaced.gateway,
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id="copier",
        transaction_timeout_ms=1000,
    )
    await replaced.replace()
    assert {ErrorCode.NOT_COORDINATOR} == await replaced.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="copier",
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=[{"name": "orders", "partitions": [0]}],
    )


async def test_no_producer_id_can_be_claimed(replaced: Replaced) -> None:
    """Of a transactional id, clients look elsewhere; without one they ask again."""
    await replaced.replace()
    assert {ErrorCode.NOT_COORDINATOR} == await replaced.call(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id="copier", transaction_timeout_ms=1000
    )
    assert {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} == await replaced.call(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None
    )


async def test_topics_and_settings_are_not_controlled_here(replaced: Replaced) -> None:
    """Clients look for the new controller; one that asks for a topic to be made asks again."""
    await replaced.replace()
    grown = [{"name": "orders", "count": 2, "assignments": None}]
    settings = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
    answers = {
        api: await replaced.call(api, version, **fields)
        for api, version, fields in (
            (
                ApiKey.CREATE_TOPICS,
                5,
                {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]},
            ),
            (
                ApiKey.CREATE_PARTITIONS,
                2,
                {"topics": grown},
            ),
            (
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                {
                    "resources": [
                        {"resource_type": 2, "resource_name": "orders", "configs": settings}
                    ]
                },
            ),
            (ApiKey.DELETE_TOPICS, 4, {"topic_names": ["orders"]}),
        )
    }
    assert [{ErrorCode.NOT_CONTROLLER}] * len(answers) == list(answers.values())
    wanted = request_of(ApiKey.METADATA, topics=[{"name": "new"}], allow_auto_topic_creation=True)
    found = await replaced.gateway.request(wanted, 8)
    assert {ErrorCode.LEADER_NOT_AVAILABLE} == codes_in(found)
