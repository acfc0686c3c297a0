"""Asks a listener for its mechanisms of SASL, without a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from kgw.client.connection import Connection

_NONE = "NONE"
"""A mechanism that no server has: it answers with those that it has."""


async def enabled_mechanisms(connection: Connection, timeout_s: float) -> tuple[str, ...]:
    """Return the mechanisms of a listener that asks for a login; () if it asks for none.

    A listener without a login answers with an error and no mechanism.

    The connection must be new, and is of no other use afterwards. Raises ClientError.
    """
    answer = await connection.ask(
        SaslHandshakeRequest(mechanism=_NONE), SaslHandshakeResponse, timeout_s=timeout_s
    )
    return tuple(sorted(answer.mechanisms))
