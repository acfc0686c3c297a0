"""What clients are told that lack a right: no more than Kafka 4.4 tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import Session
from kgw.protocol.api_keys import ApiKey
from kgw.security.acls.terms import SUPPORTED_OPERATIONS, AclOperation, ResourceType
from kgw.security.principal import ANONYMOUS, Principal
from kgw.testing.gateway import InProcessGateway
from tests.handlers.access_requests import (
    ALICE,
    GROUP,
    HOST,
    ID,
    NEW,
    TOPIC,
    Guarded,
    codes_inside,
    permit,
)
from tests.handlers.support import batch, call, produce_request, request_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_ID = bytes(16)
UNKNOWN_ID = b"an id of nothing"


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    """A gateway whose rules are empty. A bug met on the way fails the test."""
    async with Guarded() as running:
        yield running
        assert {} == running.gateway.internal_errors


async def create(guarded: Guarded, *names: str, partitions: int = 1) -> None:
    """Create topics as the super user."""
    topics = [{"name": one, "num_partitions": partitions, "replication_factor": 1} for one in names]
    guarded.session = guarded.admin
    await call(guarded, ApiKey.CREATE_TOPICS, 7, topics=topics)
    guarded.session = guarded.alice


@pytest.mark.parametrize(
    ("api", "version", "of"),
    [
        (
            ApiKey.PRODUCE,
            13,
            {"acks": -1, "topic_data": [{"partition_data": [{"records": batch()}]}]},
        ),
        (ApiKey.FETCH, 13, {"topics": [{"partitions": [{"partition": 0}]}]}),
        (ApiKey.METADATA, 12, {"topics": [{"name": None}]}),
        (
            ApiKey.OFFSET_COMMIT,
            10,
            {
                "group_id": GROUP,
                "generation_id_or_member_epoch": -1,
                "topics": [{"partitions": [{"partition_index": 0}]}],
            },
        ),
        (
            ApiKey.OFFSET_FETCH,
            10,
            {"groups": [{"group_id": GROUP, "topics": [{"partition_indexes": [0]}]}]},
        ),
        (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": None}]}),
    ],
    ids=lambda one: one.name if isinstance(one, ApiKey) else "",
)
async def test_ids_are_not_secret(guarded: Guarded, api: ApiKey, version: int, of: Any) -> None:
    """An id that no topic has is unknown to everybody; another one is refused without its name."""
    await permit(guarded, f"ALLOW User:alice READ GROUP {GROUP}")
    for topic_id, code in (
        (UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        (guarded.names.topic_id, TOPIC_DENIED),
    ):
        request = request_of(api, **of)
        holder = request.groups[0] if api is ApiKey.OFFSET_FETCH else request
        (named,) = holder.topic_data if api is ApiKey.PRODUCE else holder.topics
        named.topic_id = topic_id
        response = await guarded.request(request, version)
        assert {code} == set(codes_inside(response, version))
        assert TOPIC not in repr(response)


async def test_produce_without_an_answer_is_closed(guarded: Guarded) -> None:
    """With acks=0 there is no other way to tell the client."""
    with pytest.raises(ProtocolError, match="acks=0, TOPIC_AUTHORIZATION_FAILED"):
        await guarded.start(produce_request(batch(), acks=0), 9).response()
    await permit(guarded, "ALLOW User:alice WRITE TOPIC orders")
    records = batch(producer_id=1, base_sequence=0, is_transactional=True)
    request = produce_request(records, acks=0, transactional_id=ID)
    with pytest.raises(ProtocolError, match="acks=0, TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await guarded.start(request, 9).response()


async def test_each_topic_of_a_request_is_asked_for(guarded: Guarded) -> None:
    """A topic with the right is answered as ever beside one without; so is each partition."""
    await permit(guarded, "ALLOW User:alice WRITE TOPIC orders")
    data = [{"index": index, "records": batch()} for index in (0, 7)]
    named = [{"name": name, "partition_data": data} for name in (TOPIC, NEW)]
    response = await call(guarded, ApiKey.PRODUCE, 9, acks=-1, timeout_ms=1000, topic_data=named)
    assert [[0, 3], [29, 29]] == [
        [one.error_code for one in topic.partition_responses] for topic in response.responses
    ]
    assert {-1} == {one.base_offset for one in response.responses[1].partition_responses}


async def test_metadata_hides_topics(guarded: Guarded) -> None:
    """By name the id is zero, by id the name is null; neither has partitions or operations."""
    request = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
    response = await call(guarded, ApiKey.METADATA, 12, topics=[{"name": TOPIC}], **request)
    (topic,) = response.topics
    assert (TOPIC_DENIED, TOPIC, NO_ID, []) == (
        topic.error_code,
        topic.name,
        topic.topic_id,
        topic.partitions,
    )
    assert -(2**31) == topic.topic_authorized_operations
    wanted = [{"name": None, "topic_id": guarded.names.topic_id}]
    response = await call(guarded, ApiKey.METADATA, 12, topics=wanted, **request)
    (topic,) = response.topics
    assert (TOPIC_DENIED, None, guarded.names.topic_id) == (
        topic.error_code,
        topic.name,
        topic.topic_id,
    )


async def test_metadata_asks_for_the_right_to_create(guarded: Guarded) -> None:
    """A client that may see a missing topic, and not create it, is refused, and it is not made."""
    await permit(guarded, "ALLOW User:alice DESCRIBE TOPIC *")
    response = await call(guarded, ApiKey.METADATA, 12, topics=[{"name": NEW}])
    assert (TOPIC_DENIED, NEW) == (response.topics[0].error_code, response.topics[0].name)
    assert NEW not in guarded.catalog.topics
    await permit(guarded, f"ALLOW User:alice CREATE TOPIC {NEW}")
    response = await call(guarded, ApiKey.METADATA, 12, topics=[{"name": NEW}])
    assert ErrorCode.NONE == response.topics[0].error_code
    assert NEW in guarded.catalog.topics


async def test_a_denied_client_makes_no_internal_topic_appear(guarded: Guarded) -> None:
    """Asking for one by name lists it from then on, but not if the client may not see it."""
    name = "__consumer_offsets"
    await call(guarded, ApiKey.METADATA, 12, topics=[{"name": name}])
    await call(guarded, ApiKey.LIST_OFFSETS, 6, topics=[{"name": name, "partitions": [{}]}])
    assert [TOPIC] == [one.name for one in guarded.catalog.listed]


async def test_the_list_of_topics_has_what_a_client_may_see(guarded: Guarded) -> None:
    """READ, WRITE, DELETE and ALTER include DESCRIBE; a DENY of DESCRIBE hides the topic."""
    await create(guarded, "a-read", "a-hidden", "b", "c-other")
    await permit(
        guarded,
        "ALLOW User:alice READ TOPIC a-~",
        "DENY User:alice DESCRIBE TOPIC a-hidden",
        "ALLOW User:* ALTER TOPIC b",
        "ALLOW User:alice CREATE TOPIC c-~",
    )
    for version in (0, 1, 12):
        response = await call(guarded, ApiKey.METADATA, version, topics=None if version else [])
        assert ["a-read", "b"] == [one.name for one in response.topics]
    response = await call(
        guarded, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=9
    )
    assert ["a-read", "b"] == [one.name for one in response.topics]


async def test_group_refusals(guarded: Guarded) -> None:
    """A client without the right learns no member id, and no member."""
    for version in range(10):
        joined = await call(guarded, ApiKey.JOIN_GROUP, version, group_id=GROUP, member_id="mine")
        assert (GROUP_DENIED, "") == (joined.error_code, joined.member_id)
    left = await call(guarded, ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=[{"member_id": "m"}])
    assert (GROUP_DENIED, []) == (left.error_code, left.members)
    # As in Kafka, whose clients always name the protocol.
    synced = await call(guarded, ApiKey.SYNC_GROUP, 5, group_id=GROUP)
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == synced.error_code


@pytest.mark.parametrize("entry", ["kgw.group.members", "kgw.group.trace"])
async def test_the_settings_of_a_group_tell_nothing_of_its_members(
    guarded: Guarded, entry: str
) -> None:
    """These entries need DESCRIBE on the group, as DescribeGroups does, also for a missing one."""
    await permit(guarded, "ALLOW User:alice DESCRIBE_CONFIGS GROUP *")

    async def described(name: str, *keys: str) -> tuple[int, int]:
        resource = {"resource_type": 32, "resource_name": name, "configuration_keys": [*keys]}
        response = await call(guarded, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
        (result,) = response.results
        return result.error_code, len(result.configs)

    assert (ErrorCode.NONE, 0) == await described(GROUP)
    for name in (GROUP, "absent"):
        assert (GROUP_DENIED, 0) == await described(name, entry)
    await permit(guarded, f"ALLOW User:alice DESCRIBE GROUP {GROUP}")
    assert (ErrorCode.NONE, 1) == await described(GROUP, entry)
    assert (GROUP_DENIED, 0) == await described("absent", entry)


async def test_the_group_comes_before_the_topics(guarded: Guarded) -> None:
    """A commit without the right on the group is refused for each partition with that."""
    for api, version in ((ApiKey.OFFSET_COMMIT, 9), (ApiKey.TXN_OFFSET_COMMIT, 5)):
        await permit(guarded, f"ALLOW User:alice WRITE TRANSACTIONAL_ID {ID}")
        named = [{"name": one, "partitions": [{"partition_index": 0}]} for one in (TOPIC, NEW)]
        fields: Any = {"group_id": GROUP, "topics": named}
        if api is ApiKey.TXN_OFFSET_COMMIT:
            fields["transactional_id"] = ID
        response = await call(guarded, api, version, **fields)
        assert [GROUP_DENIED] * 2 == codes_inside(response, version)


async def test_a_commit_names_a_denied_topic_twice(guarded: Guarded) -> None:
    """It is answered as a topic that does not exist: once, with all of its partitions."""
    await permit(guarded, f"ALLOW User:alice READ GROUP {GROUP}")

    def mentions(name: str) -> list[dict[str, Any]]:
        partitions = [[{"partition_index": 0}], [], [{"partition_index": 1}]]
        return [{"name": name, "partitions": one} for one in partitions]

    texts = set()
    for name in (TOPIC, NEW):
        response = await call(
            guarded,
            ApiKey.OFFSET_COMMIT,
            9,
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            topics=mentions(name),
        )
        assert [TOPIC_DENIED] * 2 == codes_inside(response, 9)
        texts.add(repr(response).replace(name, "?"))
    assert 1 == len(texts)


async def test_a_large_commit_is_refused_by_topic(guarded: Guarded) -> None:
    """Also in several turns of the loop, and where offsets would become one block."""
    guarded.session = guarded.admin
    await call(
        guarded,
        ApiKey.CREATE_TOPICS,
        7,
        topics=[{"name": "many", "num_partitions": 900, "replication_factor": 1}],
    )
    guarded.session = guarded.alice
    await permit(
        guarded, f"ALLOW User:alice READ GROUP {GROUP}", "ALLOW User:alice READ TOPIC orders"
    )
    partitions = [{"partition_index": index, "committed_offset": 3} for index in range(900)]
    named = [
        {"name": "many", "partitions": partitions},
        {"name": TOPIC, "partitions": partitions[:1]},
    ]
    before = await guarded.stored()
    response = await call(
        guarded,
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=named[:1],
    )
    assert [TOPIC_DENIED] * 900 == codes_inside(response, 9)
    assert before == await guarded.stored()
    response = await call(
        guarded,
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=named,
    )
    assert [*[TOPIC_DENIED] * 900, 0] == codes_inside(response, 9)


async def test_the_cluster_shows_every_group(guarded: Guarded) -> None:
    """DESCRIBE on the cluster lists also a group that a DENY names."""
    await permit(
        guarded,
        "ALLOW User:alice DESCRIBE CLUSTER kafka-cluster",
        f"DENY User:alice ALL GROUP {GROUP}",
    )
    assert [GROUP] == [one.group_id for one in (await call(guarded, ApiKey.LIST_GROUPS, 4)).groups]


async def test_created_topics(guarded: Guarded) -> None:
    """CREATE is asked for before it is known what exists; without DESCRIBE_CONFIGS less is told."""
    await permit(guarded, f"ALLOW User:alice CREATE TOPIC {NEW}")

    async def created_topics(*names: str) -> list[Any]:
        topics = [{"name": one, "num_partitions": 2, "replication_factor": 1} for one in names]
        response = await call(guarded, ApiKey.CREATE_TOPICS, 7, topics=topics)
        assert isinstance(response.topics, list)
        return response.topics

    denied, created = await created_topics(TOPIC, NEW)
    assert (TOPIC_DENIED, NO_ID) == (denied.error_code, denied.topic_id)
    assert (0, TOPIC_DENIED, -1, -1, []) == (
        created.error_code,
        created.topic_config_error_code,
        created.num_partitions,
        created.replication_factor,
        created.configs,
    )
    assert guarded.catalog.topics[NEW].topic_id == created.topic_id
    twice, existing = (await created_topics("twice", "twice"))[0], (await created_topics(NEW))[0]
    assert (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_ALREADY_EXISTS) == (
        twice.error_code,
        existing.error_code,
    )
    response = await call(guarded, ApiKey.METADATA, 12, topics=[{"name": NEW}])
    assert TOPIC_DENIED == response.topics[0].error_code


@pytest.mark.parametrize(
    ("rules", "by_name", "missing", "by_id"),
    [
        ((), (29, TOPIC), 29, (29, None)),
        (("ALLOW User:alice DESCRIBE TOPIC *",), (29, TOPIC), 3, (29, TOPIC)),
        (
            ("ALLOW User:alice DELETE TOPIC *", "DENY User:alice DESCRIBE TOPIC *"),
            (29, TOPIC),
            29,
            (0, TOPIC),
        ),
        (("ALLOW User:alice DELETE TOPIC orders",), (0, TOPIC), 29, (0, TOPIC)),
        (("ALLOW User:alice DELETE CLUSTER kafka-cluster",), (0, TOPIC), 3, (0, TOPIC)),
    ],
)
async def test_deleted_topics(
    rules: tuple[str, ...], by_name: Any, missing: int, by_id: Any
) -> None:
    """DESCRIBE decides what is told of a topic, DELETE whether it goes; an id is no secret."""
    for name, topic_id, expected in (
        (TOPIC, None, by_name),
        (NEW, None, (missing, NEW)),
        (None, TOPIC, by_id),
        (None, UNKNOWN_ID, (100, None)),
    ):
        async with Guarded() as guarded:
            await permit(guarded, *rules)
            known_id = guarded.names.topic_id if topic_id == TOPIC else topic_id or NO_ID
            asked = [{"name": name, "topic_id": known_id}]
            response = await call(guarded, ApiKey.DELETE_TOPICS, 6, topics=asked)
            (topic,) = response.responses
            assert expected == (topic.error_code, topic.name)
            # Only a deleted topic that was named has its id.
            deleted_id = guarded.names.topic_id
            assert topic.topic_id == (deleted_id if not topic.error_code else known_id)
            assert (TOPIC in guarded.catalog.topics) == (topic.error_code != 0)


async def test_one_denied_partition_keeps_all_out_of_a_transaction(guarded: Guarded) -> None:
    """The others are OPERATION_NOT_ATTEMPTED; an internal topic is refused to super users, too."""
    await permit(
        guarded,
        f"ALLOW User:alice WRITE TRANSACTIONAL_ID {ID}",
        "ALLOW User:alice WRITE TOPIC orders",
    )
    topics = [{"name": one, "partitions": [0]} for one in (TOPIC, NEW)]
    for names, session, codes in (
        ((TOPIC, NEW), guarded.alice, [55, 29]),
        ((NEW, TOPIC), guarded.alice, [29, 55]),
        (("__consumer_offsets", TOPIC), guarded.admin, [29, 55]),
    ):
        guarded.session = session
        topics = [{"name": one, "partitions": [0]} for one in names]
        response = await call(
            guarded,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=ID,
            v3_and_below_topics=topics,
        )
        assert codes == codes_inside(response, 3)


async def test_refusals_with_little(guarded: Guarded) -> None:
    """No directory, no quota, no user and no operation is told."""
    directories = await call(guarded, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert (CLUSTER_DENIED, []) == (directories.error_code, directories.results)
    for version in range(3):
        old = await call(guarded, ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
        assert [] == old.results
    quotas = await call(guarded, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[])
    assert (CLUSTER_DENIED, None) == (quotas.error_code, quotas.entries)
    users = await call(
        guarded, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "a"}, {"name": "b"}]
    )
    assert [(CLUSTER_DENIED, "")] * 2 == [(one.error_code, one.user) for one in users.results]
    cluster = await call(
        guarded, ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True
    )
    assert ([1], 0) == (
        [one.broker_id for one in cluster.brokers],
        cluster.cluster_authorized_operations,
    )
    resources = await call(guarded, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[99])
    assert CLUSTER_DENIED == resources.error_code


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
async def test_what_no_client_may_send_is_told_first(guarded: Guarded, api: ApiKey) -> None:
    """A setting that is named twice, or has no value, as in Kafka; a value is read after that."""
    good, null = ({"name": "retention.ms", "value": one} for one in ("1", None))
    for configs, code in (
        ([good, good], ErrorCode.INVALID_REQUEST),
        ([null], ErrorCode.INVALID_REQUEST),
        ([good], TOPIC_DENIED),
        ([{"name": "retention.ms", "value": "no number"}], TOPIC_DENIED),
        ([{"name": "no.setting", "value": "1"}], TOPIC_DENIED),
    ):
        for name in (TOPIC, NEW):
            resource = {"resource_type": 2, "resource_name": name, "configs": configs}
            response = await call(guarded, api, 1, resources=[resource])
            assert [code] == codes_inside(response, 1)


async def test_a_name_that_no_topic_may_have(guarded: Guarded) -> None:
    """DescribeProducers refuses it before it asks for the right."""
    named = [{"name": one, "partition_indexes": [0]} for one in ("a b", NEW)]
    response = await call(guarded, ApiKey.DESCRIBE_PRODUCERS, 0, topics=named)
    assert [ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_DENIED] == codes_inside(response, 0)


async def test_described_partitions(guarded: Guarded) -> None:
    """Topics without the right come last, with the zero id; the page has the others."""
    await permit(guarded, "ALLOW User:alice DESCRIBE TOPIC orders")
    named = [{"name": one} for one in ("aaa", TOPIC, "zzz")]
    response = await call(
        guarded, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=named, response_partition_limit=9
    )
    assert [(TOPIC, 0), ("aaa", 29), ("zzz", 29)] == [
        (one.name, one.error_code) for one in response.topics
    ]
    assert [NO_ID] * 2 == [one.topic_id for one in response.topics[1:]]


async def test_authorized_operations_are_those_of_the_client(guarded: Guarded) -> None:
    """Of topics, of groups and of the cluster: for the super user all, for Alice hers (KIP-430)."""
    await permit(
        guarded,
        "ALLOW User:alice READ TOPIC orders",
        "ALLOW User:alice ALTER_CONFIGS TOPIC ord~",
        "DENY User:alice DESCRIBE_CONFIGS TOPIC orders",
        f"ALLOW User:alice ALL GROUP {GROUP}",
        f"DENY User:alice DELETE GROUP {GROUP}",
        "ALLOW User:alice ALTER CLUSTER kafka-cluster",
    )

    async def found() -> list[frozenset[str]]:
        topics: dict[str, Any] = {
            "topics": [{"name": TOPIC}],
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        }
        metadata = await call(guarded, ApiKey.METADATA, 8, **topics)
        groups = await call(
            guarded, ApiKey.DESCRIBE_GROUPS, 5, groups=[GROUP], include_authorized_operations=True
        )
        cluster = await call(
            guarded, ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True
        )
        pages = await call(
            guarded,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": TOPIC}],
            response_partition_limit=1,
        )
        fields = (
            metadata.topics[0].topic_authorized_operations,
            metadata.cluster_authorized_operations,
            groups.groups[0].authorized_operations,
            cluster.cluster_authorized_operations,
            pages.topics[0].topic_authorized_operations,
        )
        return [frozenset(one.name for one in AclOperation if field >> one & 1) for field in fields]

    topic = frozenset({"READ", "DESCRIBE", "ALTER_CONFIGS"})
    cluster = frozenset({"ALTER", "DESCRIBE"})
    group = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"})
    hers = [topic, cluster, group, cluster, topic]
    supported = [
        frozenset(one.name for one in SUPPORTED_OPERATIONS[of])
        for of in (
            ResourceType.TOPIC,
            ResourceType.CLUSTER,
            ResourceType.GROUP,
            ResourceType.CLUSTER,
            ResourceType.TOPIC,
        )
    ]
    # In turns: an encoded topic is kept, and must not be given to the other client.
    for session, expected in (
        (guarded.alice, hers),
        (guarded.admin, supported),
        (guarded.alice, hers),
    ):
        guarded.session = session
        assert expected == await found()


async def test_apis_that_ask_for_nothing() -> None:
    """Everybody may send them, also a client that no rule mentions."""
    async with Guarded() as guarded:
        versions = await call(guarded, ApiKey.API_VERSIONS, 2)
        assert ErrorCode.NONE == versions.error_code
        for api, fields in (
            (ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}),
            (ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b""}),
        ):
            response = await call(guarded, api, 1, **fields)
            assert ErrorCode.ILLEGAL_SASL_STATE == response.error_code
        for api, code in (
            (ApiKey.RENEW_DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
            (ApiKey.DESCRIBE_DELEGATION_TOKEN, ErrorCode.NONE),
            (ApiKey.CREATE_DELEGATION_TOKEN, ErrorCode.NONE),
        ):
            response = await call(guarded, api, 2)
            assert code == response.error_code


async def test_a_super_user_is_one_by_type_and_name(guarded: Guarded) -> None:
    """`Group:admin` and `User:Admin` are others than `User:admin`; so is an anonymous client."""
    for principal in (Principal("Group", "admin"), Principal("User", "Admin"), ANONYMOUS):
        guarded.session = Session(client_host=HOST, principal=principal)
        response = await call(guarded, ApiKey.METADATA, 12, topics=[{"name": TOPIC}])
        assert TOPIC_DENIED == response.topics[0].error_code


async def test_a_rule_holds_for_its_host(guarded: Guarded) -> None:
    """The address of the connection counts, in whatever form a rule has it."""
    await permit(
        guarded,
        "ALLOW User:alice DESCRIBE TOPIC orders @192.0.2.7",
        "ALLOW User:alice DESCRIBE TOPIC orders @0:0:0:0:0:0:0:1",
    )
    for host, code in (("192.0.2.7", 0), ("::1", 0), ("192.0.2.77", 29), (HOST, 29)):
        guarded.session = Session(client_host=host, principal=ALICE)
        response = await call(guarded, ApiKey.METADATA, 12, topics=[{"name": TOPIC}])
        assert code == response.topics[0].error_code


async def test_a_producer_may_be_idempotent_where_it_may_write(guarded: Guarded) -> None:
    """WRITE on any topic is enough for a producer id, unless the same pattern is denied."""
    await permit(guarded, "ALLOW User:alice WRITE TOPIC app-~")
    assert 0 == (await call(guarded, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)).error_code
    await permit(guarded, "DENY User:alice WRITE TOPIC app~")
    response = await call(guarded, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    assert CLUSTER_DENIED == response.error_code


async def test_a_replica_needs_the_cluster(guarded: Guarded) -> None:
    """A client that calls itself a broker reads no topic by its own rights (CVE-2018-1288)."""
    await permit(guarded, "ALLOW User:alice READ TOPIC *")
    wanted = [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 99}]}]
    response = await call(guarded, ApiKey.FETCH, 11, replica_id=7, max_bytes=99, topics=wanted)
    assert [TOPIC_DENIED] == codes_inside(response, 11)
    response = await call(guarded, ApiKey.FETCH, 11, max_bytes=99, topics=wanted)
    assert [ErrorCode.NONE] == codes_inside(response, 11)


async def test_until_the_rules_are_loaded_nothing_is_allowed() -> None:
    """A process that leads and has not read them is no open door."""
    guarded = Guarded()
    for session in (guarded.alice, Session(client_host=HOST)):
        response = await guarded.request(
            request_of(ApiKey.METADATA, topics=[{"name": TOPIC}]), 8, session=session
        )
        assert {TOPIC_DENIED} == set(codes_inside(response, 8))


async def test_without_the_settings_everybody_may_do_everything() -> None:
    """As before: no rules are kept, and the APIs of rules say so."""
    async with InProcessGateway() as gateway:
        assert gateway.gateway.access is None
        response = await call(gateway, ApiKey.DESCRIBE_ACLS, 3)
        assert ErrorCode.SECURITY_DISABLED == response.error_code


async def test_kafkas_class_switches_the_rules_on() -> None:
    """Without a super user; kgw loads no class."""
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with InProcessGateway(Config.of(authorizer_class_name=name)) as gateway:
        response = await call(gateway, ApiKey.DESCRIBE_ACLS, 3)
        assert CLUSTER_DENIED == response.error_code
