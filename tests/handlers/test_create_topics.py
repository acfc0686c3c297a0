from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from kgw.types import ZERO_TOPIC_ID
from tests.handlers.support import call, topic_of

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend

VERSIONS = range(8)


def wanted(
    name: str = "orders",
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> dict[str, object]:
    """Return one topic of a request."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        "assignments": [
            {"partition_index": index, "broker_ids": broker_ids}
            for index, broker_ids in (assignments or {}).items()
        ],
    }


async def create(
    gateway: InProcessGateway, *topics: dict[str, object], version: int = 7, **fields: object
) -> list[Any]:
    """Send a request, and return its results."""
    response = await call(gateway, ApiKey.CREATE_TOPICS, version, topics=[*topics], **fields)
    return [*response.topics]


async def code_of(gateway: InProcessGateway, topic: dict[str, object]) -> ErrorCode:
    """Ask for one topic, and return the code."""
    (result,) = await create(gateway, topic)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", VERSIONS)
async def test_creates(gateway: InProcessGateway, version: int) -> None:
    """The topic exists when the answer comes, which says as much as its version can."""
    (result,) = await create(gateway, wanted(partitions=3), version=version)
    assert ("orders", ErrorCode.NONE) == (result.name, result.error_code)
    topic = topic_of(gateway)
    assert 3 == len(topic.partitions)
    assert (topic.topic_id if version >= 7 else ZERO_TOPIC_ID) == result.topic_id
    if version >= 5:
        assert (3, 1) == (result.num_partitions, result.replication_factor)
        configs = {one.name: one.value for one in result.configs or ()}
        assert "1048588" == configs["max.message.bytes"]


async def test_defaults() -> None:
    """-1 asks for num.partitions and one copy (KIP-464)."""
    async with InProcessGateway(Config.of(num_partitions=5)) as gateway:
        (result,) = await create(gateway, wanted(partitions=-1, replication_factor=-1))
        assert (ErrorCode.NONE, 5, 1) == (
            result.error_code,
            result.num_partitions,
            result.replication_factor,
        )


async def test_exists_already(gateway: InProcessGateway) -> None:
    """A second topic of the same name is refused, also when both are asked for together."""
    assert ErrorCode.NONE == await code_of(gateway, wanted())
    assert ErrorCode.TOPIC_ALREADY_EXISTS == await code_of(gateway, wanted())
    results = await asyncio.gather(*(create(gateway, wanted("other")) for _ in range(5)))
    codes = sorted(ErrorCode(one.error_code) for (one,) in results)
    assert [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4 == codes


async def test_named_twice_in_a_request(gateway: InProcessGateway) -> None:
    """Which of the two would be meant? Neither is created; the others are."""
    results = await create(gateway, wanted("a"), wanted("b"), wanted("a", partitions=2))
    assert {("b", ErrorCode.NONE), ("a", ErrorCode.INVALID_REQUEST)} == {
        (one.name, one.error_code) for one in results
    }
    assert ["b"] == list(gateway.catalog.topics)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "../a", "a\0", "a\n", "é", "日本"]
)
async def test_impossible_names(gateway: InProcessGateway, name: str) -> None:
    """Kafka's rules for names, checked before one reaches a path or a log line."""
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == await code_of(gateway, wanted(name))


async def test_names_that_collide(gateway: InProcessGateway) -> None:
    """'.' and '_' are the same in metric names, so two topics may not differ in them alone."""
    assert ErrorCode.NONE == await code_of(gateway, wanted("a.b"))
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == await code_of(gateway, wanted("a_b"))
    assert ErrorCode.NONE == await code_of(gateway, wanted("a-b"))


async def test_replication_factor(gateway: InProcessGateway) -> None:
    """There is one node: more copies are refused instead of promised."""
    for factor in (0, -2, 2, 3):
        code = await code_of(gateway, wanted(replication_factor=factor))
        assert ErrorCode.INVALID_REPLICATION_FACTOR == code
    assert {} == gateway.catalog.topics


async def test_lenient_replication() -> None:
    """Test suites that insist may ask for more; the answer says that there is one copy."""
    async with InProcessGateway(Config.of(lenient_replication=True)) as gateway:
        (result,) = await create(gateway, wanted(replication_factor=3))
        assert (ErrorCode.NONE, 1) == (result.error_code, result.replication_factor)
        assert ErrorCode.INVALID_REPLICATION_FACTOR == await code_of(
            gateway, wanted("other", replication_factor=0)
        )


async def test_number_of_partitions() -> None:
    """At least one, and no more than the two limits allow."""
    config = Config.of(topic_partitions_max=10, partitions_max=15)
    async with InProcessGateway(config) as gateway:
        for partitions in (0, -2, 11):
            code = await code_of(gateway, wanted(partitions=partitions))
            assert ErrorCode.INVALID_PARTITIONS == code
        assert ErrorCode.NONE == await code_of(gateway, wanted("a", partitions=10))
        assert ErrorCode.POLICY_VIOLATION == await code_of(gateway, wanted("b", partitions=6))
        assert ErrorCode.NONE == await code_of(gateway, wanted("b", partitions=5))


async def test_assignments(gateway: InProcessGateway) -> None:
    """Partitions may be given to this node alone, from 0 on, and then no numbers beside them."""
    assert ErrorCode.NONE == await code_of(
        gateway, wanted("a", -1, -1, assignments={0: [0], 1: [0]})
    )
    impossible: list[dict[int, list[int]]] = [
        {0: [1]},
        {0: [0, 1]},
        {0: []},
        {1: [0]},
        {0: [0], 2: [0]},
    ]
    for assignments in impossible:
        code = await code_of(gateway, wanted("b", -1, -1, assignments=assignments))
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == code
    code = await code_of(gateway, wanted("b", 1, -1, assignments={0: [0]}))
    assert ErrorCode.INVALID_REQUEST == code


async def test_settings(gateway: InProcessGateway) -> None:
    """A topic's settings are checked, stored, and in the answer with their source."""
    (result,) = await create(gateway, wanted(configs={"max.message.bytes": "2000"}))
    configs = {one.name: one for one in result.configs or ()}
    assert ("2000", 1) == (
        configs["max.message.bytes"].value,
        configs["max.message.bytes"].config_source,
    )
    assert 5 == configs["segment.bytes"].config_source


async def test_settings_that_the_server_has_been_given() -> None:
    """What the file or the command line says, and what was changed since, is no default."""
    async with InProcessGateway(Config.of(log_segment_bytes=1 << 20)) as gateway:
        await gateway.configure_broker(log_retention_ms="5")
        (result,) = await create(gateway, wanted())
        sources = {one.name: one.config_source for one in result.configs or ()}
        assert (4, 2) == (sources["segment.bytes"], sources["retention.ms"])


@pytest.mark.parametrize(
    "configs",
    [
        {"no.such.setting": "1"},
        {"max.message.bytes": "many"},
        {"max.message.bytes": "-1"},
        {"max.message.bytes": None},
        {"cleanup.policy": "shred"},
        {"retention.ms": "-2"},
        {"min.insync.replicas": "2"},
        {"compression.type": "brotli"},
        {"remote.storage.enable": "true"},
        {"kgw.seaweedmq.layout": "records"},
    ],
)
async def test_settings_that_are_refused(
    gateway: InProcessGateway, configs: dict[str, str | None]
) -> None:
    """Unknown settings, and values that are not acted on, are refused and never stored."""
    (result,) = await create(gateway, wanted(configs=configs))
    assert ErrorCode.INVALID_CONFIG == result.error_code
    assert next(iter(configs)) in (result.error_message or "")
    assert {} == gateway.catalog.topics


@pytest.mark.parametrize("version", range(1, 8))
async def test_validate_only(gateway: InProcessGateway, version: int) -> None:
    """The same answer, and nothing created."""
    (result,) = await create(gateway, wanted(), version=version, validate_only=True)
    assert ErrorCode.NONE == result.error_code
    # Kafka names an id, too, which no topic gets.
    assert (version >= 7) == (result.topic_id != ZERO_TOPIC_ID)
    (result,) = await create(gateway, wanted(""), version=version, validate_only=True)
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == result.error_code
    assert {} == gateway.catalog.topics


async def test_topics_survive_a_restart(backend: MemoryBackend) -> None:
    """Names, ids, partitions and settings are as they were."""
    async with InProcessGateway(backend=backend) as gateway:
        await create(gateway, wanted(partitions=3, configs={"segment.bytes": "4096"}))
        topic = topic_of(gateway)
    async with InProcessGateway(backend=backend) as gateway:
        found = gateway.catalog.by_id(topic.topic_id)
        assert found is not None
        assert ("orders", 3, {"segment.bytes": "4096"}) == (
            found.name,
            len(found.partitions),
            found.config.own_texts(),
        )
        assert 3 == gateway.catalog.partition_count


async def test_a_bug_in_one_topic_costs_that_topic_alone(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are created and answered, and the operator hears of the bug."""
    create_topic = gateway.topic_manager.create

    async def fail_once(name: str, *rest: Any) -> Any:
        if name == "b":
            raise RuntimeError("a bug")
        return await create_topic(name, *rest)

    monkeypatch.setattr(gateway.topic_manager, "create", fail_once)
    results = await create(gateway, wanted("a"), wanted("b"), wanted("c"))
    assert [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("c", ErrorCode.NONE),
    ] == [(one.name, one.error_code) for one in results]
    assert {"CREATE_TOPICS": 1} == gateway.internal_errors
    gateway.internal_errors.clear()
