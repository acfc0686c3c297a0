"""DeleteAcls, key 31, versions 0 to 3: remove the access rules that filters find.

Behaviour:
- the removal is durable before the answer, and holds for every request that comes after it. A
  request that waits for records is asked for its rights again;
- filters match as in DescribeAcls. The answer to each one has the rules that it has found; a rule
  that two filters find is in both answers;
- INVALID_REQUEST for a filter with a number that has no meaning; the other filters are obeyed;
- SECURITY_DISABLED if there are no access rules.

v1: pattern type (KIP-290); before, rules with literal patterns are removed. v2: flexible (KIP-482).
v3: users as resources (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import KafkaError
from kgw.handlers.acls import RULES_ARE_OFF, filter_of
from kgw.handlers.context import made
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kgw.security.acls.terms import AclOperation
from kgw.turns import StepBudget, take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer
    from kgw.handlers.encoding_turns import Item
    from kgw.protocol.framing import EncodedBody
    from kgw.protocol.schema import Response
    from kgw.security.access import Access
    from kgw.security.acls.binding import AclBinding
    from kgw.turns import Turns

_COMPARED_PER_TURN = 1_000


class DeleteAcls(AnswerByItem):
    response_type = DeleteAclsResponse
    rights = Rights(cluster=AclOperation.ALTER)
    parts = {"filter_results": "filters"}
    per_turn = 400

    def answer(self) -> Answer:
        access = self.gateway.access
        if access is None:
            return self.refuse(self.request, *RULES_ARE_OFF, self.context)
        return self._delete(access)

    async def _delete(self, access: Access) -> Response | EncodedBody | None:
        self._found = await take_turns(self._look(access.bindings()))
        removed = (
            one for found in self._found if not isinstance(found, KafkaError) for one in found
        )
        await access.remove(removed, self.context.session)
        return await made(super().answer())

    def _look(self, bindings: list[AclBinding]) -> Turns[list[list[AclBinding] | KafkaError]]:
        """Return for each filter the rules that it finds, or its error."""
        looked: list[list[AclBinding] | KafkaError] = []
        budget = StepBudget(_COMPARED_PER_TURN)
        for asked in self.request.filters:
            try:
                acl_filter = filter_of(asked)
            except KafkaError as error:
                looked.append(error)
                continue
            found = []
            for one in bindings:
                if acl_filter.matches(one):
                    found.append(one)
                if budget.spend():
                    yield
            looked.append(found)
        return looked

    def items(self) -> Iterator[Item]:
        for found in self._found:
            if isinstance(found, KafkaError):
                yield DeleteAclsFilterResult(error_code=found.code, error_message=found.message)
            else:
                result = DeleteAclsFilterResult(error_message=None)
                yield Inner(result, "matching_acls", map(_match, found))


def _match(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
