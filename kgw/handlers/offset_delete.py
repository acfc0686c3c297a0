"""OffsetDelete, key 47, version 0: forget how far a group has read some partitions (KIP-496).

Behaviour:
- durable before it is answered. Offsets that do not exist are no error;
- a topic that members of the group are subscribed to is GROUP_SUBSCRIBED_TO_TOPIC; when members are
  no consumers, nobody can say what they read: NON_EMPTY_GROUP for the request;
- UNKNOWN_TOPIC_OR_PARTITION; GROUP_ID_NOT_FOUND for the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import coordinator
from kgw.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.offsets.committed import Place
    from kgw.protocol.messages.offset_delete import OffsetDeleteRequest


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    groups = coordinator(request.group_id, context)
    subscribed = groups.subscribed_topics(request.group_id)
    if isinstance(subscribed, ErrorCode):
        raise KafkaError(subscribed)
    response = OffsetDeleteResponse()
    places: list[Place] = []
    for wanted in request.topics:
        topic = context.gateway.catalog.get(wanted.name)
        answers = []
        for one in wanted.partitions:
            index = one.partition_index
            code = ErrorCode.NONE
            if topic is None or not topic.has_partition(index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif wanted.name in subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                places.append((topic.topic_id, index))
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        if answers:
            response.topics.append(OffsetDeleteResponseTopic(name=wanted.name, partitions=answers))
    code = await groups.delete_offsets(request.group_id, places)
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
    return response
