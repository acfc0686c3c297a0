"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete of groups with members."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.describe_configs import GROUP_MEMBERS, GROUP_TRACE
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.blobs import ConsumerProtocolSubscription, encode_blob
from tests.groups.driver import GroupDriver, subscription
from tests.handlers.support import call, create_topic

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


@pytest.fixture
def driver(gateway: InProcessGateway) -> GroupDriver:
    """Brings groups of the gateway's coordinator to where a test wants them."""
    driver = GroupDriver()
    driver.groups = gateway.groups
    driver.clock = gateway.manual_clock
    return driver


@pytest.mark.parametrize("version", range(7))
async def test_describe(gateway: InProcessGateway, driver: GroupDriver, version: int) -> None:
    """A stable group with all that is known of its members; what does not exist is Dead."""
    (member,) = await driver.stable(1, instance="one")
    response = await call(
        gateway,
        ApiKey.DESCRIBE_GROUPS,
        version,
        groups=["group", "missing"],
        include_authorized_operations=version >= 3,
    )
    known, unknown = response.groups
    assert (ErrorCode.NONE, "Stable", "consumer", "range") == (
        known.error_code,
        known.group_state,
        known.protocol_type,
        known.protocol_data,
    )
    (told,) = known.members
    assert (member.member_id, "client", "/192.0.2.1") == (
        told.member_id,
        told.client_id,
        told.client_host,
    )
    assert ("one" if version >= 4 else None) == told.group_instance_id
    assert f"part of {member.member_id}".encode() == told.member_assignment
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (code, "Dead", []) == (unknown.error_code, unknown.group_state, unknown.members)
    assert (version >= 3) == (known.authorized_operations > 0)


@pytest.mark.parametrize("version", range(7))
async def test_describe_lists_members_alone(
    gateway: InProcessGateway, driver: GroupDriver, version: int
) -> None:
    """As in Kafka: who was given an id and has yet to join is no member."""
    await driver.join(id_first=True)
    response = await call(gateway, ApiKey.DESCRIBE_GROUPS, version, groups=["group"])
    (known,) = response.groups
    assert (ErrorCode.NONE, "Empty", []) == (known.error_code, known.group_state, known.members)


async def test_members_with_states(gateway: InProcessGateway, driver: GroupDriver) -> None:
    """By the name of the entry alone, and from v4 on; what does not exist is an error."""
    (member,) = await driver.stable(1)
    asked = {"resource_type": 32, "resource_name": "group"}
    for version, keys, code, names in (
        (4, [GROUP_MEMBERS], ErrorCode.NONE, [GROUP_MEMBERS]),
        (4, [GROUP_TRACE, GROUP_MEMBERS], ErrorCode.NONE, [GROUP_TRACE, GROUP_MEMBERS]),
        (4, None, ErrorCode.NONE, []),
        (3, [GROUP_MEMBERS], ErrorCode.UNSUPPORTED_VERSION, []),
    ):
        resources = [asked | {"configuration_keys": keys}]
        answer = await call(gateway, ApiKey.DESCRIBE_CONFIGS, version, resources=resources)
        (result,) = answer.results
        assert (code, names) == (result.error_code, [one.name for one in result.configs])
        if names == [GROUP_MEMBERS]:
            (told,) = json.loads(result.configs[0].value)
            assert (member.member_id, "stable") == (told["member_id"], told["state"])
    missing = {"resource_type": 32, "resource_name": "none", "configuration_keys": [GROUP_MEMBERS]}
    answer = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[missing])
    assert ErrorCode.GROUP_ID_NOT_FOUND == answer.results[0].error_code


@pytest.mark.parametrize("version", range(6))
async def test_list(gateway: InProcessGateway, driver: GroupDriver, version: int) -> None:
    """All groups with type and state; filters take any case."""
    await driver.stable(1)
    driver.group = "forming"
    await driver.join()
    everything = {"group": "Stable", "forming": "CompletingRebalance"}
    for since, filters, names in (
        (0, {}, {"group", "forming"}),
        (4, {"states_filter": ["stable", "Unheard-Of"]}, {"group"}),
        (5, {"types_filter": ["Classic"]}, {"group", "forming"}),
        (5, {"types_filter": ["consumer", "share"]}, set()),
    ):
        if version >= since:
            response = await call(gateway, ApiKey.LIST_GROUPS, version, **filters)
            assert {
                (
                    name,
                    everything[name] if version >= 4 else "",
                    "classic" if version >= 5 else "",
                )
                for name in names
            } == {(one.group_id, one.group_state, one.group_type) for one in response.groups}


@pytest.mark.parametrize("version", range(3))
async def test_delete(gateway: InProcessGateway, driver: GroupDriver, version: int) -> None:
    """Groups without members go; others do not; a group named twice is answered once."""
    await driver.stable(1)
    driver.group = "idle"
    await driver.commit(1)
    names = ["group", "idle", "missing", "idle"]
    response = await call(gateway, ApiKey.DELETE_GROUPS, version, groups_names=names)
    assert [
        ("group", ErrorCode.NON_EMPTY_GROUP),
        ("idle", ErrorCode.NONE),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    ] == [(one.group_id, one.error_code) for one in response.results]
    assert ["group"] == [one.group_id for one in gateway.groups.listed()]


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "codes"),
    [
        ("consumer", subscription("orders"), [0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]),
        # kafka-go says version 1 and leaves out owned partitions: its topics are known.
        (
            "consumer",
            b"\0\1" + encode_blob(ConsumerProtocolSubscription(topics=["orders"]), 0)[2:],
            [0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0],
        ),
        ("connect", b"me", [ErrorCode.NON_EMPTY_GROUP]),
    ],
)
async def test_offsets_of_what_is_read_are_not_deleted(
    gateway: InProcessGateway,
    driver: GroupDriver,
    protocol_type: str,
    metadata: bytes,
    codes: list[int],
) -> None:
    """GROUP_SUBSCRIBED_TO_TOPIC of the topic; workers that are no consumers refuse it all."""
    await driver.stable(1, protocol_type=protocol_type, protocols={"range": metadata})
    topics = []
    for name in ("orders", "payments"):
        await create_topic(gateway, name)
        topics.append({"name": name, "partitions": [{"partition_index": 0}]})
    response = await call(gateway, ApiKey.OFFSET_DELETE, 0, group_id="group", topics=topics)
    found = [one.error_code for topic in response.topics for one in topic.partitions]
    assert codes == [response.error_code, *found]
