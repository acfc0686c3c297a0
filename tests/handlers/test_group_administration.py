"""DescribeGroups, ListGroups and DeleteGroups through the codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.blobs import ConsumerProtocolSubscription, encode_blob
from kgw.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kgw.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kgw.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kgw.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.groups.driver import GroupDriver
from tests.handlers.support import create_topic

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


@pytest.fixture
def driver(gateway: InProcessGateway) -> GroupDriver:
    """Brings groups of the gateway's coordinator to where a test wants them."""
    driver = GroupDriver()
    driver.groups = gateway.gateway.groups
    driver.clock = gateway.manual_clock
    return driver


@pytest.mark.parametrize("version", range(7))
async def test_describe(gateway: InProcessGateway, driver: GroupDriver, version: int) -> None:
    """A stable group with all that is known of its members; what does not exist is Dead."""
    (member,) = await driver.stable(1, instance="one")
    response = await gateway.ask(
        DescribeGroupsRequest(
            groups=["group", "missing"], include_authorized_operations=version >= 3
        ),
        version,
        DescribeGroupsResponse,
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


@pytest.mark.parametrize("version", range(6))
async def test_list(gateway: InProcessGateway, driver: GroupDriver, version: int) -> None:
    """All groups with type and state; filters take any case."""
    await driver.stable(1)
    driver.group = "forming"
    await driver.join()
    response = await gateway.ask(ListGroupsRequest(), version, ListGroupsResponse)
    states = {"group": "Stable", "forming": "CompletingRebalance"}
    assert {name: states[name] if version >= 4 else "" for name in states} == {
        one.group_id: one.group_state for one in response.groups
    }
    assert {"classic" if version >= 5 else ""} == {one.group_type for one in response.groups}
    if version >= 4:
        request = ListGroupsRequest(states_filter=["stable", "Unheard-Of"])
        response = await gateway.ask(request, version, ListGroupsResponse)
        assert ["group"] == [one.group_id for one in response.groups]
    if version >= 5:
        for types, count in ((["Classic"], 2), (["consumer", "share"], 0)):
            request = ListGroupsRequest(types_filter=types)
            response = await gateway.ask(request, version, ListGroupsResponse)
            assert count == len(response.groups)


@pytest.mark.parametrize("version", range(3))
async def test_delete(gateway: InProcessGateway, driver: GroupDriver, version: int) -> None:
    """Groups without members go; others do not; a group named twice is answered twice."""
    await driver.stable(1)
    driver.group = "idle"
    await driver.commit(1)
    request = DeleteGroupsRequest(groups_names=["group", "idle", "missing", "idle"])
    response = await gateway.ask(request, version, DeleteGroupsResponse)
    assert [
        ("group", ErrorCode.NON_EMPTY_GROUP),
        ("idle", ErrorCode.NONE),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
        ("idle", ErrorCode.NONE),
    ] == [(one.group_id, one.error_code) for one in response.results]
    assert ["group"] == [one.group_id for one in gateway.gateway.groups.listed()]


async def test_offsets_of_what_is_read_are_not_deleted(
    gateway: InProcessGateway, driver: GroupDriver
) -> None:
    """GROUP_SUBSCRIBED_TO_TOPIC of the topic; workers that are no consumers refuse it all."""
    await create_topic(gateway, "orders")
    await create_topic(gateway, "payments")
    (member,) = await driver.stable(1)
    request = OffsetDeleteRequest(
        group_id="group",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in ("orders", "payments")
        ],
    )
    response = await gateway.ask(request, 0, OffsetDeleteResponse)
    assert [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE] == [
        one.partitions[0].error_code for one in response.topics
    ]
    driver.group = "workers"
    await driver.stable(1, protocol_type="connect", protocols={"v0": b"me"})
    request.group_id = "workers"
    response = await gateway.ask(request, 0, OffsetDeleteResponse)
    assert (ErrorCode.NON_EMPTY_GROUP, []) == (response.error_code, response.topics)
    assert member.generation == 1


async def test_offsets_beside_a_subscription_that_is_cut_off(
    gateway: InProcessGateway, driver: GroupDriver
) -> None:
    """kafka-go says version 1 and leaves out owned partitions: its topics are known."""
    await create_topic(gateway, "orders")
    await create_topic(gateway, "payments")
    subscription = ConsumerProtocolSubscription(topics=["orders"])
    await driver.stable(1, protocols={"range": b"\0\1" + encode_blob(subscription, 0)[2:]})
    request = OffsetDeleteRequest(
        group_id="group",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in ("orders", "payments")
        ],
    )
    response = await gateway.ask(request, 0, OffsetDeleteResponse)
    assert [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE] == [
        one.partitions[0].error_code for one in response.topics
    ]
