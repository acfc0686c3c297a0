from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.memory import MemoryBackend
from kgw.errors import ErrorCode
from kgw.partitions.topics.internal_topics import internal_topic_id
from kgw.partitions.topics.topic import INTERNAL_TOPICS, UNCREATED_TOPICS, TopicRow
from kgw.protocol.api_keys import ApiKey
from kgw.state.base import Change
from kgw.state.kinds import TOPIC
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
    produce_request,
    produced,
)
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.backend.base import Backend

INTERNAL = sorted(INTERNAL_TOPICS)
OFFSETS = "__consumer_offsets"
INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION
PARTITIONS = list(range(50))


async def metadata(gateway: InProcessGateway, *names: str, version: int = 12) -> Any:
    """Return what Metadata says of topics, as a client that lets them be created."""
    topics = [{"name": name} for name in names] if names else None
    response = await call(
        gateway, ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=True
    )
    return response.topics


@pytest.mark.parametrize("name", INTERNAL)
async def test_is_described_with_50_partitions(gateway: InProcessGateway, name: str) -> None:
    """As internal, whichever API is asked, and by its id as well."""
    (topic,) = await metadata(gateway, name)
    assert (ErrorCode.NONE, True) == (topic.error_code, topic.is_internal)
    assert [(index, 0, 0) for index in PARTITIONS] == [
        (one.partition_index, one.leader_id, one.leader_epoch) for one in topic.partitions
    ]
    by_id = await call(gateway, ApiKey.METADATA, 12, topics=[{"topic_id": topic.topic_id}])
    assert [name] == [one.name for one in by_id.topics]
    pages = await call(
        gateway,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name}],
        response_partition_limit=100,
    )
    (described,) = pages.topics
    assert (True, topic.topic_id, 50) == (
        described.is_internal,
        described.topic_id,
        len(described.partitions),
    )


async def test_nothing_of_it_is_kept(backend: MemoryBackend) -> None:
    """Not a log, not a row, and it counts for no limit and no figure."""
    async with InProcessGateway(backend=backend) as gateway:
        await metadata(gateway, *INTERNAL)
        await fetch(gateway, fetch_request(name=OFFSETS, index=7))
        assert [] == backend.partition_keys
        assert {} == await backend.state.load(TOPIC)
        catalog = gateway.catalog
        assert (0, {}, []) == (catalog.partition_count, catalog.topics, list(catalog.partitions()))


async def test_a_list_of_all_topics_has_it_once_it_was_asked_for(gateway: InProcessGateway) -> None:
    """As in Kafka, which makes it then: a new server shows nothing that nobody has made."""
    await create_topic(gateway)

    async def listed() -> list[list[str]]:
        resources = await call(gateway, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[2])
        pages = await call(
            gateway, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=100
        )
        elected = await call(gateway, ApiKey.ELECT_LEADERS, 2, topic_partitions=None)
        directory = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
        return [
            sorted(one.name for one in await metadata(gateway)),
            sorted(one.resource_name for one in resources.config_resources),
            sorted(one.name for one in pages.topics),
            sorted(one.topic for one in elected.replica_election_results),
            sorted(one.name for one in directory.results[0].topics),
        ]

    assert [["orders"]] * 5 == await listed()
    await metadata(gateway, OFFSETS)
    assert [[OFFSETS, "orders"]] * 5 == await listed()


async def test_its_id_is_the_same_after_a_restart(backend: MemoryBackend) -> None:
    """Readers that know it by its id find it, without asking by its name again."""
    async with InProcessGateway(backend=backend) as gateway:
        found = await metadata(gateway, *INTERNAL)
        ids = {one.name: one.topic_id for one in found}
    assert 2 == len(set(ids.values()))
    async with InProcessGateway(backend=backend) as gateway:
        for name, topic_id in ids.items():
            answer = await call(gateway, ApiKey.METADATA, 12, topics=[{"topic_id": topic_id}])
            assert [name] == [one.name for one in answer.topics]


@pytest.mark.parametrize("name", INTERNAL)
async def test_is_compacted(gateway: InProcessGateway, name: str) -> None:
    """And its settings are those that Kafka gives it, for nobody to change."""
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    answer = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
    configs = answer.results[0].configs
    assert {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    } == {one.name: one.value for one in configs if one.config_source == 1}
    assert {True} == {one.read_only for one in configs}


async def test_its_settings_follow_the_servers(gateway: InProcessGateway) -> None:
    """A default that is changed while the server runs is its default, too."""
    await metadata(gateway, OFFSETS)
    change = {"name": "log.retention.ms", "config_operation": 0, "value": "1234"}
    broker = {"resource_type": 4, "resource_name": "", "configs": [change]}
    await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[broker])
    wanted = {
        "resource_type": 2,
        "resource_name": OFFSETS,
        "configuration_keys": ["retention.ms", "cleanup.policy"],
    }
    answer = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted])
    assert {"retention.ms": "1234", "cleanup.policy": "compact"} == {
        one.name: one.value for one in answer.results[0].configs
    }


@pytest.mark.parametrize("version", [3, 9, 12])
async def test_produce_is_refused(gateway: InProcessGateway, version: int) -> None:
    """Nobody writes to it, as in Kafka; a partition that it has not is unknown."""
    for index, code in ((0, INVALID), (49, INVALID), (50, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        answer = await produce(gateway, batch(), name=OFFSETS, index=index, version=version)
        assert code == answer.error_code


@pytest.mark.parametrize(
    ("timestamp", "offset", "epoch"), [(-1, 0, 0), (-2, 0, 0), (-3, -1, -1), (0, -1, -1)]
)
async def test_offsets_are_those_of_an_empty_partition(
    gateway: InProcessGateway, timestamp: int, offset: int, epoch: int
) -> None:
    """It begins and ends at 0, and has no record of any time."""
    wanted = {"partition_index": 7, "timestamp": timestamp}
    answer = await call(
        gateway, ApiKey.LIST_OFFSETS, 7, topics=[{"name": OFFSETS, "partitions": [wanted]}]
    )
    (found,) = answer.topics[0].partitions
    assert (0, offset, epoch) == (found.error_code, found.offset, found.leader_epoch)


@pytest.mark.parametrize(
    ("offset", "code"), [(0, ErrorCode.NONE), (5, ErrorCode.OFFSET_OUT_OF_RANGE)]
)
async def test_fetch_finds_nothing(gateway: InProcessGateway, offset: int, code: int) -> None:
    """As in an empty partition: nothing at its beginning, and nothing to be found elsewhere."""
    data = await fetch(gateway, fetch_request(offset, name=OFFSETS, index=3))
    assert (code, []) == (data.error_code, offsets_in(data) if data.records else [])


async def test_a_reader_waits_as_for_any_topic(gateway: InProcessGateway) -> None:
    """A long poll of it is answered when its time is over, and not before."""
    pending = gateway.start(fetch_request(name=OFFSETS, index=3, max_wait_ms=500), 12)
    await turns(20)
    assert not pending.done
    gateway.manual_clock.advance(0.6)
    await turns(20)
    assert pending.done


async def test_epochs_and_producers_are_those_of_an_empty_partition(
    gateway: InProcessGateway,
) -> None:
    """Its only epoch, 0, ends where it begins; nobody has written."""
    epochs = await call(
        gateway,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        topics=[{"topic": OFFSETS, "partitions": [{"partition": 3, "leader_epoch": 0}]}],
    )
    (found,) = epochs.topics[0].partitions
    assert (0, 0, 0) == (found.error_code, found.leader_epoch, found.end_offset)
    producers = await call(
        gateway,
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        topics=[{"name": OFFSETS, "partition_indexes": [3]}],
    )
    (described,) = producers.topics[0].partitions
    assert (0, []) == (described.error_code, described.active_producers)


@pytest.mark.parametrize("name", INTERNAL)
async def test_nobody_changes_it(gateway: InProcessGateway, name: str) -> None:
    """It is neither deleted nor grown, nor given settings, nor are records deleted from it."""
    deleted = await call(gateway, ApiKey.DELETE_TOPICS, 6, topics=[{"name": name}])
    grown = await call(gateway, ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": name, "count": 60}])
    setting = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
    resource = {"resource_type": 2, "resource_name": name, "configs": [setting]}
    altered = await call(gateway, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    emptied = await call(
        gateway,
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": name, "partitions": [{"partition_index": 3, "offset": -1}]}],
    )
    assert (
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
        INVALID,
    ) == (
        deleted.responses[0].error_code,
        grown.results[0].error_code,
        altered.responses[0].error_code,
        emptied.topics[0].partitions[0].error_code,
    )
    assert 50 == len((await metadata(gateway, name))[0].partitions)


async def test_no_transaction_has_it(gateway: InProcessGateway) -> None:
    """No marker could be written to it: the transaction would never end."""
    begun = await call(
        gateway,
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id="t",
        transaction_timeout_ms=60_000,
    )
    answer = await call(
        gateway,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[{"name": OFFSETS, "partitions": [0]}],
    )
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED == result.partition_error_code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *((name, ErrorCode.TOPIC_ALREADY_EXISTS) for name in INTERNAL),
        *((name, ErrorCode.INVALID_REQUEST) for name in sorted(UNCREATED_TOPICS)),
        ("__consumer.offsets", INVALID),
        ("__cluster.metadata", INVALID),
    ],
)
async def test_nobody_creates_it(gateway: InProcessGateway, name: str, code: int) -> None:
    """Nor what collides with its name, whether it is only to be checked or not."""
    for validate_only in (True, False):
        answer = await call(
            gateway,
            ApiKey.CREATE_TOPICS,
            5,
            topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}],
            validate_only=validate_only,
        )
        assert code == answer.topics[0].error_code


@pytest.mark.parametrize("name", sorted(UNCREATED_TOPICS))
async def test_asking_for_one_that_does_not_exist_does_not_make_it(
    gateway: InProcessGateway, name: str
) -> None:
    """Share groups and a quorum of controllers are not served."""
    (topic,) = await metadata(gateway, name)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == topic.error_code
    assert {} == gateway.catalog.topics


# --- ordinary topics that were made under such a name --------------------------------------------


class SlowlyOpenedBackend(MemoryBackend):
    """Opens partitions while the rest is served, as the backend of a SeaweedFS does."""

    start_waits_s = 0.0


@pytest.fixture(params=["memory", "embedded", "in the background"])
async def old_backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend of each kind."""
    if request.param == "embedded":
        yield EmbeddedBackend(tmp_path / "data")
    else:
        yield MemoryBackend() if request.param == "memory" else SlowlyOpenedBackend()


async def make_ordinary(backend: Backend, *, values: tuple[bytes, ...] = ()) -> None:
    """Leave an ordinary topic behind, under the name of an internal one, as kgw 0.x made it."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, "ordinary", 2)
        for value in values:
            await produce(gateway, batch(value), name="ordinary", index=1)
        for key, stored in (await backend.state.load(TOPIC)).items():
            row = TopicRow.decode(stored.value)._replace(name=OFFSETS)  # type: ignore[arg-type]
            await backend.state.apply([Change(TOPIC, key, row.encode())])


async def test_an_empty_one_is_taken_over(old_backend: Backend) -> None:
    """Burrow and kminion made them: the next start has the internal topic instead."""
    await make_ordinary(old_backend)
    async with InProcessGateway(backend=old_backend) as gateway:
        limit = patience.Limit(10)
        while gateway.catalog.topics:
            await turns(1)
            assert not limit.is_over
        (topic,) = await metadata(gateway, OFFSETS)
        assert (True, 50) == (topic.is_internal, len(topic.partitions))
        await gateway.topic_manager.aclose()
        assert {} == await old_backend.state.load(TOPIC)


async def test_one_that_holds_records_stays(old_backend: Backend) -> None:
    """As an ordinary topic, until its owner has deleted it: no record is lost."""
    await make_ordinary(old_backend, values=(b"kept",))
    async with InProcessGateway(backend=old_backend) as gateway:
        await gateway.topic_manager.partitions.opened()
        await turns(20)
        (topic,) = await metadata(gateway, OFFSETS)
        assert (False, 2) == (topic.is_internal, len(topic.partitions))
        assert [OFFSETS] == [one.name for one in await metadata(gateway)]
        hidden_id = internal_topic_id(gateway.placement.cluster_id, OFFSETS)
        by_id = await call(gateway, ApiKey.METADATA, 12, topics=[{"topic_id": hidden_id}])
        assert ErrorCode.UNKNOWN_TOPIC_ID == by_id.topics[0].error_code
        data = await fetch(gateway, fetch_request(name=OFFSETS, index=1))
        assert data.high_watermark == 1
        answer = await call(gateway, ApiKey.DELETE_TOPICS, 6, topics=[{"name": OFFSETS}])
        assert ErrorCode.NONE == answer.responses[0].error_code
        (topic,) = await metadata(gateway, OFFSETS)
        assert (True, 50) == (topic.is_internal, len(topic.partitions))


async def test_no_record_comes_between_that_it_is_empty_and_that_it_is_gone() -> None:
    """What a producer sends at the start is refused, or keeps the topic as it is."""
    for wait in range(12):
        backend = SlowlyOpenedBackend()
        await make_ordinary(backend)
        async with InProcessGateway(backend=backend) as gateway:
            await turns(wait)
            pending = gateway.start(produce_request(batch(b"x"), name=OFFSETS), 9)
            is_stored = ErrorCode.NONE == (await produced(pending)).error_code
            await gateway.topic_manager.aclose()
            assert is_stored == (OFFSETS in gateway.catalog.topics)
