"""The OAUTHBEARER code of client libraries, without their connections, logs in and is denied."""

from __future__ import annotations

from typing import Any

import pytest

from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import Authenticated, Denied, Step, Work, open_exchange
from tests.security.oauth.issuing import NOW_MS, FixedTrust, token
from tests.security.sasl.logins import FAKES, Logins, always, numbered_bytes

# What kafka-python does when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")

TRUST = FixedTrust()
GOOD, BAD = token(), token(which=2)


class Server:
    """The server's side of one login."""

    def __init__(self) -> None:
        offered = ["OAUTHBEARER"]
        self.exchange = open_exchange(
            "OAUTHBEARER", offered, Logins(), FAKES, numbered_bytes, always, TRUST
        )

    def answer(self, message: bytes) -> Step:
        """Return the answer to a message."""
        step = self.exchange.respond(message, NOW_MS)
        return step.run() if isinstance(step, Work) else step


@pytest.mark.parametrize("extensions", [{}, {"traceId": "1", "logicalCluster": "lkc-1"}])
def test_kafka_python(extensions: dict[str, str]) -> None:
    """It answers a denial as RFC 7628 demands."""
    from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            self.text = text

        def token(self) -> str:
            return self.text

        def extensions(self) -> dict[str, str]:
            return extensions

    client, server = SaslMechanismOAuth(sasl_oauth_token_provider=Provider(GOOD)), Server()
    step = server.answer(client.auth_bytes())
    assert isinstance(step, Authenticated)
    client.receive(step.data)
    assert client.is_authenticated()

    client, server = SaslMechanismOAuth(sasl_oauth_token_provider=Provider(BAD)), Server()
    denied = server.answer(client.auth_bytes())
    assert isinstance(denied, Denied)
    client.receive(denied.data)
    assert not client.is_done()
    assert b"\x01" == client.auth_bytes()
    with pytest.raises(AuthenticationFailed):
        server.answer(client.auth_bytes())


@pytest.mark.parametrize("extensions", [{}, {"traceId": "1", "logicalCluster": "lkc-1"}])
async def test_aiokafka(extensions: dict[str, str]) -> None:
    """It looks at no answer."""
    from aiokafka.conn import OAuthAuthenticator

    class Provider:
        def __init__(self, text: str) -> None:
            self.text = text

        async def token(self) -> str:
            return self.text

        def extensions(self) -> dict[str, str]:
            return extensions

    for text, expected in ((GOOD, Authenticated), (BAD, Denied)):
        client: Any = OAuthAuthenticator(sasl_oauth_token_provider=Provider(text))
        message, _ = await client.step(None)
        step = Server().answer(message)
        assert isinstance(step, expected)
        assert isinstance(step, Authenticated | Denied)
        assert await client.step(step.data) is None
