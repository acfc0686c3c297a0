"""Metadata, key 3, versions 0 to 13: the broker, and where the partitions of topics are led.

Behaviour:
- one broker, at the address of the listener that the client came through (KIP-103), which leads
  everything and is the controller;
- a missing topic is created when both the request and `auto.create.topics.enable` allow it, with
  `num.partitions`, durably, before it is answered: no client sees LEADER_NOT_AVAILABLE here;
- INVALID_TOPIC_EXCEPTION for an impossible name, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.

v1: null asks for all topics, controller, racks. v2: cluster id (KIP-78). v3: throttle time
(KIP-124). v4: the client may forbid creation (KIP-4). v5: offline replicas (KIP-112). v7: leader
epochs (KIP-320). v8: authorised operations when asked for, those of the cluster until v10
(KIP-430). v9: flexible (KIP-482). v10: topic ids in the answer (KIP-516). v12: topics asked for by
id. v13: an error of the whole answer (KIP-1102), never set here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kgw.handlers.context import advertised_address
from kgw.partitions.topic_names import name_problem
from kgw.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.topic import Topic
    from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def handle(request: MetadataRequest, context: RequestContext) -> Answer:
    gateway = context.gateway
    catalog = gateway.catalog
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version == 0):
        return _response(
            request,
            context,
            [_describe(topic, gateway.node_id) for topic in catalog.topics.values()],
        )
    may_create = gateway.config.auto_create_topics_enable and request.allow_auto_topic_creation
    answers = [_answer(one, context) for one in wanted]
    if may_create and any(_may_be_created(answer) for answer in answers):
        return _create_missing(request, answers, context)
    return _response(request, context, answers)


def error_response(
    request: MetadataRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> MetadataResponse:
    return _response(
        request,
        context,
        [
            MetadataResponseTopic(error_code=code, name=one.name or "", topic_id=one.topic_id)
            for one in request.topics or ()
        ],
    )


def _answer(wanted: MetadataRequestTopic, context: RequestContext) -> MetadataResponseTopic:
    """Describe one topic that was asked for, or say why not."""
    catalog = context.gateway.catalog
    by_id = wanted.topic_id != ZERO_TOPIC_ID
    if context.api_version < 12 and (by_id or wanted.name is None):
        # Versions 10 and 11 have the field, and no broker has ever looked at it.
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "")
    if wanted.name is None:
        topic = catalog.by_id(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
            )
    else:
        topic = catalog.get(wanted.name)
        if topic is None:
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if name_problem(wanted.name) is None
                else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            return MetadataResponseTopic(error_code=code, name=wanted.name)
    return _describe(topic, context.gateway.node_id)


def _may_be_created(answer: MetadataResponseTopic) -> bool:
    return answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _create_missing(
    request: MetadataRequest, answers: list[MetadataResponseTopic], context: RequestContext
) -> MetadataResponse:
    node_id = context.gateway.node_id
    return _response(
        request,
        context,
        [
            _describe_or_fail(answer.name or "", await _create(answer.name or "", context), node_id)
            if _may_be_created(answer)
            else answer
            for answer in answers
        ],
    )


async def _create(name: str, context: RequestContext) -> Topic | ErrorCode:
    catalog = context.gateway.catalog
    try:
        return await catalog.create(name, context.gateway.config.num_partitions, {})
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was faster
            return catalog.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error.code
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR


def _describe_or_fail(name: str, created: Topic | ErrorCode, node_id: int) -> MetadataResponseTopic:
    if isinstance(created, ErrorCode):
        return MetadataResponseTopic(error_code=created, name=name)
    return _describe(created, node_id)


def _describe(topic: Topic, node_id: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=node_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
            )
            for partition in topic.partitions
        ],
    )


def _response(
    request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    gateway = context.gateway
    host, port = advertised_address(context)
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=gateway.node_id, host=host, port=port)],
        cluster_id=gateway.cluster_id,
        controller_id=gateway.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
