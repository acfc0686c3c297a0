"""SaslAuthenticate, key 36, versions 0 to 2: carry the tokens of a login (KIP-152).

Behaviour:
- before a SaslHandshake it ends the connection; after the login: ILLEGAL_SASL_STATE;
- a login that fails: SASL_AUTHENTICATION_FAILED after `connection.failed.authentication.delay.ms`,
  with the same words for an unknown user and a wrong password. Every further request ends the
  connection;
- passwords are hashed, and the signatures of tokens checked, in a thread;
- a token that is not accepted (OAUTHBEARER) gets the answer of RFC 7628 after the same delay, and
  the request after it the error.

v1: how long the login lasts (KIP-368). v2: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.login_step import answer_token, login_of
from kgw.handlers.parts import Api
from kgw.handlers.rights import NO_RIGHTS
from kgw.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.handlers.login import Login


class SaslAuthenticate(Api):
    response_type = SaslAuthenticateResponse
    rights = NO_RIGHTS

    def answer(self) -> Answer:
        return self._answer(login_of(self.context))

    async def _answer(self, login: Login) -> SaslAuthenticateResponse:
        data, lasts_ms = await answer_token(self.request.auth_bytes, login, self.context)
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=data, session_lifetime_ms=lasts_ms
        )
