"""Access rules and filters, to and from the messages of DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kgw.client.errors import ServerRefusedError
from kgw.protocol.messages.create_acls import AclCreation
from kgw.security.acls.binding import AclBinding
from kgw.security.acls.terms import ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.protocol.messages.create_acls import AclCreationResult
    from kgw.protocol.messages.delete_acls import DeleteAclsMatchingAcl
    from kgw.protocol.messages.describe_acls import (
        AclDescription,
        DescribeAclsResource,
        DescribeAclsResponse,
    )
    from kgw.security.acls.binding import AclBindingFilter

_WITH_PATTERNS: Final = 1
"""The first version that sends a pattern type. An older one makes every pattern literal."""
_WITH_USERS: Final = 3
"""The first version that allows users as resources (KIP-373)."""


def lowest_version(resource_types: Iterable[ResourceType]) -> int:
    """Return the lowest version of a request that can name these resource types."""
    return _WITH_USERS if ResourceType.USER in resource_types else _WITH_PATTERNS


def creation(binding: AclBinding) -> AclCreation:
    """Return the entry of CreateAcls for a rule."""
    return AclCreation(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def filter_fields(acl_filter: AclBindingFilter) -> dict[str, Any]:
    """Return the fields of DescribeAcls, or of an entry of DeleteAcls, for a filter."""
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.resource_name,
        "pattern_type_filter": acl_filter.pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }


def described(answer: DescribeAclsResponse) -> Iterator[AclBinding]:
    """Yield the rules in the answer to DescribeAcls."""
    for resource in answer.resources:
        for one in resource.acls:
            yield _binding(resource, one)


def deleted(matching: DeleteAclsMatchingAcl) -> AclBinding:
    """Return one rule in the answer to DeleteAcls."""
    return _binding(matching, matching)


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    entry: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    return AclBinding.from_codes(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def refuse_creations(bindings: list[AclBinding], results: list[AclCreationResult]) -> None:
    """Raise ServerRefusedError, which names the first rule that was not added and counts others."""
    refused = [
        (binding, result)
        for binding, result in zip(bindings, results, strict=True)
        if result.error_code
    ]
    if refused:
        binding, result = refused[0]
        what = f"cannot add the access rule {binding}"
        if len(bindings) > 1:
            what = f"{len(refused)} of {len(bindings)} access rules not added: {what}"
        raise ServerRefusedError(result.error_code, what, result.error_message)
