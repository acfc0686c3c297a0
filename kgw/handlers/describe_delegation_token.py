"""DescribeDelegationToken, key 41, versions 0 to 3: list tokens, with their HMACs (KIP-48).

Behaviour:
- a client sees the tokens that it owns, that it may renew, and that it has requested. For others it
  needs DESCRIBE on the token or DESCRIBE_TOKENS on the owner; without, they are left out;
- with owners, only tokens that one of them owns, may renew or has requested; an empty list of
  owners means no token, null all of them;
- an expired token is listed until it is removed;
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, or that has logged in
  with a token; DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`.

v2: flexible (KIP-482). v3: the requesters (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import made
from kgw.handlers.delegation_tokens import TokenApi, renewers_of
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenResponse,
)
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.security.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer
    from kgw.handlers.encoding_turns import Item
    from kgw.protocol.framing import EncodedBody
    from kgw.protocol.schema import Response
    from kgw.security.delegation_tokens import DelegationTokens
    from kgw.security.sasl.tokens import DelegationToken

_WITH_REQUESTER = 3


class DescribeDelegationToken(TokenApi, AnswerByItem):
    response_type = DescribeDelegationTokenResponse
    rights = Rights(
        any_of=(
            (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
            (AclOperation.DESCRIBE_TOKENS, ResourceType.USER),
        )
    )
    array = "tokens"
    per_turn = 200

    _tokens: DelegationTokens

    def answer(self) -> Answer:
        return self._answer_from_state()

    async def _answer_from_state(self) -> Response | EncodedBody | None:
        self._tokens = (await self.gateway.load_credentials()).tokens
        if not self._tokens.rules.is_enabled:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return await made(super().answer())

    def items(self) -> Iterator[Item]:
        owners: set[Principal] | None = None
        if self.request.owners is not None:
            owners = {
                Principal(one.principal_type, one.principal_name) for one in self.request.owners
            }
        for token in () if owners == set() else self._tokens.usable():
            if (owners is None or token.is_of_any(owners)) and self._may_see(token):
                yield self._described(token)
            else:
                yield 1

    def _may_see(self, token: DelegationToken) -> bool:
        # Quietly: the request has not asked for this token.
        return (
            token.is_of_any({self.client})
            or self.may(
                AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, quiet=True
            )
            or self.may(
                AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), quiet=True
            )
        )

    def _described(self, token: DelegationToken) -> DescribedDelegationToken:
        described = DescribedDelegationToken(
            principal_type=token.owner.principal_type,
            principal_name=token.owner.name,
            issue_timestamp=token.issue_timestamp_ms,
            expiry_timestamp=token.expiry_timestamp_ms,
            max_timestamp=token.max_timestamp_ms,
            token_id=token.token_id,
            hmac=self._tokens.rules.hmac(token.token_id),
            renewers=renewers_of(token.renewers),
        )
        if self.version >= _WITH_REQUESTER:
            described.token_requester_principal_type = token.requester.principal_type
            described.token_requester_principal_name = token.requester.name
        return described
