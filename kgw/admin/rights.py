"""The rights that endpoints ask for, and the topics and groups that a client may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.security.acls.terms import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.admin.parameters import QueryParameters
    from kgw.security.access import Access
    from kgw.security.audit import Asking
    from kgw.security.principal import Principal


class Client(NamedTuple):
    """The client of one request."""

    principal: Principal
    host: str
    is_known: bool = True
    """Whether it has shown a login if one is needed; otherwise it gets the public fields alone."""


class Right(NamedTuple):
    """An operation on the cluster, or on the resource that a parameter of the query names."""

    operation: AclOperation
    resource_type: ResourceType
    parameter: str = ""
    """The name of the parameter. If a query does not have it, the right is not asked for: then the
    answer has the resources that the client may see, and no others."""


CLUSTER: Final = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)
NAMED_TOPIC: Final = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, "topic")
NAMED_GROUP: Final = Right(AclOperation.DESCRIBE, ResourceType.GROUP, "group")


class Viewer:
    """The rights of the client of one request. Without access rules it may see everything."""

    def __init__(self, access: Access | None, client: Client, request: Asking) -> None:
        """`request` is the endpoint, for the audit log."""
        self._access = access
        self._client = client
        self._request = request
        self._seen: dict[tuple[ResourceType, str], bool] = {}

    def missing_right(self, rights: Iterable[Right], query: QueryParameters, *, quiet: bool) -> str:
        """Return a sentence about the first right that the client lacks; "" if it has all.

        With `quiet`, a denial is neither counted nor logged.
        """
        for operation, resource_type, parameter in rights:
            name = query.texts.get(parameter) if parameter else CLUSTER_NAME
            if name is None or self._may(operation, resource_type, name, quiet=quiet):
                continue
            what = f"{operation.tool_name} this {resource_type.tool_name.lower()}"
            return f"{self._client.principal} may not {what}"
        return ""

    def sees_topic(self, name: str) -> bool:
        """Return whether the client may DESCRIBE a topic, which need not exist."""
        return self._sees(ResourceType.TOPIC, name)

    def sees_group(self, name: str) -> bool:
        """Return whether the client may DESCRIBE a group, which need not exist."""
        return self._sees(ResourceType.GROUP, name)

    @property
    def sees_cluster(self) -> bool:
        """Whether the client may DESCRIBE the cluster."""
        return self._sees(ResourceType.CLUSTER, CLUSTER_NAME)

    def _sees(self, resource_type: ResourceType, name: str) -> bool:
        if self._access is None:
            return True
        # An answer may have thousands of partitions of a topic.
        known = self._seen.get((resource_type, name))
        if known is None:
            known = self._may(AclOperation.DESCRIBE, resource_type, name, quiet=True)
            self._seen[resource_type, name] = known
        return known

    def _may(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, quiet: bool
    ) -> bool:
        return self._access is None or self._access.permits(
            self._client.principal,
            self._client.host,
            operation,
            resource_type,
            name,
            request=self._request,
            quiet=quiet,
        )
