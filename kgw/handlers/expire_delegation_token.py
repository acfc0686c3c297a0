"""ExpireDelegationToken, key 40, versions 0 to 2: make a token expire sooner (KIP-48).

Behaviour:
- the change is durable before the answer. The token is found by its HMAC;
- a negative period removes the token, also one that has expired: it opens no new session. A
  session that is open stays open, until it ends by itself;
- its owner and its renewers may expire it: else DELEGATION_TOKEN_OWNER_MISMATCH. No access rule is
  asked for;
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, or that has logged in
  with a token; DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`;
  DELEGATION_TOKEN_NOT_FOUND; DELEGATION_TOKEN_EXPIRED;
- no token expires later than its maximum lifetime says.

v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.delegation_tokens import TokenApi
from kgw.handlers.rights import NO_RIGHTS
from kgw.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from kgw.handlers.context import Answer


class ExpireDelegationToken(TokenApi):
    response_type = ExpireDelegationTokenResponse
    # The owner and the renewers of a token are its access rule.
    rights = NO_RIGHTS

    def answer(self) -> Answer:
        return self._expire()

    async def _expire(self) -> ExpireDelegationTokenResponse:
        tokens = (await self.gateway.load_credentials()).tokens
        async with tokens.turn:
            token = await tokens.expire(
                bytes(self.request.hmac),
                self.client,
                self.request.expiry_time_period_ms,
                self.gateway.clock.wall_ms(),
            )
        is_removed = self.request.expiry_time_period_ms < 0
        self.log("token removed" if is_removed else "token expiry set", token)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expiry_timestamp_ms)
