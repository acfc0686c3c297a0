"""FindCoordinator, key 10, versions 0 to 6: the node that coordinates a group or transactional id.

Behaviour:
- the coordinator is the node that owns the group or id; its address is that of the listener to
  which the client is connected. The group or id need not exist;
- COORDINATOR_NOT_AVAILABLE while the owner is not known, as no lease is confirmed;
- share partitions are answered with UNSUPPORTED_VERSION, as share groups are not supported yet:
  after COORDINATOR_NOT_AVAILABLE a client would retry for ever;
- other kinds of key are INVALID_REQUEST.

v1: kinds of key, messages (KIP-98). v3: flexible (KIP-482). v4: several keys (KIP-699). v5:
KIP-890, v6: share partitions (KIP-932); both have the layout of v4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import advertised_address
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.ownership.keys import CoordinatorKey, CoordinatorType
from kgw.ownership.placement import NOBODY
from kgw.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kgw.security.acls.terms import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest

_SHARE = 2
_SHARE_KEYS = 6
_NOBODY = -1
_SEVERAL_KEYS = 4


class FindCoordinator(AnswerByItem):
    response_type = FindCoordinatorResponse
    rights = Rights(
        group=AclOperation.DESCRIBE,
        transactional_id=AclOperation.DESCRIBE,
        others=((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    )
    parts = {"coordinators": "coordinator_keys"}
    refused_values = {"node_id": _NOBODY, "port": _NOBODY}
    per_turn = 400

    def __init__(self, request: FindCoordinatorRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        self._is_share = request.key_type == _SHARE and self.version >= _SHARE_KEYS
        self._key_type = CoordinatorType.GROUP
        if self._is_share:
            return
        try:
            self._key_type = CoordinatorType(request.key_type)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"keys of type {request.key_type} are unknown"
            ) from None

    def check_rights(self) -> None:
        if self._is_share:
            self.authorize(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def check_item_rights(self, asked: str) -> None:
        of = ResourceType.TRANSACTIONAL_ID
        if self._key_type is CoordinatorType.GROUP:
            of = ResourceType.GROUP
        self.authorize(AclOperation.DESCRIBE, of, asked)

    def answer(self) -> Answer:
        if self._is_share:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "share groups are not served yet")
        if self.version >= _SEVERAL_KEYS:
            return super().answer()
        found: Any
        (found,) = self.items()
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def asked(self) -> Iterable[str]:
        return super().asked() if self.version >= _SEVERAL_KEYS else [self.request.key]

    def item(self, asked: str) -> Coordinator:
        node = self.gateway.placement.owner(CoordinatorKey(self._key_type, asked)).node
        if node is NOBODY:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is not known which server leads"
            )
        host, port = advertised_address(node, self.context)
        return Coordinator(
            key=asked, node_id=node.node_id, host=host, port=port, error_message=None
        )
