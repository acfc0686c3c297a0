"""ListConfigResources, key 74, versions 0 and 1: the resources that DescribeConfigs describes.

Behaviour:
- lists every topic, and every node twice: as a broker and as the owner of its loggers;
- lists no client metrics (KIP-714) and no groups, as none have settings. Version 0 asks for client
  metrics alone, so its answer is empty;
- an empty list of types asks for all of them; UNSUPPORTED_VERSION for an unknown type.

v1: all types of resource (KIP-1142).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import ConfigResourceType
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.list_config_resources import ListConfigResourcesRequest

_TYPES = 1
"""The first version that has resource types."""


class ListConfigResources(AnswerByItem):
    response_type = ListConfigResourcesResponse
    rights = Rights(cluster=AclOperation.DESCRIBE_CONFIGS)
    array = "config_resources"
    per_turn = 500

    def __init__(self, request: ListConfigResourcesRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        self._types = frozenset(request.resource_types) or frozenset(ConfigResourceType)
        if self.version < _TYPES:
            self._types = frozenset({ConfigResourceType.CLIENT_METRICS})

    def answer(self) -> Answer:
        unknown = self._types - frozenset(ConfigResourceType)
        if unknown:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of type {min(unknown)}"
            )
        return super().answer()

    def items(self) -> Iterator[ConfigResource]:
        for resource_type in (ConfigResourceType.BROKER_LOGGER, ConfigResourceType.BROKER):
            if resource_type in self._types:
                for node in self.gateway.placement.owners:
                    name = str(node.node_id)
                    yield ConfigResource(resource_name=name, resource_type=resource_type)
        if ConfigResourceType.TOPIC in self._types:
            for topic in self.gateway.catalog.listed:
                yield ConfigResource(
                    resource_name=topic.name, resource_type=ConfigResourceType.TOPIC
                )
