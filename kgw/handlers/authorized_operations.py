"""The operations that a client may perform on a resource, for Describe APIs (KIP-430).

Without access rules every client may perform every operation, as in Kafka without an authorizer.
If the client asks for the operations, the field must not keep its default ("not asked for"):
kafka-python 2 takes the default for an unknown operation, and fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.security.acls.terms import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.handlers.parts import Api


def bit_field(operations: Iterable[AclOperation]) -> int:
    """Return operations as a bit field: bit n is set for operation n."""
    return sum(1 << operation for operation in operations)


_ALL: Final[Mapping[ResourceType, int]] = {
    resource_type: bit_field(operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}
TOPIC_OPERATIONS: Final = _ALL[ResourceType.TOPIC]
CLUSTER_OPERATIONS: Final = _ALL[ResourceType.CLUSTER]


def authorized_operations(api: Api, resource_type: ResourceType, name: str) -> int:
    """Return the operations that the client of a request may perform on a resource."""
    access = api.gateway.access
    if access is None:
        return _ALL[resource_type]
    session = api.context.session
    return bit_field(access.operations(session.principal, session.client_host, resource_type, name))


def authorized_cluster_operations(api: Api) -> int:
    """Return the operations that the client may perform on the cluster; 0 without DESCRIBE."""
    if not api.may_on_cluster(AclOperation.DESCRIBE):
        return 0
    return authorized_operations(api, ResourceType.CLUSTER, CLUSTER_NAME)
