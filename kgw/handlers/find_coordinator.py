"""FindCoordinator, key 10, versions 0 to 6: who coordinates a group or a transactional id.

Behaviour:
- the node that owns one coordinates it, at its address for the listener that the client came
  through. It need not exist;
- COORDINATOR_NOT_AVAILABLE while nobody knows which node owns it: its leadership is not confirmed;
- share partitions are answered with UNSUPPORTED_VERSION, which is final: with
  COORDINATOR_NOT_AVAILABLE a client would ask for ever for what is not served yet;
- other kinds of key are INVALID_REQUEST.

v1: kinds of key, messages (KIP-98). v3: flexible (KIP-482). v4: several keys (KIP-699). v5:
KIP-890, v6: share partitions (KIP-932); both have the layout of v4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import advertised_address
from kgw.placement import NOBODY, CoordinatorKey, CoordinatorType
from kgw.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest

_SHARE = 2
_SHARE_KEYS = 6
_NOBODY = -1
_SEVERAL_KEYS = 4


def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if request.key_type == _SHARE and context.api_version >= _SHARE_KEYS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "share groups are not served yet")
    try:
        key_type = CoordinatorType(request.key_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"keys of type {request.key_type} are unknown"
        ) from None
    if context.api_version < _SEVERAL_KEYS:
        one = _coordinator(CoordinatorKey(key_type, request.key), context)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    return FindCoordinatorResponse(
        coordinators=[
            _coordinator(CoordinatorKey(key_type, key), context) for key in request.coordinator_keys
        ]
    )


def _coordinator(owned: CoordinatorKey, context: RequestContext) -> Coordinator:
    node = context.gateway.placement.owner(owned).node
    if node is NOBODY:
        return Coordinator(
            key=owned.key,
            node_id=_NOBODY,
            port=_NOBODY,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message="it is not known which server leads",
        )
    host, port = advertised_address(node, context)
    return Coordinator(
        key=owned.key, node_id=node.node_id, host=host, port=port, error_message=None
    )


def error_response(
    request: FindCoordinatorRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> FindCoordinatorResponse:
    if context.api_version < _SEVERAL_KEYS:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=_NOBODY, port=_NOBODY
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=_NOBODY, port=_NOBODY, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ],
    )
