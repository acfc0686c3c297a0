"""Asks a listener for its mechanisms of SASL, without a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from kgw.client.connection import Connection

_NONE = "NONE"
"""A mechanism that no server has: it answers with those that it has."""


async def enabled_mechanisms(connection: Connection, timeout_s: float) -> tuple[str, ...]:
    """Return the mechanisms of a listener that asks for a login; () if it asks for none.

    The connection must be new, and is of no other use afterwards. Raises ClientError.
    """
    answer = await connection.ask(
        SaslHandshakeRequest(mechanism=_NONE), SaslHandshakeResponse, timeout_s=timeout_s
    )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        return ()
    return tuple(sorted(answer.mechanisms))
