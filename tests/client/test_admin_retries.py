"""Every administrative call asks again while a node says that it has done nothing."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.client import AdminClient, AsyncClient, ClientDelay, Delays, ServerRefusedError
from kgw.client.admin import TOPIC
from kgw.client.groups import GroupClient
from kgw.client.transactions import PartitionProducer, TransactionClient
from kgw.client.values import ScramUpsertion
from kgw.config import parse_address
from kgw.errors import ErrorCode
from kgw.security.acls.binding import AclBinding, AclBindingFilter
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from kgw.security.sasl.scram import ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.testing.broker import Broker

pytestmark = pytest.mark.slow  # the first pause before another attempt is a tenth of a second


class Case(NamedTuple):
    """A call, and the answer that refuses it."""

    api: str
    error: str
    call: Callable[[AsyncClient], Awaitable[Any]]
    refusal: str | None = None
    """What it ends with all the same: nothing is there of what it asks for."""


NOBODY = PartitionProducer(7, 0, 0, 0, 0, -1)
ALICE = ScramUpsertion("alice", ScramMechanism.SHA_256, 4096, b"salt", bytes(32))
RULE = AclBinding(
    ResourceType.TOPIC,
    "events",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    PermissionType.ALLOW,
)
CASES = {
    "AdminClient.create_topic": Case(
        "CreateTopics",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).create_topic("other", partitions=1),
    ),
    "AdminClient.delete_topic": Case(
        "DeleteTopics", "NOT_CONTROLLER", lambda client: AdminClient(client).delete_topic("events")
    ),
    "AdminClient.create_partitions": Case(
        "CreatePartitions",
        "THROTTLING_QUOTA_EXCEEDED",
        lambda client: AdminClient(client).create_partitions("events", 3),
    ),
    "AdminClient.delete_records": Case(
        "DeleteRecords",
        "NOT_LEADER_OR_FOLLOWER",
        lambda client: AdminClient(client).delete_records("events", {0: -1, 1: -1}),
    ),
    "AdminClient.describe_settings": Case(
        "DescribeConfigs",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).describe_settings(TOPIC, "events"),
    ),
    "AdminClient.alter_settings": Case(
        "IncrementalAlterConfigs",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).alter_settings(TOPIC, "events", {"retention.ms": "9"}),
    ),
    "AdminClient.append_setting": Case(
        "IncrementalAlterConfigs",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).append_setting(
            TOPIC, "events", "cleanup.policy", "compact"
        ),
    ),
    "AdminClient.scram_credentials": Case(
        "DescribeUserScramCredentials",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).scram_credentials(),
    ),
    "AdminClient.set_scram_credential": Case(
        "AlterUserScramCredentials",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).set_scram_credential(ALICE),
    ),
    "AdminClient.delete_scram_credentials": Case(
        "AlterUserScramCredentials",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).delete_scram_credentials("bob", [ALICE.mechanism]),
        "RESOURCE_NOT_FOUND",
    ),
    "AdminClient.access_rules": Case(
        "DescribeAcls",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).access_rules(AclBindingFilter()),
        "SECURITY_DISABLED",
    ),
    "AdminClient.create_access_rules": Case(
        "CreateAcls",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).create_access_rules([RULE]),
        "SECURITY_DISABLED",
    ),
    "AdminClient.delete_access_rules": Case(
        "DeleteAcls",
        "NOT_CONTROLLER",
        lambda client: AdminClient(client).delete_access_rules([AclBindingFilter()]),
        "SECURITY_DISABLED",
    ),
    "GroupClient.groups": Case(
        "ListGroups", "COORDINATOR_LOAD_IN_PROGRESS", lambda client: GroupClient(client).groups()
    ),
    "GroupClient.describe": Case(
        "DescribeGroups", "NOT_COORDINATOR", lambda client: GroupClient(client).describe("readers")
    ),
    "GroupClient.has_members": Case(
        "DescribeGroups",
        "NOT_COORDINATOR",
        lambda client: GroupClient(client).has_members("readers"),
    ),
    "GroupClient.offsets": Case(
        "OffsetFetch", "NOT_COORDINATOR", lambda client: GroupClient(client).offsets("readers")
    ),
    "GroupClient.commit": Case(
        "OffsetCommit",
        "COORDINATOR_NOT_AVAILABLE",
        lambda client: GroupClient(client).commit("readers", {("events", 0): 1}),
    ),
    "GroupClient.delete": Case(
        "DeleteGroups", "NOT_COORDINATOR", lambda client: GroupClient(client).delete("readers")
    ),
    "GroupClient.delete_offsets": Case(
        "OffsetDelete",
        "NOT_COORDINATOR",
        lambda client: GroupClient(client).delete_offsets("readers", [("events", 0)]),
    ),
    "GroupClient.set_offsets": Case(
        "OffsetCommit",
        "NOT_COORDINATOR",
        lambda client: GroupClient(client).set_offsets("readers", {("events", 0): 1}),
    ),
    "GroupClient.members": Case(
        "DescribeGroups", "NOT_COORDINATOR", lambda client: GroupClient(client).members("readers")
    ),
    "GroupClient.explain": Case(
        "DescribeConfigs", "NOT_COORDINATOR", lambda client: GroupClient(client).explain("readers")
    ),
    "TransactionClient.transactions": Case(
        "ListTransactions",
        "COORDINATOR_LOAD_IN_PROGRESS",
        lambda client: TransactionClient(client).transactions(),
    ),
    "TransactionClient.describe": Case(
        "DescribeTransactions",
        "NOT_COORDINATOR",
        lambda client: TransactionClient(client).describe("nobody"),
        "TRANSACTIONAL_ID_NOT_FOUND",
    ),
    "TransactionClient.producers": Case(
        "DescribeProducers",
        "NOT_LEADER_OR_FOLLOWER",
        lambda client: TransactionClient(client).producers("events", [0]),
    ),
    "TransactionClient.abort": Case(
        "WriteTxnMarkers",
        "NOT_LEADER_OR_FOLLOWER",
        lambda client: TransactionClient(client).abort("events", 0, NOBODY),
    ),
    "AsyncClient.topic": Case(
        "Metadata", "LEADER_NOT_AVAILABLE", lambda client: client.topic("events")
    ),
}
WITHOUT_ANSWER = {
    # They pass over what a resource answers: a server may know nothing of it.
    "AdminClient.clock_ms",
    "AdminClient.problems",
    "AdminClient.topic_values",
}


def test_every_call_is_here() -> None:
    """Whoever adds one says how it is refused."""
    calls = {
        f"{kind.__name__}.{name}"
        for kind in (AdminClient, GroupClient, TransactionClient)
        for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert calls | {"AsyncClient.topic"} == CASES.keys() | WITHOUT_ANSWER


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_node_that_has_done_nothing_is_asked_again(kgw_broker: Broker, case: Case) -> None:
    """Once it is asked anew it answers; the person who waits is told of the first refusal."""
    kgw_broker.create_topics({"events": 2})
    delays: list[ClientDelay] = []
    address = parse_address(kgw_broker.bootstrap)
    async with AsyncClient([address], delays=Delays(delays.append)) as client:
        await GroupClient(client).commit("readers", {("events", 1): 0})
        kgw_broker.faults.refuse(
            case.api, case.error, times=1, topic=_topic(case), must_strike=True
        )
        if case.refusal is None:
            answer = await case.call(client)
            if isinstance(answer, dict):
                assert not [one for one in answer.values() if isinstance(one, Exception)]
        else:
            with pytest.raises(ServerRefusedError, match=case.refusal):
                await case.call(client)
    (told,) = delays
    assert case.error in told.reason
    assert "trying again" == told.action


def _topic(case: Case) -> str | None:
    return "events" if case.api == "Metadata" else None


@pytest.mark.parametrize("error", ["REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"])
async def test_what_may_have_been_done_is_not_done_again(kgw_broker: Broker, error: str) -> None:
    """A topic that was created by the attempt before would exist already."""
    kgw_broker.faults.refuse("CreateTopics", error, times=1)
    async with AsyncClient([parse_address(kgw_broker.bootstrap)]) as client:
        with pytest.raises(ServerRefusedError, match=error):
            await AdminClient(client).create_topic("events", partitions=1)
    assert 1 == kgw_broker.faults.struck()


async def test_a_group_that_an_attempt_before_may_have_deleted_is_deleted(
    kgw_broker: Broker,
) -> None:
    """It could not tell whether that was stored: then there is none any more."""
    kgw_broker.faults.refuse("DeleteGroups", "COORDINATOR_NOT_AVAILABLE", times=1)
    async with AsyncClient([parse_address(kgw_broker.bootstrap)]) as client:
        await GroupClient(client).delete("gone")
        assert 1 == kgw_broker.faults.struck()
        with pytest.raises(ServerRefusedError, match="GROUP_ID_NOT_FOUND"):
            await GroupClient(client).delete("gone")


async def test_a_group_that_nobody_can_have_deleted_is_not_found(kgw_broker: Broker) -> None:
    """Another coordinator was asked for it, and knows none."""
    kgw_broker.faults.refuse("DeleteGroups", "NOT_COORDINATOR", times=1)
    async with AsyncClient([parse_address(kgw_broker.bootstrap)]) as client:
        with pytest.raises(ServerRefusedError, match="GROUP_ID_NOT_FOUND"):
            await GroupClient(client).delete("never")


async def test_partitions_that_were_cut_are_not_cut_again(kgw_broker: Broker) -> None:
    """Only the one that leads elsewhere is asked again; another refusal stands in its answer."""
    kgw_broker.create_topics({"events": 2})
    async with AsyncClient([parse_address(kgw_broker.bootstrap)]) as client:
        kgw_broker.faults.refuse(
            "DeleteRecords", "NOT_LEADER_OR_FOLLOWER", times=1, topic="events", partition=1
        )
        kgw_broker.faults.refuse(
            "DeleteRecords", "POLICY_VIOLATION", times=1, topic="events", partition=0
        )
        answers = await AdminClient(client).delete_records("events", {0: 0, 1: 0})
    refused = answers.pop(0)
    assert isinstance(refused, ServerRefusedError)
    # Asked again it would have been cut.
    assert ErrorCode.POLICY_VIOLATION is refused.code
    assert {1: 0} == answers


async def test_who_leads_is_asked_anew(kgw_broker: Broker) -> None:
    """A node that was replaced says by whom: its Metadata is asked for after its refusal."""
    looks = kgw_broker.faults.delay("Metadata", 0.0)
    kgw_broker.faults.refuse("CreateTopics", "NOT_CONTROLLER", times=2)
    async with AsyncClient([parse_address(kgw_broker.bootstrap)]) as client:
        await AdminClient(client).create_topic("events", partitions=1)
    assert 3 == looks.count


async def test_a_node_that_never_leads_ends_the_call(kgw_broker: Broker) -> None:
    """With its refusal, once the time is over."""
    kgw_broker.faults.refuse("CreateTopics", "NOT_CONTROLLER")
    async with AsyncClient([parse_address(kgw_broker.bootstrap)], retry_s=0.3) as client:
        with pytest.raises(ServerRefusedError, match="NOT_CONTROLLER"):
            await AdminClient(client).create_topic("events", partitions=1)
    assert kgw_broker.faults.struck() > 1
