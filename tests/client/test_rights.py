"""What a client may do, and the server's clock, as the server tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.client import AdminClient, Connection
from kgw.client.rights import group_operations, topic_operations
from kgw.client.sasl_mechanisms import enabled_mechanisms
from kgw.clock import SystemClock
from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from tests import patience
from tests.client.serving import ServedGateway, served_client

if TYPE_CHECKING:
    from kgw.client import AsyncClient

ANONYMOUS = "User:ANONYMOUS"


def allowing(operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
    """Return a rule for clients without a login."""
    return AclBinding(
        resource_type,
        name,
        PatternType.LITERAL,
        ANONYMOUS,
        "*",
        operation,
        PermissionType.ALLOW,
    )


async def rights(client: AsyncClient) -> tuple[frozenset[AclOperation] | None, ...]:
    """Return the operations on a topic, a topic that does not exist, and a group."""
    return (
        await topic_operations(client, "orders"),
        await topic_operations(client, "nothing"),
        await group_operations(client, "billing"),
    )


async def test_without_rules_everything_is_allowed() -> None:
    """A group need not exist."""
    async with served_client() as client:
        await AdminClient(client).create_topic("orders")
        assert (
            SUPPORTED_OPERATIONS[ResourceType.TOPIC],
            None,
            SUPPORTED_OPERATIONS[ResourceType.GROUP],
        ) == await rights(client)


async def test_what_no_rule_allows_is_not_told() -> None:
    """A topic that one may not see has no operations, whether it exists or not."""
    async with served_client(super_users="User:admin") as client:
        assert (frozenset(), frozenset(), frozenset()) == await rights(client)


async def test_what_a_rule_allows_is_told() -> None:
    """With what it implies."""
    async with served_client(super_users=ANONYMOUS) as client:
        admin = AdminClient(client)
        await admin.create_topic("orders")
        assert SUPPORTED_OPERATIONS[ResourceType.TOPIC] == await topic_operations(client, "orders")
        denial = allowing(AclOperation.READ, ResourceType.TOPIC, "orders")
        await admin.create_access_rules([denial._replace(principal="User:x")])
        assert SUPPORTED_OPERATIONS[ResourceType.GROUP] == await group_operations(client, "billing")


async def test_the_mechanisms_are_told() -> None:
    """() is for a listener that asks for no login."""
    async with ServedGateway(
        listeners=("OPEN://127.0.0.1:0", "LOGIN://127.0.0.1:0"),
        listener_security_protocol_map=("OPEN:PLAINTEXT", "LOGIN:SASL_PLAINTEXT"),
    ) as served:
        found = {}
        for name, port in served.ports.items():
            connection = await Connection.open(served.host, port)
            found[name] = await enabled_mechanisms(connection, patience.seconds(10))
            await connection.aclose()
    assert {"OPEN": (), "LOGIN": ("SCRAM-SHA-256", "SCRAM-SHA-512")} == found


async def test_the_clock_is_told() -> None:
    """In milliseconds since 1970."""
    clock = SystemClock()
    async with served_client() as client:
        before_ms = clock.wall_ms()
        found_ms = await AdminClient(client).clock_ms(0)
        assert found_ms is not None
        assert before_ms <= found_ms <= clock.wall_ms()
    async with served_client(super_users="User:admin") as client:
        assert await AdminClient(client).clock_ms(0) is None
