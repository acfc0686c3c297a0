"""CreateAcls, key 30, versions 0 to 3: add access rules.

Behaviour:
- the rules are durable before the answer, and hold for every request that comes after it. A request
  that waits for records is asked for its rights again;
- INVALID_REQUEST for a rule with a number that has no meaning, or with ANY; with an empty name;
  with another name than kafka-cluster for the cluster; with a principal that is not TYPE:NAME; with
  a text of more than 2,000 characters. The other rules of the request are added;
- a rule that exists already stays, without an error;
- POLICY_VIOLATION for a new rule if there are kgw.access.rules.max already;
- SECURITY_DISABLED if there are no access rules.

v1: pattern type (KIP-290). v2: flexible (KIP-482). v3: users as resources (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.acls import RULES_ARE_OFF, binding_of
from kgw.handlers.context import made
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from kgw.security.acls.terms import AclOperation
from kgw.turns import StepBudget, take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer
    from kgw.protocol.framing import EncodedBody
    from kgw.protocol.schema import Response
    from kgw.security.access import Access
    from kgw.security.acls.binding import AclBinding
    from kgw.turns import Turns


class CreateAcls(AnswerByItem):
    response_type = CreateAclsResponse
    rights = Rights(cluster=AclOperation.ALTER)
    parts = {"results": "creations"}
    per_turn = 200

    def answer(self) -> Answer:
        access = self.gateway.access
        if access is None:
            return self.refuse(self.request, *RULES_ARE_OFF, self.context)
        return self._create(access)

    async def _create(self, access: Access) -> Response | EncodedBody | None:
        self._asked = await take_turns(self._look())
        bindings = (one for one in self._asked if not isinstance(one, KafkaError))
        self._left_out = await access.add(bindings, self.context.session)
        return await made(super().answer())

    def _look(self) -> Turns[list[AclBinding | KafkaError]]:
        """Return each rule of the request, or why it cannot be added."""
        looked: list[AclBinding | KafkaError] = []
        budget = StepBudget(self.per_turn)
        for asked in self.request.creations:
            try:
                looked.append(binding_of(asked))
            except KafkaError as error:
                looked.append(error)
            if budget.spend():
                yield
        return looked

    def items(self) -> Iterator[AclCreationResult]:
        most = self.gateway.config.access_rules_max
        no_room = KafkaError(
            ErrorCode.POLICY_VIOLATION, f"kgw.access.rules.max allows {most} access rules"
        )
        for one in self._asked:
            error = no_room if one in self._left_out else one
            if isinstance(error, KafkaError):
                yield AclCreationResult(error_code=error.code, error_message=error.message)
            else:
                yield AclCreationResult()
