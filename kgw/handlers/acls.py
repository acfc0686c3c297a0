"""Access rules in messages: shared by DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.errors import ErrorCode, KafkaError
from kgw.security.acls.binding import AclBinding, AclBindingFilter, check, check_filter
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from kgw.protocol.messages.create_acls import AclCreation
    from kgw.protocol.messages.delete_acls import DeleteAclsFilter
    from kgw.protocol.messages.describe_acls import DescribeAclsRequest

RULES_ARE_OFF: Final = (
    ErrorCode.SECURITY_DISABLED,
    "there are no access rules: super.users or authorizer.class.name switches them on",
)


def binding_of(asked: AclCreation) -> AclBinding:
    """Return the rule that a request adds. Raises KafkaError INVALID_REQUEST for a wrong one."""
    binding = AclBinding.from_codes(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )
    try:
        check(binding)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return binding


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    """Return the filter of a request. Raises KafkaError INVALID_REQUEST for a wrong one."""
    acl_filter = AclBindingFilter(
        ResourceType.from_code(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType.from_code(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation.from_code(asked.operation),
        PermissionType.from_code(asked.permission_type),
    )
    try:
        check_filter(acl_filter)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return acl_filter
