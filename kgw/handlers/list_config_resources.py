"""ListConfigResources, key 74, versions 0 and 1: what can be asked of DescribeConfigs.

Behaviour:
- lists every topic, and every node twice: as a broker and as the owner of its loggers;
- lists no client metrics (KIP-714) and no groups, as none have settings. Version 0 asks for client
  metrics alone, so its answer is empty;
- an empty list of types asks for all of them; UNSUPPORTED_VERSION for an unknown type.

v1: all types of resource (KIP-1142).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.config_resources import ResourceType
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.list_config_resources import ListConfigResourcesRequest
    from kgw.turns import Turns

_TYPES = 1
"""The first version that has them."""
_PER_TURN: Final = 500


def handle(request: ListConfigResourcesRequest, context: RequestContext) -> Answer:
    return in_turns(_answer(request, context), context.gateway.answer_turns)


def _answer(
    request: ListConfigResourcesRequest, context: RequestContext
) -> Turns[ListConfigResourcesResponse]:
    types = frozenset(request.resource_types) or frozenset(ResourceType)
    if context.api_version < _TYPES:
        types = frozenset({ResourceType.CLIENT_METRICS})
    strange = types - frozenset(ResourceType)
    if strange:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of type {min(strange)}"
        )
    resources = yield from encode_in_turns(
        ListConfigResourcesResponse,
        _resources(types, context),
        context.api_version,
        Share(_PER_TURN),
    )
    return ListConfigResourcesResponse(config_resources=resources)


def _resources(types: frozenset[int], context: RequestContext) -> Iterator[ConfigResource]:
    for resource_type in (ResourceType.BROKER_LOGGER, ResourceType.BROKER):
        if resource_type in types:
            for node in context.gateway.placement.owners:
                yield ConfigResource(resource_name=str(node.node_id), resource_type=resource_type)
    if ResourceType.TOPIC in types:
        for topic in context.gateway.catalog.listed:
            yield ConfigResource(resource_name=topic.name, resource_type=ResourceType.TOPIC)
