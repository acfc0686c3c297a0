"""A client that names many topics or groups does not stop the others, though it may see none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kgw.protocol.api_keys import ApiKey
from tests.handlers.access_requests import GROUP, ID, Guarded, permit
from tests.handlers.support import LoopTurns, call

if TYPE_CHECKING:
    from kgw.security.access import Access

MOST_IN_A_TURN = 1_000
"""Questions that a request may ask in one turn of the loop: 10 ms if all are denied."""
NAMES = [f"name-{number}" for number in range(2_500)]
NAMED = [{"name": name} for name in NAMES]
PARTITIONS = [{"name": name, "partitions": [{"partition_index": 0}]} for name in NAMES]
INDEXES = [{"name": name, "partition_indexes": [0]} for name in NAMES]
PLAIN = [{"name": name, "partitions": [0]} for name in NAMES]


class CountedAccess:
    """The access rules; counts the questions of each turn of the loop."""

    def __init__(self, access: Access, turns: LoopTurns) -> None:
        self._access = access
        self._turns = turns
        self.by_turn: Counter[int] = Counter()

    def permits(self, *asked: Any, **how: Any) -> bool:
        self.by_turn[self._turns.count] += 1
        return self._access.permits(*asked, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._access, name)


async def questions(guarded: Guarded, api: ApiKey, version: int, **fields: Any) -> Counter[int]:
    """Send a request, and return the number of questions in each turn of the loop."""
    access = guarded.access
    async with LoopTurns() as turns:
        counted: Any = CountedAccess(access, turns)
        guarded.gateway.access = counted
        await call(guarded, api, version, **fields)
        guarded.gateway.access = access
    assert {} == guarded.internal_errors
    by_turn: Counter[int] = counted.by_turn
    return by_turn


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        (ApiKey.METADATA, 12, {"topics": NAMED, "allow_auto_topic_creation": False}),
        (ApiKey.METADATA, 12, {"topics": NAMED, "allow_auto_topic_creation": True}),
        (
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            {"topics": NAMED, "response_partition_limit": 9},
        ),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"subscribed_topic_names": NAMES}),
        (ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": NAMES}),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES}),
        (ApiKey.DELETE_GROUPS, 2, {"groups_names": NAMES}),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": NAMES}),
        (ApiKey.CREATE_TOPICS, 7, {"topics": NAMED}),
        (ApiKey.DELETE_TOPICS, 6, {"topics": NAMED}),
        (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": INDEXES}),
        (ApiKey.LIST_OFFSETS, 6, {"topics": PARTITIONS}),
        (ApiKey.DELETE_RECORDS, 2, {"topics": PARTITIONS}),
        (ApiKey.OFFSET_COMMIT, 9, {"group_id": GROUP, "topics": PARTITIONS}),
        (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": GROUP, "topics": INDEXES}]}),
        (ApiKey.OFFSET_DELETE, 0, {"group_id": GROUP, "topics": PARTITIONS}),
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {"v3_and_below_transactional_id": ID, "v3_and_below_topics": PLAIN},
        ),
        (
            ApiKey.PRODUCE,
            9,
            {
                "acks": 1,
                "topic_data": [
                    {"name": name, "partition_data": [{"records": b""}]} for name in NAMES
                ],
            },
        ),
        (
            ApiKey.FETCH,
            11,
            {
                "max_bytes": 9,
                "topics": [{"topic": name, "partitions": [{"partition": 0}]} for name in NAMES],
            },
        ),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [{"resource_type": 2, "resource_name": name} for name in NAMES]},
        ),
        (
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {"resources": [{"resource_type": 2, "resource_name": name} for name in NAMES]},
        ),
    ],
    ids=lambda one: one.name if isinstance(one, ApiKey) else "",
)
async def test_names_are_asked_for_in_several_turns(
    api: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    """Of an API that names topics, groups or ids: each is asked for, and few in each turn."""
    async with Guarded() as guarded:
        await permit(
            guarded,
            f"ALLOW User:alice WRITE TRANSACTIONAL_ID {ID}",
            f"ALLOW User:alice ALL GROUP {GROUP}",
        )
        if api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            # The first name without the right would refuse the whole request.
            fields = {"group_id": GROUP, **fields}
            await permit(guarded, "ALLOW User:alice DESCRIBE TOPIC *")
        by_turn = await questions(guarded, api, version, **fields)
        assert by_turn.total() >= len(NAMES)
        assert max(by_turn.values()) <= MOST_IN_A_TURN


async def test_missing_topics_are_not_created_in_several_turns() -> None:
    """A client that may see names, and not create topics, is refused each of them."""
    async with Guarded() as guarded:
        await permit(guarded, "ALLOW User:alice DESCRIBE TOPIC *")
        by_turn = await questions(guarded, ApiKey.METADATA, 12, topics=NAMED)
        assert by_turn.total() >= 3 * len(NAMES)
        assert max(by_turn.values()) <= MOST_IN_A_TURN
        assert NAMES[0] not in guarded.catalog.topics


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        (ApiKey.METADATA, 12, {"topics": None}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 9}),
    ],
    ids=lambda one: one.name if isinstance(one, ApiKey) else "",
)
@pytest.mark.slow
async def test_a_list_leaves_topics_out_in_several_turns(
    api: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    """Of all topics a client may see none: each is asked for, and few in each turn."""
    async with Guarded() as guarded:
        guarded.session = guarded.admin
        await call(
            guarded,
            ApiKey.CREATE_TOPICS,
            7,
            topics=[
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in NAMES[:1_500]
            ],
            timeout_ms=60_000,
        )
        guarded.session = guarded.alice
        by_turn = await questions(guarded, api, version, **fields)
        assert by_turn.total() >= 1_500
        assert max(by_turn.values()) <= MOST_IN_A_TURN
