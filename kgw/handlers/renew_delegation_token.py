"""RenewDelegationToken, key 39, versions 0 to 2: make a token expire later (KIP-48).

Behaviour:
- the change is durable before the answer. The token is found by its HMAC;
- its owner and its renewers may renew it: else DELEGATION_TOKEN_OWNER_MISMATCH. No access rule is
  asked for;
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, that has logged in with
  a token, or whose user was deleted; DELEGATION_TOKEN_AUTH_DISABLED without
  `delegation.token.secret.key`; DELEGATION_TOKEN_NOT_FOUND; DELEGATION_TOKEN_EXPIRED;
- a period of 0 or less means `delegation.token.expiry.time.ms`, which also bounds it. No token
  expires later than its maximum lifetime says. A short period makes it expire earlier.

v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.delegation_tokens import TokenApi
from kgw.handlers.rights import NO_RIGHTS
from kgw.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from kgw.handlers.context import Answer


class RenewDelegationToken(TokenApi):
    response_type = RenewDelegationTokenResponse
    # The owner and the renewers of a token are its access rule.
    rights = NO_RIGHTS

    def answer(self) -> Answer:
        return self._renew()

    async def _renew(self) -> RenewDelegationTokenResponse:
        credentials = await self.gateway.load_credentials()
        tokens = credentials.tokens
        async with tokens.turn:
            self.check_client_exists(credentials)
            token = await tokens.renew(
                bytes(self.request.hmac),
                self.client,
                self.request.renew_period_ms,
                self.gateway.clock.wall_ms(),
            )
        self.log("token renewed", token)
        return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_timestamp_ms)
