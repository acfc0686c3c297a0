"""The common part of the APIs of delegation tokens: it refuses clients that may not use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import Api
from kgw.protocol.messages.describe_delegation_token import DescribedDelegationTokenRenewer
from kgw.security.audit import log_change
from kgw.security.sasl.exchange import KNOWN_BY_CREDENTIALS
from kgw.security.sasl.tokens import check_token_requests_allowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.handlers.context import RequestContext
    from kgw.security.credentials import Credentials
    from kgw.security.principal import Principal
    from kgw.security.sasl.tokens import DelegationToken

NO_TIMESTAMP_MS: Final = -1
"""The timestamps of a refusal."""


class TokenApi(Api):
    """A request about delegation tokens.

    Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, and for one
    that has logged in with a token.
    """

    refused_values: ClassVar[Mapping[str, object]] = {"expiry_timestamp_ms": NO_TIMESTAMP_MS}

    def __init__(self, request: Any, context: RequestContext) -> None:
        super().__init__(request, context)
        login = context.session.login
        used_token_id = None if login is None else login.token_id
        check_token_requests_allowed(context.session.principal, used_token_id)

    @property
    def client(self) -> Principal:
        """The principal that sends the request."""
        return self.context.session.principal

    def log(self, event: str, token: DelegationToken) -> None:
        """Tell the audit log of a change of a token, without the HMAC."""
        log_change(
            event,
            self.context.session,
            token=token.token_id,
            owner=str(token.owner),
            expiry_timestamp_ms=token.expiry_timestamp_ms,
        )

    def check_client_exists(self, credentials: Credentials) -> None:
        """Raise KafkaError if the user was deleted after the login.

        The session stays open, and must not make itself a token that outlives it.
        """
        login = self.context.session.login
        if login is None or login.mechanism not in KNOWN_BY_CREDENTIALS:
            return
        if not credentials.of_user(self.client.name):
            text = "the user was deleted"
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, text)


def renewers_of(renewers: Iterable[Principal]) -> list[DescribedDelegationTokenRenewer]:
    """Return principals in the form of a response."""
    return [
        DescribedDelegationTokenRenewer(principal_type=one.principal_type, principal_name=one.name)
        for one in renewers
    ]
