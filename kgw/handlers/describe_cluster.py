"""DescribeCluster, key 60, versions 0 to 2: the nodes of the cluster.

Behaviour: lists every node as a broker, with its address for the listener that the client is
connected to, and names the controller. A request for the endpoints of controllers is
MISMATCHED_ENDPOINT_TYPE. As in Kafka, every client sees the nodes; without DESCRIBE on the cluster
its authorised operations are 0.

v0: KIP-700. v1: endpoint type (KIP-919). v2: fenced brokers, of which there are none (KIP-1073).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.authorized_operations import authorized_cluster_operations
from kgw.handlers.context import advertised_address
from kgw.handlers.parts import Api
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from kgw.security.acls.terms import AclOperation, ResourceType

if TYPE_CHECKING:
    from kgw.handlers.context import Answer

_BROKERS = 1
_CONTROLLERS = 2


class DescribeCluster(Api):
    response_type = DescribeClusterResponse
    rights = Rights(others=((AclOperation.DESCRIBE, ResourceType.CLUSTER),))

    def answer(self) -> Answer:
        endpoint_type = self.request.endpoint_type
        if endpoint_type == _CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, and describes brokers"
            )
        if endpoint_type != _BROKERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type} is unknown"
            )
        placement = self.gateway.placement
        response = DescribeClusterResponse(
            cluster_id=placement.cluster_id, controller_id=placement.controller.node_id
        )
        for node in placement.nodes:
            host, port = advertised_address(node, self.context)
            broker = DescribeClusterBroker(broker_id=node.node_id, host=host, port=port)
            response.brokers.append(broker)
        if self.request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = authorized_cluster_operations(self)
        return response
