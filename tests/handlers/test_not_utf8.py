"""Strings of clients that are not UTF-8: free text is kept as far as it goes, names are refused."""

from __future__ import annotations

from typing import Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import request_frame
from kgw.testing.gateway import InProcessGateway, PendingResponse
from tests.handlers.support import create_topic, request_of

MARK = "LATIN"
BROKEN = b"caf\xe9!"
REPLACED = "caf\ufffd!"


async def ask(
    gateway: InProcessGateway,
    api: ApiKey,
    version: int,
    client_id: str = "t",
    broken: bytes = BROKEN,
    **fields: Any,
) -> Any:
    """Send a request in which `MARK` stands for a text in Latin-1, and return the response."""
    request = request_of(api, **fields)
    frame = b"".join(request_frame(request, version, 1, client_id))
    changed = bytearray(frame.replace(MARK.encode(), broken))
    assert changed != frame
    answer = gateway.dispatcher.start(memoryview(changed)[4:], gateway.session)
    return await PendingResponse(answer, gateway.dispatcher, api, version).response()


def joining(group_id: str, **fields: Any) -> dict[str, Any]:
    """Return a JoinGroup of one new member."""
    return {
        "group_id": group_id,
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 6_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        **fields,
    }


async def test_client_id_and_software(gateway: InProcessGateway) -> None:
    """A host's name in Latin-1 is a client id; software is refused by Kafka's rule for its name."""
    response = await ask(gateway, ApiKey.API_VERSIONS, 0, MARK)
    assert ErrorCode.NONE == response.error_code
    assert REPLACED == gateway.session.client_id
    fields: dict[str, Any] = {"client_software_name": MARK, "client_software_version": MARK}
    response = await ask(gateway, ApiKey.API_VERSIONS, 3, **fields)
    assert ErrorCode.INVALID_REQUEST == response.error_code


async def test_free_text(gateway: InProcessGateway) -> None:
    """Reasons, racks, protocol names and what is committed beside an offset are taken."""
    await create_topic(gateway)
    joined = await ask(gateway, ApiKey.JOIN_GROUP, 3, MARK, **joining("group"))
    assert ErrorCode.NONE == joined.error_code
    assert joined.member_id.startswith(REPLACED)
    protocols = [{"name": MARK, "metadata": b""}]
    joined = await ask(gateway, ApiKey.JOIN_GROUP, 3, **joining("other", protocols=protocols))
    assert REPLACED == joined.protocol_name
    leaving: dict[str, Any] = {
        "group_id": "g",
        "members": [{"member_id": "nobody", "reason": MARK}],
    }
    left = await ask(gateway, ApiKey.LEAVE_GROUP, 5, **leaving)
    assert ErrorCode.UNKNOWN_MEMBER_ID == left.members[0].error_code
    fetched = await ask(gateway, ApiKey.FETCH, 12, rack_id=MARK)
    assert ErrorCode.NONE == fetched.error_code


@pytest.mark.parametrize("count", [1, 20])
async def test_what_is_committed(gateway: InProcessGateway, count: int) -> None:
    """The text beside an offset is kept with replacements, in a block or not."""
    await create_topic(gateway, partitions=count)
    partitions = [
        {"partition_index": index, "committed_offset": 1, "committed_metadata": MARK}
        for index in range(count)
    ]
    topics = [{"name": "orders", "partitions": partitions}]
    response = await ask(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    codes = [one.error_code for one in response.topics[0].partitions]
    assert [ErrorCode.NONE] * count == codes
    table = gateway.groups.offsets("group")
    assert table is not None
    topic_id = gateway.catalog.topics["orders"].topic_id
    assert [REPLACED] * count == [
        entry.metadata for entry in table.topic(topic_id).entries().values()
    ]


async def test_a_long_text_beside_many_offsets() -> None:
    """A byte that is not UTF-8 becomes three: the text may be too long for a block's row."""
    async with InProcessGateway(Config.of(offset_metadata_max_bytes=100_000)) as gateway:
        topic = await create_topic(gateway, partitions=16)
        partitions = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": MARK * 6_400}
            for index in range(16)
        ]
        topics: Any = [{"name": "orders", "partitions": partitions}]
        response = await ask(
            gateway,
            ApiKey.OFFSET_COMMIT,
            8,
            broken=b"\xe9" * len(MARK),
            group_id="group",
            topics=topics,
        )
        assert {ErrorCode.NONE} == {one.error_code for one in response.topics[0].partitions}
        table = gateway.groups.offsets("group")
        assert table is not None
        committed = table.topic(topic.topic_id).entries().values()
        assert {"\ufffd" * 32_000} == {one.metadata for one in committed}


async def test_names_of_groups(gateway: InProcessGateway) -> None:
    """Two of them could become one: INVALID_GROUP_ID, and no group comes into being."""
    await create_topic(gateway)
    joined = await ask(gateway, ApiKey.JOIN_GROUP, 3, **joining(MARK))
    assert ErrorCode.INVALID_GROUP_ID == joined.error_code
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    committed = await ask(gateway, ApiKey.OFFSET_COMMIT, 8, group_id=MARK, topics=topics)
    assert ErrorCode.INVALID_GROUP_ID == committed.topics[0].partitions[0].error_code
    deleted = await ask(gateway, ApiKey.DELETE_GROUPS, 1, groups_names=[MARK])
    assert ErrorCode.INVALID_GROUP_ID == deleted.results[0].error_code
    assert [] == list(gateway.groups.listed())


async def test_names_of_topics(gateway: InProcessGateway) -> None:
    """INVALID_TOPIC_EXCEPTION, with the name as it was read."""
    metadata = await ask(gateway, ApiKey.METADATA, 4, topics=[{"name": MARK}])
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == metadata.topics[0].error_code
    assert REPLACED == metadata.topics[0].name
    topics = [{"name": MARK, "num_partitions": 1, "replication_factor": 1}]
    created = await ask(gateway, ApiKey.CREATE_TOPICS, 4, topics=topics)
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == created.topics[0].error_code
    assert {} == dict(gateway.catalog.topics)


async def test_names_of_transactions(gateway: InProcessGateway) -> None:
    """Two producers could fence one another: INVALID_REQUEST."""
    fields: dict[str, Any] = {"transactional_id": MARK, "transaction_timeout_ms": 1_000}
    response = await ask(gateway, ApiKey.INIT_PRODUCER_ID, 1, **fields)
    assert ErrorCode.INVALID_REQUEST == response.error_code
