"""SaslHandshake, key 17, versions 0 and 1: choose the mechanism of a login (KIP-43).

Behaviour:
- at a listener without a login, and while a login lasts that does not expire: ILLEGAL_SASL_STATE;
- a mechanism that is not enabled: UNSUPPORTED_SASL_MECHANISM, and the enabled ones; the client may
  choose another one on the same connection;
- a standby server knows no passwords, and ends the connection: the client asks another node.

v0: the tokens follow without request headers. v1: they follow in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.login_attempts import LoginAttempts
from kgw.handlers.login_step import login_of
from kgw.handlers.parts import Api
from kgw.handlers.rights import NO_RIGHTS
from kgw.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kgw.security.sasl.exchange import open_exchange

if TYPE_CHECKING:
    from kgw.handlers.context import Answer

_TOKENS_IN_REQUESTS = 1


class SaslHandshake(Api):
    response_type = SaslHandshakeResponse
    rights = NO_RIGHTS

    def answer(self) -> Answer:
        login = login_of(self.context)
        credentials = self.gateway.credentials
        if credentials is None:
            raise ProtocolError("a server that stands by cannot check a login")
        mechanism = self.request.mechanism
        mechanisms = list(login.mechanisms)
        if mechanism not in login.mechanisms:
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
            )
        session = self.context.session
        attempts = LoginAttempts(
            credentials.failed_logins, session.client_host, session.principal, self.gateway
        )
        login.begin(
            open_exchange(
                mechanism,
                mechanisms,
                credentials,
                credentials.fakes,
                urandom,
                attempts.may_try,
                login.trust,
            ),
            self.gateway.clock.monotonic_s(),
            has_bare_tokens=self.version < _TOKENS_IN_REQUESTS,
            attempts=attempts,
        )
        return SaslHandshakeResponse(mechanisms=mechanisms)
