"""Who leads a partition, for the answers that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kgw.handlers.context import advertised_address
from kgw.types import NO_LEADER_EPOCH, PartitionKey

if TYPE_CHECKING:
    from kgw.config import Node
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topic import Topic
    from kgw.protocol.messages import fetch, produce

EndpointT = TypeVar("EndpointT", "fetch.NodeEndpoint", "produce.NodeEndpoint")


def leader(topic: Topic, index: int, context: RequestContext) -> tuple[Node, int]:
    """Return the node that leads a partition, and the leader epoch."""
    owner = context.gateway.placement.owner(PartitionKey(topic.topic_id, index))
    partition = topic.partition(index)
    if partition is not None:
        return owner.node, partition.log.leader_epoch
    # Clients would take no leader with an older epoch than they know: better none is named.
    is_opening = context.gateway.catalog.want(topic, index)
    return owner.node, NO_LEADER_EPOCH if is_opening else owner.epoch


def name_leader(
    topic: Topic,
    index: int,
    answer: fetch.PartitionData | produce.PartitionProduceResponse,
    endpoints: list[EndpointT],
    endpoint_type: type[EndpointT],
    context: RequestContext,
) -> None:
    """Say who leads a partition that is not on this node, and how to reach it (KIP-951)."""
    node, epoch = leader(topic, index, context)
    answer.current_leader.leader_id = node.node_id
    answer.current_leader.leader_epoch = epoch
    if all(one.node_id != node.node_id for one in endpoints):
        host, port = advertised_address(node, context)
        endpoints.append(endpoint_type(node_id=node.node_id, host=host, port=port))
