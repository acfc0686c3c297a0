"""Access rules through the client: what is sent, what comes back, and the errors of entries."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import AdminClient, AsyncClient, ServerRefusedError, UnsupportedApiError
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kgw.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kgw.security.acls.binding import AclBinding, AclBindingFilter
from kgw.security.acls.terms import AclOperation, PatternType, PermissionType, ResourceType
from tests.client.fake_broker import FakeBroker, served
from tests.client.serving import served_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kgw.protocol.schema import Response

RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    PermissionType.ALLOW,
)
OTHER = AclBinding(
    ResourceType.USER,
    "User:b",
    PatternType.PREFIXED,
    "User:bob",
    "::1",
    AclOperation.CREATE_TOKENS,
    PermissionType.DENY,
)
EVERY_RULE = AclBindingFilter()


@asynccontextmanager
async def admin_with_rules() -> AsyncIterator[AdminClient]:
    """Give an admin client of a gateway with access rules, which may change them."""
    async with served_client(super_users="User:ANONYMOUS") as client:
        yield AdminClient(client)


@asynccontextmanager
async def admin_of(
    api: ApiKey, answer: Callable[[Any], Response], versions: tuple[int, int] = (1, 3)
) -> AsyncIterator[AdminClient]:
    """Give an admin client of a broker with one more answer."""
    broker = FakeBroker()
    broker.answer[api], broker.versions[api] = answer, versions
    async with served(broker) as port, AsyncClient([("127.0.0.1", port)]) as client:
        yield AdminClient(client)


async def test_rules_come_and_go() -> None:
    """With every field as it was, sorted; a rule that exists stays once."""
    async with admin_with_rules() as admin:
        assert [] == await admin.access_rules(EVERY_RULE)
        await admin.create_access_rules([OTHER, RULE])
        await admin.create_access_rules([RULE])
        assert [RULE, OTHER] == await admin.access_rules(EVERY_RULE)
        of_users = AclBindingFilter(ResourceType.USER)
        assert [OTHER] == await admin.access_rules(of_users)
        assert [OTHER] == await admin.delete_access_rules([of_users])
        assert [RULE] == await admin.access_rules(EVERY_RULE)
        assert [] == await admin.delete_access_rules([of_users])


async def test_a_rule_that_two_filters_find_is_returned_once() -> None:
    """Both answers have it."""
    async with admin_with_rules() as admin:
        await admin.create_access_rules([OTHER, RULE])
        filters = [EVERY_RULE, AclBindingFilter(principal="User:alice")]
        assert [RULE, OTHER] == await admin.delete_access_rules(filters)


async def test_a_rule_that_is_not_added_is_an_error() -> None:
    """It is named, wherever it stands; the others are added."""
    wrong = RULE._replace(principal="alice")
    async with admin_with_rules() as admin:
        with pytest.raises(ServerRefusedError, match="1 of 2 access rules not added") as found:
            await admin.create_access_rules([RULE, wrong])
        assert ErrorCode.INVALID_REQUEST is found.value.code
        assert f"cannot add the access rule {wrong}" in str(found.value)
        assert [RULE] == await admin.access_rules(EVERY_RULE)
        with pytest.raises(ServerRefusedError, match=r"^cannot add the access rule"):
            await admin.create_access_rules([wrong])


async def test_a_filter_that_is_refused_is_an_error() -> None:
    """The server obeys the others."""
    wrong = AclBindingFilter(operation=AclOperation.UNKNOWN)
    async with admin_with_rules() as admin:
        await admin.create_access_rules([RULE])
        with pytest.raises(ServerRefusedError, match="cannot list access rules: INVALID_REQUEST"):
            await admin.access_rules(wrong)
        with pytest.raises(ServerRefusedError, match="cannot delete access rules: INVALID_REQUEST"):
            await admin.delete_access_rules([EVERY_RULE, wrong])
        assert [] == await admin.access_rules(EVERY_RULE)


async def test_a_rule_that_is_not_deleted_is_an_error() -> None:
    """It is named."""

    def answer(_: object) -> Response:
        failed = DeleteAclsMatchingAcl(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
            error_message="the disk is full",
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        result = DeleteAclsFilterResult(error_message=None, matching_acls=[failed])
        return DeleteAclsResponse(filter_results=[result])

    async with admin_of(ApiKey.DELETE_ACLS, answer) as admin:
        with pytest.raises(ServerRefusedError, match="the disk is full") as found:
            await admin.delete_access_rules([EVERY_RULE])
    assert f"cannot delete the access rule {RULE}" in str(found.value)


async def test_a_word_that_is_not_known_is_unknown() -> None:
    """A newer server may have more of them."""

    def answer(_: object) -> Response:
        one = AclDescription(principal="User:a", host="*", operation=99, permission_type=3)
        resource = DescribeAclsResource(
            resource_type=98, resource_name="x", pattern_type=3, acls=[one]
        )
        return DescribeAclsResponse(error_message=None, resources=[resource])

    async with admin_of(ApiKey.DESCRIBE_ACLS, answer) as admin:
        (found,) = await admin.access_rules(EVERY_RULE)
    assert (ResourceType.UNKNOWN, AclOperation.UNKNOWN) == (found.resource_type, found.operation)


@pytest.mark.parametrize(
    ("versions", "resource_type"),
    [((0, 0), ResourceType.TOPIC), ((1, 2), ResourceType.USER)],
    ids=("patterns", "users"),
)
async def test_an_old_server_is_not_sent_what_it_would_misread(
    versions: tuple[int, int], resource_type: ResourceType
) -> None:
    """Version 0 makes a prefixed rule literal; before version 3 users are no resources."""
    rule = OTHER._replace(resource_type=resource_type)

    def answer(_: object) -> Response:
        raise AssertionError("nothing is sent")

    async with admin_of(ApiKey.CREATE_ACLS, answer, versions) as admin:
        with pytest.raises(UnsupportedApiError):
            await admin.create_access_rules([rule])
    acl_filter = AclBindingFilter(resource_type)
    async with admin_of(ApiKey.DELETE_ACLS, answer, versions) as admin:
        with pytest.raises(UnsupportedApiError):
            await admin.delete_access_rules([acl_filter])
    async with admin_of(ApiKey.DESCRIBE_ACLS, answer, versions) as admin:
        with pytest.raises(UnsupportedApiError):
            await admin.access_rules(acl_filter)
