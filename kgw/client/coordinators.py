"""Finds the coordinator of a group or transactional id, and connects to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.client.errors import refuse
from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from kgw.client.client import AsyncClient
    from kgw.client.connection import Connection

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""
_KEY_TYPES = 1
_SEVERAL_KEYS = 4


async def coordinator_connection(
    client: AsyncClient, key: str, key_type: int = GROUP
) -> tuple[int, Connection]:
    """Return the node id of a key's coordinator, and a connection to that node.

    Raises ClientError.
    """

    async def find() -> tuple[int, Connection]:
        connection = await client.any_connection()
        version = connection.spoken_version(
            FindCoordinatorRequest, 0 if key_type == GROUP else _KEY_TYPES
        )
        answer = await connection.ask(
            FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            if version >= _SEVERAL_KEYS
            else FindCoordinatorRequest(key=key, key_type=key_type),
            FindCoordinatorResponse,
            version=version,
        )
        found = answer.coordinators[0] if version >= _SEVERAL_KEYS else answer
        refuse(found.error_code, f"cannot find who coordinates {key}", found.error_message)
        connection = await client.node_connection(found.node_id, found.host, found.port)
        return found.node_id, connection

    return await client.retrying(find)
