"""The rights that an API asks for. The class of each API declares them (`Api.rights`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.security.acls.terms import AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping


class Rights(NamedTuple):
    """The operations that a client needs, by the type of the resource that a request names.

    None: the API asks for no operation on resources of this type. `Api.check_rights` asks for
    `cluster`, and for the right on the one group or transactional id of a request; the classes of
    `kgw.handlers.parts` ask for the rights on the parts of a request.
    """

    topic: AclOperation | None = None
    group: AclOperation | None = None
    transactional_id: AclOperation | None = None
    cluster: AclOperation | None = None
    or_cluster: AclOperation | None = None
    """With this operation on the cluster, a client needs no right on the topics or groups."""
    others: tuple[tuple[AclOperation, ResourceType], ...] = ()
    """Further rights, which the methods of the API ask for."""
    any_of: tuple[tuple[AclOperation, ResourceType], ...] = ()
    """Further rights of which a client needs only one."""

    def asked(self) -> frozenset[tuple[AclOperation, ResourceType]]:
        """Return every operation that the API asks for, with its type of resource."""
        declared = (
            (self.topic, ResourceType.TOPIC),
            (self.group, ResourceType.GROUP),
            (self.transactional_id, ResourceType.TRANSACTIONAL_ID),
            (self.cluster, ResourceType.CLUSTER),
            (self.or_cluster, ResourceType.CLUSTER),
        )
        asked = {(operation, of) for operation, of in declared if operation is not None}
        return frozenset(asked.union(self.others, self.any_of))


NO_RIGHTS: Final = Rights()
"""The rights of an API whose requests everybody may send."""

_DENIALS: Final[Mapping[ResourceType, tuple[ErrorCode, str]]] = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    ResourceType.DELEGATION_TOKEN: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
    ResourceType.USER: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
}
"""By type of resource: the code for a client without the right, and Kafka's text for the code."""


def denial(resource_type: ResourceType) -> KafkaError:
    """Return the error for a client that lacks a right on a resource of this type.

    Its text has no name, which the client may not know.
    """
    return KafkaError(*_DENIALS[resource_type])
