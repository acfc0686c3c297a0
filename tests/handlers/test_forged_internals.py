"""Requests by which a client passes itself off as a broker, a controller or a coordinator.

Campaign A7: none of them has an effect. Kafka's CVE-2018-1288 was such a request, a Fetch with the
id of a replica. The control is a client with the rights of a broker: some of its requests, which
are the same ones, change something.
"""

from __future__ import annotations

from itertools import product
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.fetch import ReplicaState
from kgw.testing.gateway import InProcessGateway
from tests.handlers.access_requests import ID, TOPIC, Guarded, permit
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce_request,
    produced,
)
from tests.handlers.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.protocol.schema import Response

PRODUCER = 7
"""Has an open transaction in orders-0, of one record."""
BROKERS = (0, 1, 7, 2**31 - 1)
"""Ids of replicas: of this node, and of others."""
DEBUGGER = -2
"""The id of Kafka's ReplicaVerificationTool, which read everything in a broker's stead."""
BROKER_APIS = (
    "ADD_RAFT_VOTER",
    "ALLOCATE_PRODUCER_IDS",
    "ALTER_PARTITION",
    "ASSIGN_REPLICAS_TO_DIRS",
    "BEGIN_QUORUM_EPOCH",
    "BROKER_HEARTBEAT",
    "BROKER_REGISTRATION",
    "CONTROLLED_SHUTDOWN",
    "CONTROLLER_REGISTRATION",
    "DELETE_SHARE_GROUP_STATE",
    "DESCRIBE_QUORUM",
    "END_QUORUM_EPOCH",
    "ENVELOPE",
    "FETCH_SNAPSHOT",
    "INITIALIZE_SHARE_GROUP_STATE",
    "LEADER_AND_ISR",
    "READ_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE_SUMMARY",
    "REMOVE_RAFT_VOTER",
    "STOP_REPLICA",
    "UNREGISTER_BROKER",
    "UNREGISTER_CONTROLLER",
    "UPDATE_FEATURES",
    "UPDATE_METADATA",
    "UPDATE_RAFT_VOTER",
    "VOTE",
    "WRITE_SHARE_GROUP_STATE",
)
"""The APIs of brokers and controllers: none may be served."""
_HEADER = Struct(">hhih")


class Forged(NamedTuple):
    """A request that only a broker, a controller or a coordinator may send."""

    name: str
    api: ApiKey
    version: int
    fields: dict[str, Any]
    changes: bool = False
    """Whether it changes something for a client that may send it."""

    def __str__(self) -> str:
        return f"{self.api.name}-{self.version}-{self.name}"


def marker(*, is_commit: bool, **fields: Any) -> dict[str, Any]:
    """Return the fields of a marker that ends the open transaction."""
    return {
        "markers": [
            {
                "producer_id": PRODUCER,
                "producer_epoch": 0,
                "transaction_result": is_commit,
                "coordinator_epoch": 0,
                "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                **fields,
            }
        ]
    }


def added(**fields: Any) -> dict[str, Any]:
    """Return the fields by which a broker adds a partition to a transaction."""
    topics = [{"name": "other", "partitions": [0]}]
    one = {"transactional_id": ID, "producer_id": 0, "producer_epoch": 0, "topics": topics}
    return {"transactions": [one | fields]}


def on_partition(**fields: Any) -> dict[str, Any]:
    """Return the fields of a request for orders-0."""
    return {"topics": [{"name": TOPIC, "partitions": [fields]}]}


CONTROLLER_CALLS = [
    *(
        Forged(name, ApiKey.WRITE_TXN_MARKERS, version, fields, changes=True)
        for version in (1, 2)
        for name, fields in (
            ("commit", marker(is_commit=True)),
            ("abort", marker(is_commit=False)),
            ("later epoch", marker(is_commit=True, producer_epoch=5)),
            ("later coordinator", marker(is_commit=False, coordinator_epoch=3)),
        )
    ),
    *(
        Forged(name, ApiKey.ADD_PARTITIONS_TO_TXN, version, added(verify_only=name == "verify"))
        for version in (4, 5)
        for name in ("add", "verify")
    ),
    Forged(
        "to another broker",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        on_partition(partition_index=0, replicas=[1, 2, 3]),
    ),
    Forged(
        "to nobody",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        on_partition(partition_index=0, replicas=[]),
    ),
    *(
        Forged(
            name,
            ApiKey.ELECT_LEADERS,
            2,
            {
                "election_type": election,
                "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            },
        )
        for name, election in (("preferred", 0), ("unclean", 1))
    ),
    Forged(
        "to a directory",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/etc", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    ),
    Forged(
        "on another broker",
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": "forged",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [{"partition_index": 0, "broker_ids": [2]}],
                }
            ]
        },
    ),
    Forged(
        "user",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {
            "upsertions": [
                {
                    "name": "admin",
                    "mechanism": 1,
                    "iterations": 4096,
                    "salt": b"salt" * 4,
                    "salted_password": b"x" * 32,
                }
            ]
        },
        changes=True,
    ),
    Forged(
        "rule",
        ApiKey.CREATE_ACLS,
        3,
        {
            "creations": [
                {
                    "resource_type": 4,
                    "resource_name": "kafka-cluster",
                    "resource_pattern_type": 3,
                    "principal": "User:alice",
                    "host": "*",
                    "operation": 2,
                    "permission_type": 3,
                }
            ]
        },
        changes=True,
    ),
    Forged(
        "setting of the broker",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": 4,
                    "resource_name": "",
                    "configs": [{"name": "max.connections", "config_operation": 0, "value": "5"}],
                }
            ]
        },
        changes=True,
    ),
]
FORGED_READS = [
    *(
        Forged(f"replica {broker}", ApiKey.FETCH, version, {"replica_id": broker})
        for version in (4, 10, 12, 14)
        for broker in BROKERS
    ),
    *(
        Forged(
            f"replica {broker}",
            ApiKey.FETCH,
            version,
            {"replica_state": ReplicaState(replica_id=broker, replica_epoch=1)},
        )
        for version in (15, 17, 18)
        for broker in BROKERS
    ),
    *(
        Forged(f"replica {broker}", api, version, {"replica_id": broker})
        for api, versions in (
            (ApiKey.LIST_OFFSETS, (2, 6, 11)),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, (3, 4)),
        )
        for version in versions
        for broker in (*BROKERS, DEBUGGER)
    ),
]
MARKERS = [*product((3, 9, 12), (0, 1, -1), (False, True))]
"""Versions of Produce, acks, and whether the batch is part of a transaction."""


def test_there_are_enough() -> None:
    """The campaign has at least fifty cases of each kind together."""
    assert 60 <= len({*BROKER_APIS}) + len(CONTROLLER_CALLS) + len(MARKERS)
    assert 50 <= len(FORGED_READS)
    assert not {one for one in BROKER_APIS if ApiKey[one] in HANDLERS}


async def seen(gateway: Guarded) -> object:
    """Return what is stored, and what a reader of committed records gets."""
    session, gateway.session = gateway.session, gateway.admin
    try:
        data = await fetch(gateway, fetch_request(isolation_level=1))
    finally:
        gateway.session = session
    bounds = data.high_watermark, data.last_stable_offset, offsets_in(data)
    return await gateway.stored(), bounds


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A gateway with rules, where Alice has every right but those on the cluster."""
    async with Guarded() as gateway:
        await Transactions(gateway).write(PRODUCER, b"open")
        await permit(
            gateway,
            "ALLOW User:alice ALL TOPIC *",
            "ALLOW User:alice ALL GROUP *",
            "ALLOW User:alice ALL TRANSACTIONAL_ID *",
        )
        yield gateway
        assert {} == gateway.internal_errors


@pytest.mark.parametrize("forged", CONTROLLER_CALLS, ids=str)
async def test_a_client_is_no_controller(guarded: Guarded, forged: Forged) -> None:
    """What changes the cluster changes nothing without rights on the cluster."""
    before = await seen(guarded)
    if forged.api is ApiKey.CREATE_TOPICS:
        # Alice may create topics, as she has ALL on topics; not on a broker that is not there.
        response: Any = await call(guarded, forged.api, forged.version, **forged.fields)
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == response.topics[0].error_code
    else:
        await call(guarded, forged.api, forged.version, **forged.fields)
    assert before == await seen(guarded)


@pytest.mark.parametrize("forged", [one for one in CONTROLLER_CALLS if one.changes], ids=str)
async def test_control_a_client_with_the_rights(guarded: Guarded, forged: Forged) -> None:
    """The same requests change something for who may send them: the campaign would see it."""
    before = await seen(guarded)
    guarded.session = guarded.admin
    if forged.name == "later coordinator":
        # No coordinator has this epoch: it is refused to everybody.
        await call(guarded, forged.api, forged.version, **forged.fields)
        return
    await call(guarded, forged.api, forged.version, **forged.fields)
    assert before != await seen(guarded)


@pytest.mark.parametrize("name", BROKER_APIS)
async def test_apis_of_brokers_are_not_served(guarded: Guarded, name: str) -> None:
    """In every version, whatever their bytes are, also for a super user."""
    before = await seen(guarded)
    inner = b"".join(request_frame(produce_request(batch(b"forged")), 9, 1, "broker"))[4:]
    # The body of Envelope is another request, the principal that sends it, and its address.
    bodies = (
        b"",
        bytes(64),
        len(inner).to_bytes(4, "big") + inner + b"\x0bUser:admin\x05\x7f\0\0\1",
    )
    for session in (guarded.alice, guarded.admin):
        for version in range(10):
            for body in bodies:
                frame = _HEADER.pack(ApiKey[name], version, 1, -1) + body
                try:
                    answer = guarded.dispatcher.start(memoryview(bytearray(frame)), session)
                except ProtocolError:
                    continue
                # An API of admin clients, which kgw refuses in its own words.
                assert isinstance(answer, list)
                refused: Any = decode_response(b"".join(answer)[4:], ApiKey[name], version)[1]
                assert ErrorCode.UNSUPPORTED_VERSION == refused.error_code
    assert before == await seen(guarded)


def read_fields(forged: Forged, topic_id: bytes) -> dict[str, Any]:
    """Return the fields of a read of orders-0, without those of a replica."""
    if forged.api is ApiKey.FETCH:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        named = {"topic": TOPIC, "topic_id": topic_id, "partitions": [partition]}
        return {"max_bytes": 1 << 20, "isolation_level": 1, "topics": [named]}
    if forged.api is ApiKey.LIST_OFFSETS:
        return {"isolation_level": 1, **on_partition(partition_index=0, timestamp=-1)}
    epochs = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"topics": [{"topic": TOPIC, "partitions": [epochs]}]}


async def read(gateway: InProcessGateway, forged: Forged, *, is_forged: bool) -> Response:
    """Send a read, with or without the fields of a replica, and return the response."""
    topic_id = gateway.catalog.topics[TOPIC].topic_id
    fields = read_fields(forged, topic_id) | (forged.fields if is_forged else {})
    response: Response = await call(gateway, forged.api, forged.version, **fields)
    return response


@pytest.mark.parametrize("forged", FORGED_READS, ids=str)
async def test_the_id_of_a_replica_changes_nothing(forged: Forged) -> None:
    """Without rules its sender gets what a consumer gets: nothing of an open transaction."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway)
        await Transactions(gateway).write(PRODUCER, b"open")
        as_consumer = await read(gateway, forged, is_forged=False)
        assert as_consumer == await read(gateway, forged, is_forged=True)
        if forged.api is ApiKey.FETCH:
            (topic,) = as_consumer.responses  # type: ignore[attr-defined]
            (partition,) = topic.partitions
            assert (b"", 0, 1) == (
                bytes(partition.records or b""),
                partition.last_stable_offset,
                partition.high_watermark,
            )


@pytest.mark.parametrize(
    "forged", [one for one in FORGED_READS if one.name != "replica -2"], ids=str
)
async def test_with_rules_a_replica_needs_a_right_on_the_cluster(
    guarded: Guarded, forged: Forged
) -> None:
    """Who says to be a broker may read no topic by that; other reads are those of a client."""
    before = await seen(guarded)
    answer = await read(guarded, forged, is_forged=True)
    if forged.api is ApiKey.FETCH:
        (topic,) = answer.responses  # type: ignore[attr-defined]
        (partition,) = topic.partitions
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED == partition.error_code
        assert b"" == bytes(partition.records or b"")
    else:
        assert answer == await read(guarded, forged, is_forged=False)
    assert before == await seen(guarded)


@pytest.mark.parametrize(("version", "acks", "is_transactional"), MARKERS)
async def test_a_client_writes_no_markers(
    guarded: Guarded, version: int, acks: int, *, is_transactional: bool
) -> None:
    """A control record, with the producer id of an open transaction, is not stored."""
    before = await seen(guarded)
    records = batch(
        b"\0\0\0\1",
        producer_id=PRODUCER,
        base_sequence=1,
        is_transactional=is_transactional,
        is_control=True,
    )
    request = produce_request(records, acks=acks, transactional_id=ID if is_transactional else None)
    for session in (guarded.alice, guarded.admin):
        guarded.session = session
        if acks == 0:
            with pytest.raises(ProtocolError):
                guarded.start(request, version)
        else:
            assert ErrorCode.NONE != (await produced(guarded.start(request, version))).error_code
    guarded.session = guarded.alice
    assert before == await seen(guarded)
