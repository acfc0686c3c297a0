"""CreateDelegationToken, key 38, versions 0 to 3: create a token that logs in its owner (KIP-48).

Behaviour:
- the token is durable before the answer. The answer alone, and DescribeDelegationToken, have its
  HMAC, which is the password of the token in base64;
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, that has logged in with
  a token, or whose user was deleted; DELEGATION_TOKEN_AUTH_DISABLED without
  `delegation.token.secret.key`;
- for another owner the client needs CREATE_TOKENS on this user: else
  DELEGATION_TOKEN_AUTHORIZATION_FAILED;
- INVALID_PRINCIPAL_TYPE for an owner or a renewer that is no user, INVALID_REQUEST for a name that
  no client can log in with, POLICY_VIOLATION if there are too many tokens;
- a lifetime of 0 or less means `delegation.token.max.lifetime.ms`, which also bounds it.

v2: flexible (KIP-482). v3: for another owner (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.handlers.delegation_tokens import NO_TIMESTAMP_MS, TokenApi
from kgw.handlers.rights import Rights, denial
from kgw.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.security.principal import Principal

if TYPE_CHECKING:
    from kgw.errors import ErrorCode
    from kgw.handlers.context import Answer, RequestContext

_WITH_REQUESTER = 3


class CreateDelegationToken(TokenApi):
    response_type = CreateDelegationTokenResponse
    rights = Rights(others=((AclOperation.CREATE_TOKENS, ResourceType.USER),))

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> CreateDelegationTokenResponse:
        # As in Kafka, a refusal has the principals.
        response = _response(request, context)
        response.error_code = code
        response.issue_timestamp_ms = NO_TIMESTAMP_MS
        response.expiry_timestamp_ms = NO_TIMESTAMP_MS
        response.max_timestamp_ms = NO_TIMESTAMP_MS
        return response

    def check_rights(self) -> None:
        owner = _owner(self.request, self.client)
        if owner != self.client and not self.may(
            AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            raise denial(ResourceType.USER)

    def answer(self) -> Answer:
        return self._create()

    async def _create(self) -> CreateDelegationTokenResponse:
        request = self.request
        credentials = await self.gateway.load_credentials()
        tokens = credentials.tokens
        async with tokens.turn:
            self.check_client_exists(credentials)
            token, hmac = await tokens.create(
                _owner(request, self.client),
                self.client,
                [Principal(one.principal_type, one.principal_name) for one in request.renewers],
                request.max_lifetime_ms,
                self.gateway.clock.wall_ms(),
            )
        self.log("token created", token)
        response = _response(request, self.context)
        response.issue_timestamp_ms = token.issue_timestamp_ms
        response.expiry_timestamp_ms = token.expiry_timestamp_ms
        response.max_timestamp_ms = token.max_timestamp_ms
        response.token_id = token.token_id
        response.hmac = hmac
        return response


def _owner(request: Any, client: Principal) -> Principal:
    """Return the owner of the token: by default the client."""
    if not request.owner_principal_name:
        return client
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _response(request: Any, context: RequestContext) -> CreateDelegationTokenResponse:
    """Return a response with the principals alone."""
    client = context.session.principal
    owner = _owner(request, client)
    response = CreateDelegationTokenResponse(
        principal_type=owner.principal_type, principal_name=owner.name
    )
    if context.api_version >= _WITH_REQUESTER:
        response.token_requester_principal_type = client.principal_type
        response.token_requester_principal_name = client.name
    return response
