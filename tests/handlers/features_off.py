"""The requests that are sent to Apache Kafka and to kgw, for features that both have switched off.

`kafka_features_off.json` holds the bytes of each request and of Kafka's answer;
e2e/test_features_off.py has written them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.schema import Struct
from tests.handlers.support import request_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS = Path(__file__).with_name("kafka_features_off.json")
TOPIC = "orders"
PARTITIONS = 2
NODE = 1
MISSING = "missing"

ANY, MATCH, ALLOW, LITERAL, TOPIC_RESOURCE = 1, 2, 3, 3, 2

_ACL = {
    "resource_type": TOPIC_RESOURCE,
    "resource_name": TOPIC,
    "resource_pattern_type": LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": ALLOW,
}
_ACL_FILTER = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
_PARTITIONS = [
    {"topic": TOPIC, "partitions": [0, 7]},
    {"topic": MISSING, "partitions": [0]},
]


def _reassignment(name: str, index: int, replicas: list[int] | None) -> dict[str, Any]:
    partition = {"partition_index": index, "replicas": replicas}
    return {"topics": [{"name": name, "partitions": [partition]}], "timeout_ms": 5000}


def _quota(entity: list[dict[str, Any]], *ops: dict[str, Any]) -> dict[str, Any]:
    return {"entries": [{"entity": entity, "ops": list(ops)}], "validate_only": False}


def _rate(key: str, value: float, *, remove: bool = False) -> dict[str, Any]:
    return {"key": key, "value": value, "remove": remove}


_CREDENTIAL = {
    "name": "alice",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "salted_password": b"secret",
}
_USER = [{"entity_type": "user", "entity_name": "alice"}]

REQUESTS: dict[ApiKey, dict[str, dict[str, Any]]] = {
    ApiKey.SASL_HANDSHAKE: {"plain": {"mechanism": "PLAIN"}, "empty": {"mechanism": ""}},
    ApiKey.SASL_AUTHENTICATE: {
        "plain": {"auth_bytes": b"\0alice\0secret"},
        "empty": {"auth_bytes": b""},
    },
    ApiKey.DESCRIBE_ACLS: {"all": _ACL_FILTER},
    ApiKey.CREATE_ACLS: {"one": {"creations": [_ACL]}, "none": {"creations": []}},
    ApiKey.DELETE_ACLS: {
        "one": {"filters": [_ACL_FILTER]},
        "two": {"filters": [_ACL_FILTER, {**_ACL_FILTER, "principal_filter": "User:bob"}]},
        "none": {"filters": []},
    },
    ApiKey.CREATE_DELEGATION_TOKEN: {
        "own": {"renewers": [], "max_lifetime_ms": -1},
        "other": {
            "owner_principal_type": "User",
            "owner_principal_name": "alice",
            "renewers": [{"principal_type": "User", "principal_name": "bob"}],
            "max_lifetime_ms": 1000,
        },
    },
    ApiKey.RENEW_DELEGATION_TOKEN: {"one": {"hmac": b"secret", "renew_period_ms": 1000}},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"one": {"hmac": b"secret", "expiry_time_period_ms": -1}},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {
        "all": {"owners": None},
        "none": {"owners": []},
        "one": {"owners": [{"principal_type": "User", "principal_name": "alice"}]},
    },
    ApiKey.ELECT_LEADERS: {
        "all": {"election_type": 0, "topic_partitions": None, "timeout_ms": 5000},
        "none": {"election_type": 0, "topic_partitions": [], "timeout_ms": 5000},
        "preferred": {"election_type": 0, "topic_partitions": _PARTITIONS, "timeout_ms": 5000},
        "unclean": {"election_type": 1, "topic_partitions": _PARTITIONS, "timeout_ms": 5000},
        "all unclean": {"election_type": 1, "topic_partitions": None, "timeout_ms": 5000},
        "of no type": {"election_type": 7, "topic_partitions": _PARTITIONS, "timeout_ms": 5000},
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {
        "all": {"topics": None, "timeout_ms": 5000},
        "none": {"topics": [], "timeout_ms": 5000},
        "some": {
            "topics": [
                {"name": TOPIC, "partition_indexes": [0, 7]},
                {"name": MISSING, "partition_indexes": [0]},
            ],
            "timeout_ms": 5000,
        },
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "none": {"topics": [], "timeout_ms": 5000},
        "where it is": _reassignment(TOPIC, 0, [NODE]),
        "cancelled": _reassignment(TOPIC, 0, None),
        "nowhere": _reassignment(TOPIC, 0, []),
        "to another node": _reassignment(TOPIC, 0, [7]),
        "to both": _reassignment(TOPIC, 0, [NODE, 7]),
        "twice there": _reassignment(TOPIC, 0, [NODE, NODE]),
        "to a negative node": _reassignment(TOPIC, 0, [-1]),
        "of no partition": _reassignment(TOPIC, 7, [NODE]),
        "cancelled of no partition": _reassignment(TOPIC, 7, None),
        "of no topic": _reassignment(MISSING, 0, [NODE]),
        "of no name": _reassignment("", 0, [NODE]),
        "cancelled of no topic": _reassignment(MISSING, 0, None),
    },
    ApiKey.ALTER_REPLICA_LOG_DIRS: {
        "none": {"dirs": []},
        "nowhere": {
            "dirs": [
                {
                    "path": "/nowhere",
                    "topics": [
                        {"name": TOPIC, "partitions": [0, 1]},
                        {"name": MISSING, "partitions": [0]},
                    ],
                }
            ]
        },
        "relative": {"dirs": [{"path": "nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    },
    ApiKey.DESCRIBE_LOG_DIRS: {
        "none": {"topics": []},
        "some": {"topics": _PARTITIONS},
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {
        "all": {"components": [], "strict": False},
        "users": {
            "components": [{"entity_type": "user", "match_type": MATCH, "match": None}],
            "strict": True,
        },
        "one": {
            "components": [{"entity_type": "client-id", "match_type": 0, "match": "a"}],
            "strict": False,
        },
        "of no kind": {
            "components": [{"entity_type": "planet", "match_type": 0, "match": "a"}],
            "strict": False,
        },
        "empty kind": {
            "components": [{"entity_type": "", "match_type": 0, "match": "a"}],
            "strict": False,
        },
        "twice": {
            "components": [
                {"entity_type": "user", "match_type": 0, "match": "a"},
                {"entity_type": "user", "match_type": 0, "match": "b"},
            ],
            "strict": False,
        },
        "of no match": {
            "components": [{"entity_type": "user", "match_type": 9, "match": "a"}],
            "strict": False,
        },
        "exact without a name": {
            "components": [{"entity_type": "user", "match_type": 0, "match": None}],
            "strict": False,
        },
        "any with a name": {
            "components": [{"entity_type": "user", "match_type": 2, "match": "a"}],
            "strict": False,
        },
        "ip and user": {
            "components": [
                {"entity_type": "user", "match_type": 0, "match": "a"},
                {"entity_type": "ip", "match_type": 0, "match": "10.0.0.1"},
            ],
            "strict": False,
        },
    },
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "none": {"entries": [], "validate_only": False},
        "of no kind": _quota(
            [{"entity_type": "planet", "entity_name": "mars"}], _rate("producer_byte_rate", 1)
        ),
        "of nothing": _quota([], _rate("producer_byte_rate", 1)),
        "of no key": _quota(_USER, _rate("colour", 1)),
        "a key of ips": _quota(_USER, _rate("connection_creation_rate", 1)),
        "zero": _quota(_USER, _rate("consumer_byte_rate", 0)),
        "of an empty name": _quota(
            [{"entity_type": "user", "entity_name": ""}], _rate("producer_byte_rate", 1)
        ),
        "a key twice": _quota(
            _USER, _rate("producer_byte_rate", -1), _rate("producer_byte_rate", -1)
        ),
        "removed, of no key": _quota(_USER, _rate("colour", 0, remove=True)),
        "a fraction": _quota(_USER, _rate("producer_byte_rate", 0.5)),
        "negative": _quota(_USER, _rate("producer_byte_rate", -1)),
        "ip and user": _quota(
            [*_USER, {"entity_type": "ip", "entity_name": "10.0.0.1"}],
            _rate("connection_creation_rate", 1),
        ),
        "removed": _quota(_USER, _rate("producer_byte_rate", 0, remove=True)),
        "nothing of a user": _quota(_USER),
    },
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
        "all": {"users": None},
        "none": {"users": []},
        "one": {"users": [{"name": "alice"}]},
        "twice": {"users": [{"name": "alice"}, {"name": "alice"}, {"name": "bob"}]},
        "of no name": {"users": [{"name": ""}]},
    },
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "none": {"deletions": [], "upsertions": []},
        "deleted": {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
        "deleted of no mechanism": {
            "deletions": [{"name": "alice", "mechanism": 9}],
            "upsertions": [],
        },
        "of no mechanism": {
            "deletions": [],
            "upsertions": [{**_CREDENTIAL, "mechanism": 9}],
        },
        "too few iterations": {
            "deletions": [],
            "upsertions": [{**_CREDENTIAL, "iterations": 1}],
        },
        "too many iterations": {
            "deletions": [],
            "upsertions": [{**_CREDENTIAL, "iterations": 16385}],
        },
        "set twice": {"deletions": [], "upsertions": [_CREDENTIAL, _CREDENTIAL]},
        "deleted and set": {
            "deletions": [{"name": "alice", "mechanism": 1}],
            "upsertions": [_CREDENTIAL],
        },
        "of no name": {"deletions": [{"name": "", "mechanism": 1}], "upsertions": []},
        "twice": {
            "deletions": [{"name": "alice", "mechanism": 1}, {"name": "alice", "mechanism": 1}],
            "upsertions": [],
        },
    },
    ApiKey.LIST_CONFIG_RESOURCES: {
        "all": {"resource_types": []},
        "topics": {"resource_types": [2]},
        "brokers": {"resource_types": [4]},
        "loggers": {"resource_types": [8]},
        "client metrics": {"resource_types": [16]},
        "groups": {"resource_types": [32]},
        "two": {"resource_types": [4, 8]},
        "of no kind": {"resource_types": [77]},
    },
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "join": {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
        "of no group": {"group_id": ""},
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {
        "two": {"group_ids": ["g", "h"]},
        "none": {"group_ids": []},
    },
}
"""By API, what is asked, each in every version that has the fields."""


class Question(NamedTuple):
    """A request's name in the file, and its frame without its length."""

    name: str
    api_key: ApiKey
    version: int
    frame: bytes


class KafkasAnswers(NamedTuple):
    """What Apache Kafka has answered."""

    release: str
    offered: dict[int, tuple[int, int]]
    """The first and last version of each API that ApiVersions lists."""
    answers: dict[str, tuple[bytes, bytes]]
    """The frames of each request and its answer, by the request's name."""


def _present(struct_type: type[Struct], version: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given fields that a version has, at every depth."""
    found = {}
    for name, value in given.items():
        field = struct_type.field_table[name]
        if not field.present(version):
            continue
        item = field.item
        nested = isinstance(value, list) and isinstance(item, type)
        found[name] = [_present(item, version, one) for one in value] if nested else value
    return found


def questions() -> Iterator[Question]:
    """Yield every request in every version of its API."""
    for api_key, requests in REQUESTS.items():
        request_type = request_class(api_key)
        first, last = request_type.valid_versions
        for version in range(first, last + 1):
            for name, fields in requests.items():
                request = request_of(api_key, **_present(request_type, version, fields))
                frame = b"".join(request_frame(request, version, 1, "kgw-test"))[4:]
                yield Question(f"{api_key.name} v{version} {name}", api_key, version, frame)


def comparable(frame: bytes, api_key: ApiKey, version: int) -> Any:
    """Return what two servers must answer alike.

    That is all but the words of an error, the order of lists, and what is known of the disk.
    """
    _, response = decode_response(frame, api_key, version)
    return _comparable(response)


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_comparable(one) for one in value), key=repr)
    if not isinstance(value, Struct):
        return value
    fields = {name: _comparable(getattr(value, name)) for name in type(value).field_table}
    if fields.get("error_code"):
        fields.pop("error_message", None)
    for name in ("log_dir", "total_bytes", "usable_bytes"):
        if name in fields:
            fields[name] = type(fields[name]).__name__
    return fields


def stored_answers() -> KafkasAnswers:
    """Return what is in the file."""
    stored = json.loads(ANSWERS.read_text())
    return KafkasAnswers(
        stored["kafka"],
        {int(key): tuple(versions) for key, versions in stored["offered"].items()},
        {
            name: (bytes.fromhex(request), bytes.fromhex(answer))
            for name, (request, answer) in stored["answers"].items()
        },
    )


def store_answers(found: KafkasAnswers) -> None:
    """Write the file."""
    stored = {
        "kafka": found.release,
        "offered": {str(key): list(versions) for key, versions in sorted(found.offered.items())},
        "answers": {
            name: [request.hex(), answer.hex()] for name, (request, answer) in found.answers.items()
        },
    }
    ANSWERS.write_text(json.dumps(stored, indent=1) + "\n")
