"""Creation, renewal, expiry and lists of delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.client.errors import refuse
from kgw.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kgw.protocol.messages.describe_delegation_token import (
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kgw.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kgw.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kgw.security.principal import Principal, parse_principal
from kgw.security.sasl.scram_messages import encode_base64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.client.client import AsyncClient
    from kgw.client.connection import Connection

_WITH_OWNER: Final = 3
"""The first version that names an owner, and whose answer names the requester (KIP-373)."""
DEFAULT_MS: Final = -1
"""The lifetime, or the period of a renewal, that the server's settings have."""
AT_ONCE_MS: Final = -1
"""The period of an expiry after which the token is removed."""


class TokenDetails(NamedTuple):
    """A delegation token. Its text form hides the HMAC."""

    token_id: str
    owner: str
    """A principal, as in User:alice."""
    requester: str | None
    """None if the server is too old to tell."""
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: bytes

    def __repr__(self) -> str:
        return f"TokenDetails({self.token_id} of {self.owner})"

    @property
    def password(self) -> str:
        """The password with which a client logs in as the user `token_id`, with tokenauth=true."""
        return encode_base64(self.hmac)


class TokenClient:
    """Administration of delegation tokens through an AsyncClient. Every method raises ClientError.

    A request that may have been carried out is not retried.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = DEFAULT_MS,
    ) -> TokenDetails:
        """Create a token; without `owner` it is the client's own. Durable when this returns.

        Raises ValueError for a principal that is not TYPE:NAME.
        """
        given = None if owner is None else parse_principal(owner)
        principals = [parse_principal(one) for one in renewers]
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if given is None else given.principal_type,
            owner_principal_name=None if given is None else given.name,
            renewers=[
                DescribedDelegationTokenRenewer(
                    principal_type=one.principal_type, principal_name=one.name
                )
                for one in principals
            ],
            max_lifetime_ms=max_lifetime_ms,
        )

        async def create(connection: Connection) -> TokenDetails:
            minimum = 0 if given is None else _WITH_OWNER
            version = connection.spoken_version(CreateDelegationTokenRequest, minimum)
            answer = await connection.ask(request, CreateDelegationTokenResponse, version=version)
            refuse(answer.error_code, "cannot create a delegation token")
            requester = Principal(
                answer.token_requester_principal_type, answer.token_requester_principal_name
            )
            return TokenDetails(
                answer.token_id,
                str(Principal(answer.principal_type, answer.principal_name)),
                str(requester) if version >= _WITH_OWNER else None,
                tuple(str(one) for one in principals),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
                bytes(answer.hmac),
            )

        return await self._client.at_controller(create)

    async def tokens(self, owners: Iterable[str] | None = None) -> list[TokenDetails]:
        """Return the tokens that the client may see, the oldest first.

        With `owners`, only tokens that one of these principals owns, may renew or has requested.
        Raises ValueError for a principal that is not TYPE:NAME.
        """
        named = None if owners is None else [parse_principal(one) for one in owners]
        request = DescribeDelegationTokenRequest(
            owners=None
            if named is None
            else [
                DescribeDelegationTokenOwner(
                    principal_type=one.principal_type, principal_name=one.name
                )
                for one in named
            ]
        )

        async def describe(connection: Connection) -> list[TokenDetails]:
            version = connection.spoken_version(DescribeDelegationTokenRequest)
            answer = await connection.ask(request, DescribeDelegationTokenResponse, version=version)
            refuse(answer.error_code, "cannot list delegation tokens")
            return [
                TokenDetails(
                    one.token_id,
                    str(Principal(one.principal_type, one.principal_name)),
                    str(
                        Principal(
                            one.token_requester_principal_type, one.token_requester_principal_name
                        )
                    )
                    if version >= _WITH_OWNER
                    else None,
                    tuple(
                        str(Principal(renewer.principal_type, renewer.principal_name))
                        for renewer in one.renewers
                    ),
                    one.issue_timestamp,
                    one.expiry_timestamp,
                    one.max_timestamp,
                    bytes(one.hmac),
                )
                for one in answer.tokens
            ]

        found = await self._client.at_any_node(describe)
        return sorted(found, key=lambda one: (one.issue_timestamp_ms, one.token_id))

    async def renew(self, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
        """Renew the token that has an HMAC; return the time at which it expires, in ms."""

        async def renew(connection: Connection) -> int:
            answer = await connection.ask(
                RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms),
                RenewDelegationTokenResponse,
            )
            refuse(answer.error_code, "cannot renew the delegation token")
            return answer.expiry_timestamp_ms

        return await self._client.at_controller(renew)

    async def expire(self, hmac: bytes, period_ms: int = AT_ONCE_MS) -> int:
        """Make the token that has an HMAC expire after a period, or remove it at once.

        Returns the time at which it expires, in ms. A session that is open stays open.
        """

        async def expire(connection: Connection) -> int:
            answer = await connection.ask(
                ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
                ExpireDelegationTokenResponse,
            )
            refuse(answer.error_code, "cannot expire the delegation token")
            return answer.expiry_timestamp_ms

        return await self._client.at_controller(expire)
