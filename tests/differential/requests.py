"""Requests to ask two servers alike: for each API one that is right, and what can be wrong with it.

Every request is made from the message's definition: each field in turn takes each of its values
(`values`), each array is empty, null, or has its first element twice; then some fields together, as
a seed chooses. The names in a request begin with its `tag`: what came before does not count.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class
from tests.differential import values
from tests.differential.values import FIRST_MS, Known
from tests.handlers.support import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.protocol.schema import Struct

SEED = 35
COMBINATIONS = 6
"""Requests of each API and version in which several fields are changed."""
MANY = 10
"""A version with more than this many values left to try skips those that its neighbour has."""

Path = tuple[str | int, ...]


class Plan(NamedTuple):
    """How an API is asked: what must be there, and a request that is right."""

    fields: Callable[[str], dict[str, Any]]
    """For a tag, the fields of every version."""
    needs: frozenset[str] = frozenset()
    """Of `topic`, `commit`, `nameless`, `member`, `transaction`, `open`: see `servers.prepare`."""
    is_fresh: bool = False
    """Whether each request needs a tag of its own: it changes what the next one would find."""
    is_fresh_twice: bool = False
    """Whether that is so of requests that name something twice."""
    besides: tuple[dict[Path, Any], ...] = ()
    """Further requests, each by what it changes."""
    is_last: bool = False
    """Whether its names come behind those of all others, in the order of a list of all topics."""


class Case(NamedTuple):
    """One request."""

    tag: str
    api: ApiKey
    version: int
    change: str
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.api.name} v{self.version}: {self.change}"


def cases(api: ApiKey, versions: range) -> Iterator[Case]:
    """Yield the requests of an API, in the order in which they are to be sent."""
    plan = PLANS[api]
    for version in versions:
        random = Random(f"{SEED} {api} {version}")
        tag = f"{'z' * plan.is_last}d{int(api)}-{version}"
        changes = list(_changes(request_class(api), plan, version, random))
        for number, (change, apply) in enumerate(changes):
            is_fresh = plan.is_fresh or (plan.is_fresh_twice and "twice" in change)
            mine = f"{tag}-{number}" if is_fresh else tag
            fields = _pruned(request_class(api), plan.fields(mine), version)
            apply(mine, fields)
            yield Case(mine, api, version, change, fields)


def _changes(
    struct: type[Struct], plan: Plan, version: int, random: Random
) -> Iterator[tuple[str, Callable[[str, dict[str, Any]], None]]]:
    yield "as it should be", lambda _, __: None
    places = list(_places(struct, _pruned(struct, plan.fields("x"), version), version, ()))
    for path, choices in places:
        for value in choices:
            yield _name(path, value), _setter([(path, value)])
    for _ in range(COMBINATIONS if len(places) > 1 else 0):
        chosen = random.sample(places, min(len(places), random.randint(2, 3)))
        # The innermost first: an array that is emptied has no elements to change afterwards.
        chosen.sort(key=lambda one: -len(one[0]))
        settings = [(path, random.choice(choices)) for path, choices in chosen if choices]
        yield " and ".join(_name(*one) for one in settings), _setter(settings)
    for changed in plan.besides:
        settings = [*changed.items()]
        yield " and ".join(_name(*one) for one in settings), _setter(settings)


def _places(
    struct: type[Struct], fields: dict[str, Any], version: int, path: Path
) -> Iterator[tuple[Path, tuple[Any, ...]]]:
    """Yield where a request can be changed, and to what."""
    for name, field in struct.field_table.items():
        if not field.present(version) or name not in fields:
            continue
        here = (*path, name)
        null = (None,) if field.nullable(version) else ()
        if field.kind == "struct":
            yield here, null
            if fields[name] is not None:
                yield from _places(field.item, fields[name], version, here)
        elif field.kind == "array":
            twice = ("twice",) if fields[name] else ()
            yield here, (*null, [], *twice)
            if isinstance(field.item, str):
                yield (*here, 0), values.of(name, field._replace(kind=field.item))
            elif fields[name]:
                yield from _places(field.item, fields[name][0], version, (*here, 0))
        else:
            yield here, (*null, *(one for one in values.of(name, field) if one is not None))


def _setter(settings: list[tuple[Path, Any]]) -> Callable[[str, dict[str, Any]], None]:
    def apply(tag: str, fields: dict[str, Any]) -> None:
        for (*outer, last), choice in settings:
            value = choice.replace("nothing", f"{tag}-x") if isinstance(choice, str) else choice
            inner: Any = fields
            for key in outer:
                inner = inner[key]
            if value == "twice":
                inner[last] = [*inner[last], deepcopy(inner[last][0])]
            elif last == 0 and not inner:
                inner.append(value)
            else:
                inner[last] = value

    return apply


def _name(path: Path, value: Any) -> str:
    text = repr(value)
    if len(text) > 40:
        text = f"{text[:30]}... ({len(value)})"
    return f"{'.'.join(str(one) for one in path)} = {text}"


def _pruned(struct: type[Struct], fields: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the fields that a version has."""
    found = {}
    for name, field in struct.field_table.items():
        if not field.present(version) or name not in fields:
            continue
        value = fields[name]
        if isinstance(value, dict):
            value = _pruned(field.item, value, version)
        elif isinstance(value, list) and not isinstance(field.item, str):
            value = [_pruned(field.item, one, version) for one in value]
        found[name] = value
    return found


# --- requests that are right ---------------------------------------------------------------------


def _topic(tag: str) -> dict[str, Any]:
    return {"name": f"{tag}-a", "topic_id": Known("topic", f"{tag}-a")}


def _produce(tag: str) -> dict[str, Any]:
    records = bytes(batch(b"one", timestamps_ms=[FIRST_MS + 9_000]))
    partition = {"index": 1, "records": records}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 1_000,
        "topic_data": [{**_topic(tag), "partition_data": [partition]}],
    }


def _fetch(tag: str) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    topic = {"topic": f"{tag}-a", "topic_id": Known("topic", f"{tag}-a")}
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _list_offsets(tag: str) -> dict[str, Any]:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": f"{tag}-a", "partitions": [partition]}],
        "timeout_ms": 1_000,
    }


def _metadata(tag: str) -> dict[str, Any]:
    return {
        "topics": [{"topic_id": bytes(16), "name": f"{tag}-a"}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _committed(tag: str) -> list[dict[str, Any]]:
    partition = {
        "partition_index": 0,
        "committed_offset": 2,
        "committed_leader_epoch": -1,
        "committed_metadata": "note",
    }
    return [{**_topic(tag), "partitions": [partition]}]


def _offset_commit(tag: str) -> dict[str, Any]:
    return {
        "group_id": f"{tag}-g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": _committed(tag),
    }


def _offset_fetch(tag: str) -> dict[str, Any]:
    topics = [{**_topic(tag), "partition_indexes": [0, 1]}]
    group = {"group_id": f"{tag}-g", "member_id": None, "member_epoch": -1, "topics": topics}
    return {"group_id": f"{tag}-g", "topics": topics, "groups": [group], "require_stable": False}


def _find_coordinator(tag: str) -> dict[str, Any]:
    return {"key": f"{tag}-g", "key_type": 0, "coordinator_keys": [f"{tag}-g"]}


def _join_group(tag: str) -> dict[str, Any]:
    return {
        "group_id": f"{tag}-j",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 1_000,
        "member_id": "",
        "group_instance_id": "static",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
        "reason": None,
    }


def _member(tag: str) -> dict[str, Any]:
    return {
        "group_id": f"{tag}-m",
        "generation_id": 1,
        "member_id": Known("member", f"{tag}-m"),
        "group_instance_id": None,
    }


def _leave_group(tag: str) -> dict[str, Any]:
    member = {"member_id": Known("member", f"{tag}-m"), "group_instance_id": None, "reason": None}
    return {"group_id": f"{tag}-m", "member_id": member["member_id"], "members": [member]}


def _sync_group(tag: str) -> dict[str, Any]:
    return {
        **_member(tag),
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": Known("member", f"{tag}-m"), "assignment": b"mine"}],
    }


def _create_topics(tag: str) -> dict[str, Any]:
    topic = {
        "name": f"{tag}-c",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }
    return {"topics": [topic], "timeout_ms": 5_000, "validate_only": False}


def _create_assigned(tag: str) -> dict[str, Any]:
    fields = _create_topics(tag)
    fields["topics"][0] |= {"num_partitions": -1, "replication_factor": -1}
    fields["topics"][0]["assignments"] = [{"partition_index": 0, "broker_ids": [1]}]
    return fields


def _delete_topics(tag: str) -> dict[str, Any]:
    named = {"name": f"{tag}-a", "topic_id": bytes(16)}
    return {"topics": [named], "topic_names": [f"{tag}-a"], "timeout_ms": 5_000}


def _delete_records(tag: str) -> dict[str, Any]:
    partition = {"partition_index": 0, "offset": 2}
    topic = {"name": f"{tag}-a", "partitions": [partition]}
    return {"topics": [topic], "timeout_ms": 1_000}


def _init_producer_id(tag: str) -> dict[str, Any]:
    return {
        "transactional_id": f"{tag}-i",
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def _offset_for_leader_epoch(tag: str) -> dict[str, Any]:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": f"{tag}-a", "partitions": [partition]}]}


def _producer(tag: str) -> dict[str, Any]:
    name = f"{tag}-t"
    return {
        "transactional_id": name,
        "producer_id": Known("producer", name),
        "producer_epoch": Known("epoch", name),
    }


def _add_partitions(tag: str) -> dict[str, Any]:
    topics = [{"name": f"{tag}-a", "partitions": [0]}]
    producer = _producer(tag)
    return {
        "transactions": [{**producer, "verify_only": False, "topics": topics}],
        **{f"v3_and_below_{name}": value for name, value in producer.items()},
        "v3_and_below_topics": topics,
    }


def _add_offsets(tag: str) -> dict[str, Any]:
    return {**_producer(tag), "group_id": f"{tag}-g"}


def _end_txn(tag: str) -> dict[str, Any]:
    return {**_producer(tag), "committed": True}


def _write_txn_markers(tag: str) -> dict[str, Any]:
    marker = {
        "producer_id": 5_000,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": f"{tag}-a", "partition_indexes": [1]}],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    return {"markers": [marker]}


def _txn_offset_commit(tag: str) -> dict[str, Any]:
    return {
        **_producer(tag),
        "group_id": f"{tag}-g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": _committed(tag),
    }


def _describe_configs(tag: str) -> dict[str, Any]:
    resource = {
        "resource_type": 2,
        "resource_name": f"{tag}-a",
        "configuration_keys": ["retention.ms"],
    }
    return {"resources": [resource], "include_synonyms": True, "include_documentation": False}


def _alter_configs(tag: str) -> dict[str, Any]:
    config = {"name": "retention.ms", "config_operation": 0, "value": "3600000"}
    resource = {"resource_type": 2, "resource_name": f"{tag}-a", "configs": [config]}
    return {"resources": [resource], "validate_only": False}


def _create_partitions(tag: str) -> dict[str, Any]:
    topic = {"name": f"{tag}-a", "count": 3, "assignments": [{"broker_ids": [1]}]}
    return {"topics": [topic], "timeout_ms": 5_000, "validate_only": False}


def _offset_delete(tag: str) -> dict[str, Any]:
    topic = {"name": f"{tag}-a", "partitions": [{"partition_index": 0}]}
    return {"group_id": f"{tag}-g", "topics": [topic]}


def _named(tag: str) -> dict[str, Any]:
    return {"topics": [{"name": f"{tag}-a", "partition_indexes": [0, 1]}]}


def _describe_topic_partitions(tag: str) -> dict[str, Any]:
    cursor = {"topic_name": f"{tag}-a", "partition_index": 1}
    return {"topics": [{"name": f"{tag}-a"}], "response_partition_limit": 10, "cursor": cursor}


_RESOURCE = ("resources", 0)
_OF_CONFIGS: tuple[dict[Path, Any], ...] = (
    {(*_RESOURCE, "configs", 0, "name"): "", (*_RESOURCE, "resource_name"): "nothing"},
    {(*_RESOURCE, "resource_type"): 32, (*_RESOURCE, "configs"): []},
    {(*_RESOURCE, "resource_type"): 32, (*_RESOURCE, "resource_name"): ""},
)
_PLACE = ("topics", 0, "partitions", 0)
_UNKNOWN: dict[Path, Any] = {
    ("topics", 0, "name"): "nothing",
    ("topics", 0, "topic_id"): bytes(range(16)),
}
_UNKNOWN_TOPICS: tuple[dict[Path, Any], ...] = (
    {**_UNKNOWN, ("topics", 0, "partitions"): []},
    {**_UNKNOWN, ("topics",): "twice"},
    {**_UNKNOWN, ("topics", 0, "partitions"): [], ("topics",): "twice"},
)
_BATCH = ("topic_data", 0, "partition_data", 0)
_TOPIC = frozenset({"topic"})
_COMMIT = frozenset({"topic", "commit"})
_MEMBER = frozenset({"member"})
_NAMELESS = frozenset({"topic", "nameless"})
_OPEN = frozenset({"topic", "commit", "transaction", "open"})

PLANS: dict[ApiKey, Plan] = {
    ApiKey.PRODUCE: Plan(
        _produce,
        _TOPIC,
        is_fresh_twice=True,
        besides=(
            *({(*_BATCH, "records"): records, ("acks",): 0} for records in values.records()),
            {(*_BATCH, "index"): 2, ("acks",): 0},
            {("topic_data",): [], ("acks",): 0},
            {_BATCH[:-1]: "twice", (*_BATCH, "records"): b"rubbish"},
            {_BATCH[:-1]: "twice", ("acks",): 0},
        ),
    ),
    ApiKey.FETCH: Plan(
        _fetch,
        _TOPIC,
        besides=(
            {_PLACE[:-1]: "twice", (*_PLACE, "fetch_offset"): 2},
            {_PLACE[:-1]: "twice", (*_PLACE, "partition"): 1},
            {("topics",): "twice", (*_PLACE, "partition"): 1},
            {("topics",): "twice", (*_PLACE, "partition"): 1, ("session_epoch",): 0},
            {_PLACE[:-1]: "twice", (*_PLACE, "fetch_offset"): 2, ("session_epoch",): 0},
        ),
    ),
    ApiKey.LIST_OFFSETS: Plan(_list_offsets, _TOPIC),
    ApiKey.METADATA: Plan(_metadata, _TOPIC),
    ApiKey.OFFSET_COMMIT: Plan(_offset_commit, _COMMIT, besides=_UNKNOWN_TOPICS),
    ApiKey.OFFSET_FETCH: Plan(_offset_fetch, _COMMIT),
    ApiKey.FIND_COORDINATOR: Plan(_find_coordinator),
    ApiKey.JOIN_GROUP: Plan(_join_group, is_fresh=True),
    ApiKey.HEARTBEAT: Plan(_member, _MEMBER),
    ApiKey.LEAVE_GROUP: Plan(_leave_group, _MEMBER, is_fresh=True),
    ApiKey.SYNC_GROUP: Plan(_sync_group, _MEMBER),
    ApiKey.DESCRIBE_GROUPS: Plan(
        lambda tag: {"groups": [f"{tag}-m"], "include_authorized_operations": False},
        _MEMBER | _NAMELESS,
    ),
    ApiKey.LIST_GROUPS: Plan(
        lambda _: {"states_filter": ["Stable"], "types_filter": ["classic"]}, _MEMBER
    ),
    ApiKey.API_VERSIONS: Plan(
        lambda _: {
            "client_software_name": "differential",
            "client_software_version": "1",
            "cluster_id": Known("cluster", ""),
            "node_id": 1,
        }
    ),
    ApiKey.CREATE_TOPICS: Plan(_create_topics, is_fresh=True),
    ApiKey.DELETE_TOPICS: Plan(_delete_topics, _TOPIC, is_fresh=True),
    ApiKey.DELETE_RECORDS: Plan(
        _delete_records,
        _TOPIC,
        is_fresh=True,
        besides=tuple(
            {_PLACE[:-1]: "twice", (*_PLACE, "offset"): offset} for offset in (1, 3, 4, -1)
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: Plan(_init_producer_id, is_fresh=True),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Plan(_offset_for_leader_epoch, _TOPIC),
    ApiKey.ADD_PARTITIONS_TO_TXN: Plan(
        _add_partitions, frozenset({"topic", "transaction"}), is_fresh=True
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Plan(_add_offsets, frozenset({"transaction"}), is_fresh=True),
    ApiKey.END_TXN: Plan(_end_txn, _OPEN, is_fresh=True),
    ApiKey.WRITE_TXN_MARKERS: Plan(_write_txn_markers, _TOPIC),
    ApiKey.TXN_OFFSET_COMMIT: Plan(
        _txn_offset_commit, _OPEN, is_fresh=True, besides=_UNKNOWN_TOPICS
    ),
    ApiKey.DESCRIBE_CONFIGS: Plan(
        _describe_configs,
        _TOPIC,
        besides=({(*_RESOURCE, "resource_type"): 16, (*_RESOURCE, "resource_name"): ""},),
    ),
    ApiKey.ALTER_CONFIGS: Plan(_alter_configs, _TOPIC, besides=_OF_CONFIGS),
    ApiKey.CREATE_PARTITIONS: Plan(_create_partitions, _TOPIC, is_fresh=True),
    ApiKey.DELETE_GROUPS: Plan(
        lambda tag: {"groups_names": [f"{tag}-g"]}, _COMMIT | _NAMELESS, is_fresh=True
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Plan(_alter_configs, _TOPIC, besides=_OF_CONFIGS),
    ApiKey.OFFSET_DELETE: Plan(_offset_delete, _COMMIT, is_fresh=True),
    ApiKey.DESCRIBE_CLUSTER: Plan(
        lambda _: {
            "include_cluster_authorized_operations": False,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        }
    ),
    ApiKey.DESCRIBE_PRODUCERS: Plan(_named, _TOPIC),
    ApiKey.DESCRIBE_TRANSACTIONS: Plan(lambda tag: {"transactional_ids": [f"{tag}-t"]}, _OPEN),
    ApiKey.LIST_TRANSACTIONS: Plan(
        lambda tag: {
            "state_filters": ["Ongoing"],
            "producer_id_filters": [Known("producer", f"{tag}-t")],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        },
        _OPEN,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Plan(
        _describe_topic_partitions,
        _TOPIC,
        # All topics: the first ten partitions are those of __consumer_offsets, everywhere.
        besides=({("topics",): [], ("cursor",): None},),
        is_last=True,
    ),
}
"""Every API that is served, by its key."""
