"""A request of each API, with the checks of `api_table` that it meets; and a client to send it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.config import Config
from kgw.handlers.context import Session
from kgw.handlers.refused import code_field_of
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.fetch import ReplicaState
from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kgw.security.principal import Principal
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, call, create_topic, request_of
from tests.security.acls.writing import rule
from tests.security.oracle.api_table import BY_KEY, Check, Place, Right

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.protocol.schema import Request, Struct
    from kgw.security.access import Access

ALICE: Final = Principal("User", "alice")
ADMIN: Final = Principal("User", "admin")
HOST: Final = "192.0.2.1"
TOPIC, GROUP, ID = "orders", "group", "copier"
NEW = "absent"
"""A topic that does not exist. Its name is as long as the other one."""


class Names(NamedTuple):
    """What a request names."""

    topic: str = TOPIC
    topic_id: bytes = bytes(16)


Fields = dict[str, Any]


class Scenario(NamedTuple):
    """A request of an API, and the numbers of the checks in the API's row that it meets."""

    api: ApiKey
    name: str
    checks: tuple[int, ...]
    fields: Callable[[Names, int], Fields]
    versions: range | None = None
    """None: all that are served."""

    @property
    def served(self) -> range:
        """The versions of the scenario that are served."""
        handler = HANDLERS[self.api]
        first, last = handler.min_version, handler.max_version
        if self.versions is None:
            return range(first, last + 1)
        return range(max(first, self.versions.start), min(last + 1, self.versions.stop))

    def request(self, names: Names, version: int) -> Request:
        """Return the request in one version."""
        request: Request = request_of(self.api, **self.fields(names, version))
        return request

    def check(self, number: int) -> Check:
        return BY_KEY[self.api].checks[number]


def _topics(name: str = "name", partitions: str = "partitions", **partition: Any) -> Any:
    """Return what names one partition of the topic by name."""
    of = [partition] if partition else [0]
    return lambda names, _: {"topics": [{name: names.topic, partitions: of}]}


def _produce(names: Names, version: int, **fields: Any) -> Fields:
    records = batch(**fields)
    data = [{"index": 0, "records": records}]
    named = {"name": names.topic, "topic_id": names.topic_id, "partition_data": data}
    fixed: Fields = {"acks": -1, "timeout_ms": 1000, "topic_data": [named]}
    return fixed | ({"transactional_id": ID} if fields else {})


def _fetch(names: Names, version: int) -> Fields:
    wanted = {"partition": 0, "partition_max_bytes": 1 << 20}
    named = {"topic": names.topic, "topic_id": names.topic_id, "partitions": [wanted]}
    return {"max_bytes": 1 << 20, "topics": [named]}


def _replica(names: Names, version: int) -> Fields:
    if version < 15:
        return {"replica_id": 7, **_fetch(names, version)}
    return {"replica_state": _state(), **_fetch(names, version)}


def _state() -> Struct:
    return ReplicaState(replica_id=7)


def _metadata(names: Names, version: int) -> Fields:
    return {"topics": [{"name": names.topic}], "allow_auto_topic_creation": version < 4}


def _metadata_by_id(names: Names, version: int) -> Fields:
    named = {"name": None, "topic_id": names.topic_id}
    return {"topics": [named], "allow_auto_topic_creation": False}


def _metadata_creates(names: Names, version: int) -> Fields:
    return {"topics": [{"name": NEW}], "allow_auto_topic_creation": True}


def _commit(names: Names, version: int) -> Fields:
    named = {
        "name": names.topic,
        "topic_id": names.topic_id,
        "partitions": [{"partition_index": 0, "committed_offset": 1}],
    }
    return {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": [named]}


def _txn_commit(names: Names, version: int) -> Fields:
    return {"transactional_id": ID, "producer_id": 1, "producer_epoch": 0, **_commit(names, 0)}


def _offset_fetch(names: Names, version: int) -> Fields:
    named: Fields = {"name": names.topic, "partition_indexes": [0]}
    if version < 8:
        return {"group_id": GROUP, "topics": [named]}
    return {"groups": [{"group_id": GROUP, "topics": [{**named, "topic_id": names.topic_id}]}]}


def _offset_fetch_all(names: Names, version: int) -> Fields:
    asked = {"group_id": GROUP, "topics": None}
    return asked if version < 8 else {"groups": [asked]}


def _find(key_type: int, key: str) -> Callable[[Names, int], Fields]:
    def fields(_: Names, version: int) -> Fields:
        kind: Fields = {"key_type": key_type} if version else {}
        return kind | ({"key": key} if version < 4 else {"coordinator_keys": [key]})

    return fields


def _leave(_: Names, version: int) -> Fields:
    if version < 3:
        return {"group_id": GROUP, "member_id": "m"}
    return {"group_id": GROUP, "members": [{"member_id": "m"}]}


def _join(_: Names, version: int) -> Fields:
    return {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def _sync(_: Names, version: int) -> Fields:
    named: Fields = {"protocol_type": "consumer", "protocol_name": "range"} if version > 4 else {}
    return {"group_id": GROUP, "generation_id": 1, "member_id": "m", **named}


def _delete_topics(names: Names, version: int) -> Fields:
    if version < 6:
        return {"topic_names": [names.topic]}
    return {"topics": [{"name": names.topic}]}


def _add_partitions(names: Names, version: int) -> Fields:
    topics = [{"name": names.topic, "partitions": [0]}]
    if version < 4:
        return {"v3_and_below_transactional_id": ID, "v3_and_below_topics": topics}
    return {"transactions": [{"transactional_id": ID, "topics": topics}]}


def _configs(resource_type: int, name: str | None = None) -> Callable[[Names, int], Fields]:
    """Return a request about the settings of a resource: of a topic, if it has no name."""

    def fields(names: Names, _: int) -> Fields:
        resource = {
            "resource_type": resource_type,
            "resource_name": names.topic if name is None else name,
        }
        return {"resources": [resource]}

    return fields


def _directories(names: Names, _: int) -> Fields:
    return {
        "dirs": [{"path": "memory:", "topics": [{"name": names.topic, "partitions": [0]}]}],
    }


def _quotas(_: Names, __: int) -> Fields:
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    return {"entries": [{"entity": entity, "ops": []}]}


def _same(**fields: Any) -> Callable[[Names, int], Fields]:
    """Return the same fields in every version."""
    return lambda *_: fields


RULE = {
    "resource_type": 2,
    "resource_name": TOPIC,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}

SCENARIOS: Final = (
    Scenario(ApiKey.PRODUCE, "plain", (1,), _produce),
    Scenario(
        ApiKey.PRODUCE,
        "transactional",
        (0, 1),
        lambda names, version: _produce(
            names, version, producer_id=1, base_sequence=0, is_transactional=True
        ),
        range(3, 99),
    ),
    Scenario(ApiKey.FETCH, "consumer", (1,), _fetch),
    Scenario(ApiKey.FETCH, "replica", (0,), _replica),
    Scenario(ApiKey.LIST_OFFSETS, "", (0,), _topics(partition_index=0, timestamp=-1)),
    Scenario(ApiKey.METADATA, "all", (0,), lambda _, v: {"topics": None if v else []}),
    Scenario(ApiKey.METADATA, "names", (1,), _metadata),
    Scenario(ApiKey.METADATA, "ids", (1,), _metadata_by_id, range(12, 99)),
    Scenario(ApiKey.METADATA, "creates", (1, 2), _metadata_creates),
    Scenario(
        ApiKey.METADATA,
        "cluster operations",
        (3,),
        _same(topics=[], include_cluster_authorized_operations=True),
        range(8, 11),
    ),
    Scenario(ApiKey.OFFSET_COMMIT, "", (0, 1), _commit),
    Scenario(ApiKey.OFFSET_FETCH, "names", (0, 1), _offset_fetch),
    Scenario(ApiKey.OFFSET_FETCH, "all", (0, 2), _offset_fetch_all, range(2, 99)),
    Scenario(ApiKey.FIND_COORDINATOR, "group", (0,), _find(0, GROUP)),
    Scenario(ApiKey.FIND_COORDINATOR, "transaction", (1,), _find(1, ID), range(1, 99)),
    Scenario(ApiKey.FIND_COORDINATOR, "share", (2,), _find(2, "a:b:0"), range(6, 99)),
    Scenario(ApiKey.JOIN_GROUP, "", (0,), _join),
    Scenario(ApiKey.HEARTBEAT, "", (0,), _same(group_id=GROUP, generation_id=1, member_id="m")),
    Scenario(ApiKey.LEAVE_GROUP, "", (0,), _leave),
    Scenario(ApiKey.SYNC_GROUP, "", (0,), _sync),
    Scenario(ApiKey.DESCRIBE_GROUPS, "", (0,), _same(groups=[GROUP])),
    Scenario(ApiKey.LIST_GROUPS, "", (0,), _same()),
    Scenario(
        ApiKey.CREATE_TOPICS,
        "",
        (0, 1),
        _same(topics=[{"name": NEW, "num_partitions": 1, "replication_factor": 1}]),
        range(5, 99),
    ),
    Scenario(
        ApiKey.CREATE_TOPICS,
        "before its settings",
        (0,),
        _same(topics=[{"name": NEW, "num_partitions": 1, "replication_factor": 1}]),
        range(5),
    ),
    Scenario(ApiKey.DELETE_TOPICS, "names", (0, 1), _delete_topics),
    Scenario(
        ApiKey.DELETE_TOPICS,
        "ids",
        (1,),
        lambda names, _: {"topics": [{"name": None, "topic_id": names.topic_id}]},
        range(6, 99),
    ),
    Scenario(ApiKey.DELETE_RECORDS, "", (0,), _topics(partition_index=0, offset=-1)),
    Scenario(
        ApiKey.INIT_PRODUCER_ID,
        "transactional",
        (0,),
        _same(transactional_id=ID, transaction_timeout_ms=1000),
    ),
    Scenario(ApiKey.INIT_PRODUCER_ID, "idempotent", (2,), _same(transactional_id=None)),
    Scenario(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, "", (0,), _topics("topic", partition=0, leader_epoch=0)
    ),
    Scenario(ApiKey.ADD_PARTITIONS_TO_TXN, "client", (1, 2), _add_partitions, range(4)),
    Scenario(ApiKey.ADD_PARTITIONS_TO_TXN, "broker", (0,), _add_partitions, range(4, 99)),
    Scenario(ApiKey.ADD_OFFSETS_TO_TXN, "", (0, 1), _same(transactional_id=ID, group_id=GROUP)),
    Scenario(ApiKey.END_TXN, "", (0,), _same(transactional_id=ID)),
    Scenario(
        ApiKey.WRITE_TXN_MARKERS,
        "",
        (0,),
        lambda names, _: {
            "markers": [
                {
                    "producer_id": 1,
                    "topics": [{"name": names.topic, "partition_indexes": [0]}],
                }
            ]
        },
    ),
    Scenario(ApiKey.TXN_OFFSET_COMMIT, "", (0, 1, 2), _txn_commit),
    Scenario(
        ApiKey.DESCRIBE_ACLS,
        "",
        (0,),
        _same(resource_type_filter=1, operation=1, permission_type=1),
    ),
    Scenario(ApiKey.CREATE_ACLS, "", (0,), _same(creations=[RULE])),
    Scenario(
        ApiKey.DELETE_ACLS,
        "",
        (0,),
        _same(filters=[{"resource_type_filter": 1, "operation": 1, "permission_type": 1}]),
    ),
    *(
        Scenario(api, kind, (check,), _configs(resource_type, name), versions)
        for api in (
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
        )
        for kind, check, resource_type, name, versions in (
            ("topic", 1, 2, None, None),
            ("broker", 0, 4, "", None),
            ("logger", 0, 8, "1", range(99) if api is not ApiKey.ALTER_CONFIGS else range(0)),
            ("client metrics", 0, 16, "m", None),
            ("group", 2, 32, GROUP, None),
        )
    ),
    Scenario(ApiKey.ALTER_REPLICA_LOG_DIRS, "", (0,), _directories),
    Scenario(ApiKey.DESCRIBE_LOG_DIRS, "", (0,), _same(topics=None)),
    Scenario(
        ApiKey.CREATE_PARTITIONS,
        "",
        (0,),
        lambda names, _: {"topics": [{"name": names.topic, "count": 2, "assignments": None}]},
    ),
    Scenario(
        ApiKey.CREATE_DELEGATION_TOKEN,
        "",
        (0,),
        _same(owner_principal_type="User", owner_principal_name="bob"),
        range(3, 99),
    ),
    Scenario(ApiKey.DESCRIBE_DELEGATION_TOKEN, "", (0,), _same(owners=None)),
    Scenario(ApiKey.DELETE_GROUPS, "", (0,), _same(groups_names=[GROUP])),
    Scenario(
        ApiKey.ELECT_LEADERS,
        "",
        (0,),
        lambda names, _: {"topic_partitions": [{"topic": names.topic, "partitions": [0]}]},
    ),
    Scenario(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, "", (0,), _topics(partition_index=0, replicas=[1])
    ),
    Scenario(ApiKey.LIST_PARTITION_REASSIGNMENTS, "", (0,), _same(topics=None)),
    Scenario(
        ApiKey.OFFSET_DELETE,
        "",
        (0, 1),
        lambda names, _: {
            "group_id": GROUP,
            "topics": [{"name": names.topic, "partitions": [{"partition_index": 0}]}],
        },
    ),
    Scenario(ApiKey.DESCRIBE_CLIENT_QUOTAS, "", (0,), _same(components=[])),
    Scenario(ApiKey.ALTER_CLIENT_QUOTAS, "", (0,), _quotas),
    Scenario(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "", (0,), _same(users=[{"name": "alice"}])),
    Scenario(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        "",
        (0,),
        _same(deletions=[{"name": "alice", "mechanism": 1}]),
    ),
    Scenario(ApiKey.DESCRIBE_CLUSTER, "", (0,), _same(include_cluster_authorized_operations=True)),
    Scenario(ApiKey.DESCRIBE_PRODUCERS, "", (0,), _topics(partitions="partition_indexes")),
    Scenario(ApiKey.DESCRIBE_TRANSACTIONS, "", (0, 1), _same(transactional_ids=[ID])),
    Scenario(ApiKey.LIST_TRANSACTIONS, "", (0,), _same()),
    Scenario(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "",
        (0, 1),
        lambda names, _: {"group_id": GROUP, "subscribed_topic_names": [names.topic]},
    ),
    Scenario(ApiKey.CONSUMER_GROUP_DESCRIBE, "", (0,), _same(group_ids=[GROUP])),
    Scenario(ApiKey.LIST_CONFIG_RESOURCES, "", (0,), _same()),
    Scenario(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        "names",
        (0,),
        lambda names, _: {"topics": [{"name": names.topic}], "response_partition_limit": 9},
    ),
    Scenario(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, "all", (1,), _same(topics=[], response_partition_limit=9)
    ),
)

UNMET: Final = {
    (ApiKey.INIT_PRODUCER_ID, 1): "two-phase commit begins with version 6, which is not served",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 2): "the protocol of KIP-848 is off",
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1): "the protocol of KIP-848 is off",
}
"""Checks that no request can meet."""


# --- the gateway ---------------------------------------------------------------------------------


class Guarded(InProcessGateway):
    """A gateway with access rules, a topic, a group, a transaction, and a token of Bob's.

    Alice sends its requests.
    """

    def __init__(self, **settings: Any) -> None:
        config = {
            "super_users": "User:admin",
            "node_id": 1,
            "delegation_token_secret_key": "a secret of more than 32 characters",
            **settings,
        }
        super().__init__(Config.of(**config))
        self.admin = Session(client_host=HOST, principal=ADMIN)
        self.session = Session(client_host=HOST, principal=ALICE)
        self.alice = self.session
        self.names = Names()

    @property
    def access(self) -> Access:
        """The rules."""
        access = self.gateway.access
        assert access is not None
        return access

    async def open(self) -> None:
        await super().open()
        self.session = self.admin
        topic = await create_topic(self, TOPIC)
        self.names = Names(TOPIC, topic.topic_id)
        await call(self, ApiKey.OFFSET_COMMIT, 9, **_commit(self.names, 9))
        begun = await call(
            self, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=ID, transaction_timeout_ms=60_000
        )
        producer = {
            "v3_and_below_producer_id": begun.producer_id,
            "v3_and_below_producer_epoch": begun.producer_epoch,
        }
        added = _add_partitions(self.names, 3)
        await call(self, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added, **producer)
        owner = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        await call(self, ApiKey.CREATE_DELEGATION_TOKEN, 3, max_lifetime_ms=-1, **owner)
        self.session = self.alice

    async def permit(self, *rights: Right, deny: bool = False) -> None:
        """Add a rule for Alice for each right."""
        await self.access.add([binding_of(right, deny=deny) for right in rights])

    async def stored(self) -> object:
        """Return everything that requests can change."""
        state = self.backend.state
        rows = {kind: await state.load(kind) for kind in await state.kinds()}
        ends = [
            (one.topic.name, one.index, one.log.log_start_offset, one.log.end_offset)
            for one in self.catalog.partitions()
        ]
        return rows, ends


async def permit(guarded: Guarded, *rules: str) -> None:
    """Add rules, as in "ALLOW User:alice READ TOPIC orders"."""
    await guarded.access.add([*map(rule, rules)])


def binding_of(right: Right, *, deny: bool = False) -> AclBinding:
    """Return the rule that gives Alice a right of the table, or takes it."""
    resource_type = ResourceType[right.resource_type]
    name = {
        ResourceType.CLUSTER: CLUSTER_NAME,
        ResourceType.GROUP: GROUP,
        ResourceType.TRANSACTIONAL_ID: ID,
        ResourceType.USER: "User:bob",
        # The id of the token is random.
        ResourceType.DELEGATION_TOKEN: "*",
        # Topics that exist, and others.
        ResourceType.TOPIC: "*",
    }[resource_type]
    return AclBinding(
        resource_type,
        name,
        PatternType.LITERAL,
        str(ALICE),
        "*",
        AclOperation[right.operation],
        PermissionType.DENY if deny else PermissionType.ALLOW,
    )


# --- answers -------------------------------------------------------------------------------------


def code_of(struct: Struct, version: int) -> int | None:
    """Return the error code of a structure; None if it has none in this version."""
    field = code_field_of(type(struct), version)
    return None if field is None else getattr(struct, field)


def entries(struct: Struct) -> Iterator[Struct]:
    """Yield the structures in the arrays of a structure."""
    for name, field in type(struct).field_table.items():
        if isinstance(field.item, type):
            value = getattr(struct, name)
            yield from value if isinstance(value, list) else ()


def codes_inside(struct: Struct, version: int) -> list[int]:
    """Return the error codes of the innermost structures of a response that have one."""
    found = []
    for one in entries(struct):
        code = code_of(one, version)
        found += codes_inside(one, version) or ([] if code is None else [code])
    return found


def codes_of_entries(response: Struct, version: int) -> list[int]:
    """Return the error codes of the entries of a response, without what is in the entries."""
    found = [code_of(one, version) for one in entries(response)]
    return [code for code in found if code is not None]


def codes_at(place: Place, response: Struct, version: int) -> list[int]:
    """Return the error codes that a response has at a place of the table."""
    own = code_of(response, version)
    match place:
        case Place.RESPONSE:
            return [] if own is None else [own]
        case Place.EVERY_ENTRY | Place.PARTITION:
            return codes_inside(response, version)
        case Place.RESPONSE_AND_ENTRIES:
            return [] if own is None else [own, *codes_inside(response, version)]
        case Place.TOPIC_CONFIGS:
            return [one.topic_config_error_code for one in entries(response)]  # type: ignore[attr-defined]
        case Place.OMITTED:
            raise AssertionError(f"nothing stands at {place}")
    return codes_of_entries(response, version)
