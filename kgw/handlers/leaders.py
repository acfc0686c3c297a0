"""The leader of a partition, for answers that contain it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kgw.errors import ErrorCode
from kgw.handlers.context import advertised_address
from kgw.ownership.placement import NOBODY
from kgw.types import NO_LEADER_EPOCH, PartitionKey

if TYPE_CHECKING:
    from kgw.config import Node
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages import fetch, produce

EndpointT = TypeVar("EndpointT", "fetch.NodeEndpoint", "produce.NodeEndpoint")


def leader(topic: Topic, index: int, context: RequestContext) -> tuple[Node, int]:
    """Return the node that leads a partition, and the leader epoch.

    The node is NOBODY while this node does not know whether it leads.
    """
    owner = context.gateway.placement.owner(PartitionKey(topic.topic_id, index))
    partition = topic.partition(index)
    if partition is not None:
        return owner.node, partition.log.leader_epoch
    # Clients ignore a leader with an older epoch than the one they know, so send no epoch.
    is_opening = context.gateway.catalog.request_open(topic, index)
    if is_opening:
        return owner.node, NO_LEADER_EPOCH
    return owner.node, topic.next_epochs.get(index, owner.epoch)


def error_and_replicas(node: Node, context: RequestContext) -> tuple[ErrorCode, list[int]]:
    """Return the error and the replicas of a partition whose leader is a node, or NOBODY."""
    if node is NOBODY:
        return ErrorCode.LEADER_NOT_AVAILABLE, [context.gateway.placement.here.node_id]
    return ErrorCode.NONE, [node.node_id]


def name_leader(
    topic: Topic,
    index: int,
    answer: fetch.PartitionData | produce.PartitionProduceResponse,
    endpoints: list[EndpointT],
    endpoint_type: type[EndpointT],
    context: RequestContext,
) -> None:
    """Name the leader of a partition that is not on this node, and its address (KIP-951).

    Adds nothing if the leader is not known.
    """
    node, epoch = leader(topic, index, context)
    if node is NOBODY:
        return
    answer.current_leader.leader_id = node.node_id
    answer.current_leader.leader_epoch = epoch
    if all(one.node_id != node.node_id for one in endpoints):
        host, port = advertised_address(node, context)
        endpoints.append(endpoint_type(node_id=node.node_id, host=host, port=port))
