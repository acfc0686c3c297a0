"""SaslAuthenticate, key 36, versions 0 to 2: carry the tokens of a login (KIP-152).

Behaviour:
- without a SaslHandshake before it: ILLEGAL_SASL_STATE;
- a login that fails: SASL_AUTHENTICATION_FAILED after `connection.failed.authentication.delay.ms`,
  with the same words for an unknown user and a wrong password. Every further request ends the
  connection;
- passwords are hashed in a thread.

v1: how long the login lasts (KIP-368). v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.login_step import next_token
from kgw.handlers.parts import Api
from kgw.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.handlers.login import Login
    from kgw.security.sasl.exchange import Exchange


class SaslAuthenticate(Api):
    response_type = SaslAuthenticateResponse

    def answer(self) -> Answer:
        login = self.context.session.login
        if login is None or login.exchange is None:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE,
                "this listener takes clients without SASL"
                if login is None
                else "no SaslHandshake came before",
            )
        return self._answer(login, login.exchange)

    async def _answer(self, login: Login, exchange: Exchange) -> SaslAuthenticateResponse:
        token, lasts_ms = await next_token(login, exchange, self.request.auth_bytes, self.context)
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=token, session_lifetime_ms=lasts_ms
        )
