"""Campaign A6: requests are refused where the oracle says that the client lacks the right."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.handlers.context import Session
from kgw.protocol.api_keys import ApiKey
from kgw.security.principal import parse_principal
from kgw.testing.gateway import InProcessGateway
from tests.handlers.access_requests import codes_at
from tests.handlers.support import request_of
from tests.security.oracle.api_table import ERROR_CODES, Error, Place
from tests.security.oracle.bindings import binding_of, cases_for_kgw, rules_of
from tests.security.oracle.cases import Form
from tests.security.oracle.oracle import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.security.oracle.cases import Case

LEAST = 500
DENIALS = {code for error, code in ERROR_CODES.items() if error != Error.NONE}

Asking = tuple[ApiKey, int, Place, "Callable[[str], dict[str, Any]]"]


def _topics(**partition: int) -> Callable[[str], dict[str, Any]]:
    return lambda name: {"topics": [{"name": name, "partitions": [partition]}]}


def _configs(resource_type: int) -> Callable[[str], dict[str, Any]]:
    return lambda name: {"resources": [{"resource_type": resource_type, "resource_name": name}]}


def _produce(name: str) -> dict[str, Any]:
    return {"acks": 1, "topic_data": [{"name": name, "partition_data": [{"records": b""}]}]}


def _fetch(name: str) -> dict[str, Any]:
    return {"max_bytes": 9, "topics": [{"topic": name, "partitions": [{"partition": 0}]}]}


ASKING: dict[tuple[ResourceType, Operation], list[Asking]] = {
    (ResourceType.TOPIC, Operation.DESCRIBE): [
        (
            ApiKey.METADATA,
            8,
            Place.TOPIC,
            lambda name: {"topics": [{"name": name}], "allow_auto_topic_creation": False},
        ),
        (ApiKey.LIST_OFFSETS, 6, Place.PARTITION, _topics(partition_index=0)),
    ],
    (ResourceType.TOPIC, Operation.READ): [(ApiKey.FETCH, 11, Place.PARTITION, _fetch)],
    (ResourceType.TOPIC, Operation.WRITE): [(ApiKey.PRODUCE, 9, Place.PARTITION, _produce)],
    (ResourceType.TOPIC, Operation.DELETE): [
        (ApiKey.DELETE_RECORDS, 2, Place.PARTITION, _topics(partition_index=0))
    ],
    (ResourceType.TOPIC, Operation.ALTER): [
        (
            ApiKey.CREATE_PARTITIONS,
            3,
            Place.TOPIC,
            lambda name: {"topics": [{"name": name, "count": 2, "assignments": None}]},
        )
    ],
    (ResourceType.TOPIC, Operation.CREATE): [
        (
            ApiKey.CREATE_TOPICS,
            7,
            Place.TOPIC,
            lambda name: {"topics": [{"name": name}], "validate_only": True},
        )
    ],
    (ResourceType.TOPIC, Operation.DESCRIBE_CONFIGS): [
        (ApiKey.DESCRIBE_CONFIGS, 4, Place.RESOURCE, _configs(2))
    ],
    (ResourceType.TOPIC, Operation.ALTER_CONFIGS): [
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, Place.RESOURCE, _configs(2))
    ],
    (ResourceType.GROUP, Operation.DESCRIBE): [
        (ApiKey.DESCRIBE_GROUPS, 5, Place.GROUP, lambda name: {"groups": [name]}),
        (ApiKey.FIND_COORDINATOR, 4, Place.KEY, lambda name: {"coordinator_keys": [name]}),
    ],
    (ResourceType.GROUP, Operation.READ): [
        (ApiKey.HEARTBEAT, 4, Place.RESPONSE, lambda name: {"group_id": name})
    ],
    (ResourceType.GROUP, Operation.DELETE): [
        (ApiKey.DELETE_GROUPS, 2, Place.GROUP, lambda name: {"groups_names": [name]})
    ],
    (ResourceType.TRANSACTIONAL_ID, Operation.WRITE): [
        (ApiKey.END_TXN, 3, Place.RESPONSE, lambda name: {"transactional_id": name})
    ],
    (ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE): [
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            Place.TRANSACTIONAL_ID,
            lambda name: {"transactional_ids": [name]},
        )
    ],
    (ResourceType.CLUSTER, Operation.DESCRIBE): [
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, Place.RESPONSE, lambda _: {"topics": None})
    ],
    (ResourceType.CLUSTER, Operation.ALTER): [
        (ApiKey.ELECT_LEADERS, 2, Place.RESPONSE, lambda _: {"topic_partitions": None})
    ],
    (ResourceType.CLUSTER, Operation.DESCRIBE_CONFIGS): [
        (ApiKey.LIST_CONFIG_RESOURCES, 1, Place.RESPONSE, lambda _: {})
    ],
    (ResourceType.CLUSTER, Operation.CLUSTER_ACTION): [
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            4,
            Place.RESPONSE,
            lambda _: {"transactions": [{"transactional_id": "t"}]},
        )
    ],
}


def is_allowed(case: Case) -> bool:
    """Return whether the oracle allows what a request asks for."""
    rules = rules_of(case)
    asked = (case.principal, case.host, case.operation)
    if case.operation == Operation.CREATE and rules.allowed(
        *asked, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return True
    return rules.allowed(*asked, case.resource_type, case.resource_name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
async def test_requests_are_refused_as_the_oracle_says(seed: int) -> None:
    """Rules are added and removed while the gateway runs; clients have principals and hosts."""
    seen: Counter[tuple[ApiKey, bool]] = Counter()
    rules, gateway = None, InProcessGateway()
    different = []
    for case in cases_for_kgw(seed, rule_sets=200, questions=20):
        if case.form != Form.ALLOWED:
            continue
        if case.rule_set is not rules:
            rules = case.rule_set
            if gateway.gateway.is_started:
                await gateway.aclose()
            super_users = ";".join(["User:root", *rules.super_users])
            gateway = InProcessGateway(Config.of(super_users=super_users))
            await gateway.open()
            access = gateway.gateway.access
            assert access is not None
            bindings = [binding_of(one) for one in rules.added]
            await access.add(bindings)
            await access.remove([bindings[number] for number in rules.removed])
        session = Session(client_host=case.host, principal=parse_principal(case.principal))
        asking = ASKING.get((case.resource_type, case.operation), ())
        for api, version, place, fields in asking:
            request = request_of(api, **fields(case.resource_name))
            response = await gateway.request(request, version, session=session)
            found = codes_at(place, response, version)
            assert found
            denied = not DENIALS.isdisjoint(found)
            seen[api, denied] += 1
            if denied == is_allowed(case):
                different.append((case, api, found))
        assert {} == gateway.internal_errors
    await gateway.aclose()
    assert [] == different
    assert seen.total() >= LEAST
    apis = {api for asking in ASKING.values() for api, *_ in asking}
    assert {(api, denied) for api in apis for denied in (True, False)} == set(seen)
