"""DescribeAcls, key 29, versions 0 to 3: find access rules.

Behaviour:
- a null text, and ANY, match everything. The pattern type MATCH finds the rules whose pattern
  matches a resource of this name, ANY the rules with exactly this name in their pattern;
- INVALID_REQUEST for a filter with a number that has no meaning;
- SECURITY_DISABLED if there are no access rules.

v1: pattern type (KIP-290); before, the rules with literal patterns are found. v2: flexible
(KIP-482). v3: users as resources (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.acls import RULES_ARE_OFF, filter_of
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.handlers.context import Answer
    from kgw.handlers.encoding_turns import Item
    from kgw.security.acls.binding import AclBinding, AclBindingFilter
    from kgw.security.acls.terms import PatternType, ResourceType


class DescribeAcls(AnswerByItem):
    response_type = DescribeAclsResponse
    rights = Rights(cluster=AclOperation.DESCRIBE)
    array = "resources"
    # Rules: each takes about 4 microseconds, including its encoding.
    per_turn = 400

    _bindings: Sequence[AclBinding]
    _filter: AclBindingFilter

    def answer(self) -> Answer:
        if self.gateway.access is None:
            return self.refuse(self.request, *RULES_ARE_OFF, self.context)
        self._filter = filter_of(self.request)
        self._bindings = self.gateway.access.bindings()
        return super().answer()

    def items(self) -> Iterator[Item]:
        found: dict[tuple[ResourceType, str, PatternType], list[AclBinding]] = {}
        for one in self._bindings:
            if self._filter.matches(one):
                pattern = one.resource_type, one.resource_name, one.pattern_type
                found.setdefault(pattern, []).append(one)
            yield 1
        for (resource_type, name, pattern_type), bindings in found.items():
            resource = DescribeAclsResource(
                resource_type=resource_type, resource_name=name, pattern_type=pattern_type
            )
            yield Inner(resource, "acls", map(_description, bindings))


def _description(binding: AclBinding) -> AclDescription:
    return AclDescription(
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
