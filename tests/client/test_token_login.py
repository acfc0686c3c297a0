"""Logins of the client with tokens: where they come from, and how the server answers them."""

from __future__ import annotations

import base64
import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from kgw.client import (
    ClientError,
    ClientSecurity,
    Connection,
    LoginError,
    LoginRefusedError,
)
from kgw.client.token_login import (
    ClientCredentials,
    EndpointTokenSource,
    FileTokenSource,
    TokenLogin,
    denial,
)
from kgw.config.listeners import SecurityProtocol
from kgw.config.web_url import parse_web_url
from kgw.testing.clock import ManualClock
from tests.client.fake_broker import FakeBroker, served
from tests.client.test_secure_connection import ask_metadata, opened
from tests.security.oauth.web_servers import WebServer, answer

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "c4nary-s3cret"
CREDENTIALS = ClientCredentials("app", CANARY, "kafka read")


class Tokens:
    """A source that gives the tokens in turn, the last one for ever."""

    def __init__(self, *tokens: str) -> None:
        self.left = list(tokens)
        self.asked_s: list[float] = []

    def __str__(self) -> str:
        return "a test"

    async def token(self, now_s: float) -> str:
        self.asked_s.append(now_s)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def security(source: Any) -> ClientSecurity:
    """Return the security of a client with this source of tokens."""
    return ClientSecurity(SecurityProtocol.SASL_PLAINTEXT, login=TokenLogin(source))


def broker(*tokens: str, lifetime_ms: int = 0) -> FakeBroker:
    """Return a broker that accepts these tokens."""
    found = FakeBroker(mechanisms=("OAUTHBEARER",), lifetime_ms=lifetime_ms)
    found.bearer_tokens = set(tokens)
    return found


async def refusal(source: Any, one: FakeBroker) -> ClientError:
    """Return the error with which a login fails."""
    async with served(one) as port:
        with pytest.raises((LoginError, LoginRefusedError)) as raised:
            await Connection.open("127.0.0.1", port, security=security(source))
    assert CANARY not in f"{raised.value!r} {raised.value}"
    return raised.value


async def test_a_client_logs_in() -> None:
    """With one message."""
    one = broker("a.b.c")
    async with (
        served(one) as port,
        opened(port, security(Tokens("a.b.c"))) as connection,
    ):
        assert "fake" == await ask_metadata(connection)
    assert [b"n,,\x01auth=Bearer a.b.c\x01\x01"] == one.tokens


async def test_a_token_that_is_denied() -> None:
    """The client answers the denial, and tells neither the token nor what the server says."""
    one = broker("a.b.c")
    error = await refusal(Tokens(CANARY), one)
    assert "refused the login with the token from a test" in str(error)
    assert "(invalid_token)" in str(error)
    assert b"\x01" == one.tokens[-1]
    assert 2 == len(one.tokens)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"status":"insufficient_scope"}', "insufficient_scope"),
        (b'{"status":"c4nary-s3cret"}', "no known reason"),
        (b'{"status":["invalid_token"]}', "no known reason"),
        (b"c4nary", "no known reason"),
        (b"[" * 9_000, "no known reason"),
    ],
)
def test_the_reason_of_a_denial(message: bytes, reason: str) -> None:
    """Only words that the protocol has are shown."""
    assert reason == denial(message)


async def test_a_client_logs_in_again() -> None:
    """With a new token, before the old one ends (KIP-368)."""
    clock, source = ManualClock(), Tokens("a", "b")
    one = broker("a", "b", lifetime_ms=100_000)
    async with served(one) as port, opened(port, security(source), clock=clock) as connection:
        await ask_metadata(connection)
        clock.advance(84.0)
        await ask_metadata(connection)
        assert 1 == len(source.asked_s)
        clock.advance(2.0)
        await ask_metadata(connection)
    assert [0.0, 86.0] == [at - source.asked_s[0] for at in source.asked_s]
    assert b"Bearer b" in one.tokens[-1]


async def test_there_is_no_token() -> None:
    """The server is asked for nothing but its versions."""

    class None_(Tokens):  # noqa: N801 - no word of Python
        async def token(self, now_s: float) -> str:
            raise LoginError("no token from there")

    one = broker()
    assert "no token from there" in str(await refusal(None_("x"), one))
    assert ["API_VERSIONS"] == one.seen


class TestFiles:
    async def test_a_file_is_read_at_each_login(self, tmp_path: Path) -> None:
        """Kubernetes replaces such files; blanks around the token do not count."""
        file = tmp_path / "token"
        source = FileTokenSource(str(file))
        for text in ("a.b.c\n", "  d.e-_f==\r\n"):
            file.write_text(text)
            assert text.strip() == await source.token(0.0)

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "\n",
            "a b",
            f"password={CANARY}\n",
            "a\nb",
            "root:x:0:0",
            "a\x01b",
            "ü",
            "x" * 40_000,
        ],
    )
    async def test_another_file_is_not_sent(self, tmp_path: Path, content: str) -> None:
        """A wrong path shows the server no other secret."""
        file = tmp_path / "other"
        file.write_text(content)
        one = broker()
        assert f"{file} is no token" in str(await refusal(FileTokenSource(str(file)), one))
        assert [] == one.tokens

    async def test_a_file_that_is_missing(self, tmp_path: Path) -> None:
        """The error has its path."""
        path = str(tmp_path / "missing")
        error = await refusal(FileTokenSource(path), broker())
        assert f"cannot read the token in {path}: no such file" in str(error)


def granted(**fields: Any) -> bytes:
    """Return the answer of a token endpoint."""
    return answer(json.dumps({"token_type": "Bearer", **fields}).encode())


def endpoint(
    server: WebServer, credentials: ClientCredentials = CREDENTIALS
) -> EndpointTokenSource:
    """Return the client of a token endpoint."""
    return EndpointTokenSource(parse_web_url(server.url("/token?t=1")), credentials)


class TestEndpoints:
    async def test_a_request_for_a_token(self) -> None:
        """It has the grant and the scope as a form, and the client's name and secret as Basic."""
        async with WebServer([granted(access_token="a.b.c")]).served() as server:
            assert "a.b.c" == await endpoint(server).token(0.0)
        (head,), (body,) = server.heads, server.bodies
        assert head.startswith("POST /token?t=1 HTTP/1.1\r\n")
        expected = base64.b64encode(f"app:{CANARY}".encode()).decode()
        assert f"Authorization: Basic {expected}\r\n" in head
        form = {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
        assert form == parse_qs(body.decode())

    @pytest.mark.parametrize(
        ("is_url_encoded", "expected"), [(False, "a+b:c%/d"), (True, "a%2Bb:c%25%2Fd")]
    )
    async def test_names_with_signs(self, is_url_encoded: bool, expected: str) -> None:
        """`sasl.oauthbearer.header.urlencode`; without a scope none is asked for."""
        credentials = ClientCredentials("a+b", "c%/d", "", is_url_encoded)
        async with WebServer([granted(access_token="a")]).served() as server:
            await endpoint(server, credentials).token(0.0)
        assert base64.b64encode(expected.encode()).decode() in server.heads[0]
        assert b"grant_type=client_credentials" == server.bodies[0]

    @pytest.mark.parametrize("expires_in", [100, 100.0, "100"])
    async def test_logins_share_a_token(self, expires_in: object) -> None:
        """Until 80 % of its time are over."""
        chunk = granted(access_token="a", expires_in=expires_in)
        async with WebServer([chunk]).served() as server:
            source = endpoint(server)
            for now_s in (1000.0, 1050.0, 1079.9):
                assert "a" == await source.token(now_s)
            assert 1 == len(server.heads)
            server.chunks = [granted(access_token="b", expires_in=100)]
            assert ["b", "b"] == [await source.token(one) for one in (1080.0, 1159.0)]
        assert 2 == len(server.heads)

    @pytest.mark.parametrize("expires_in", [None, 0, -1, True, "soon", [], 1e999])
    async def test_a_token_of_unknown_lifetime_is_not_kept(self, expires_in: object) -> None:
        """Each login asks for its own."""
        chunk = granted(access_token="a", expires_in=expires_in)
        async with WebServer([chunk]).served() as server:
            source = endpoint(server)
            assert ["a", "a"] == [await source.token(0.0), await source.token(0.0)]
        assert 2 == len(server.heads)

    async def test_an_endpoint_that_fails_for_a_while(self) -> None:
        """A token that is still good is used; one that has ended is not."""
        async with WebServer([granted(access_token="a", expires_in=100)]).served() as server:
            source = endpoint(server)
            await source.token(0.0)
            server.chunks = [answer(b"", "503 Later")]
            assert ["a", "a"] == [await source.token(one) for one in (80.0, 99.9)]
            with pytest.raises(LoginError, match="503"):
                await source.token(100.0)

    @pytest.mark.parametrize(
        ("chunk", "why"),
        [
            (answer(b'{"error":"invalid_client"}', "401 U"), "HTTP status 401, invalid_client"),
            (answer(f'{{"error":"{CANARY}"}}'.encode(), "400 B"), "HTTP status 400"),
            (answer(CANARY.encode(), "500 O"), "HTTP status 500"),
            (answer(b"", "302 F", "Location: /other\r\n"), "redirects are not followed"),
            (answer(CANARY.encode()), "has no bearer token"),
            (answer(b"[]"), "has no bearer token"),
            (granted(), "has no bearer token"),
            (granted(access_token=["a"]), "has no bearer token"),
            (granted(access_token=f"{CANARY} x"), "has no bearer token"),
            (granted(access_token=f"{CANARY}\x01host=a"), "has no bearer token"),
            (granted(access_token="x" * 40_000), "has no bearer token"),
            (granted(access_token="a", token_type="mac"), "has no bearer token"),
            (b"", "closed|no HTTP"),
        ],
        ids=range(13),
    )
    async def test_an_answer_without_a_token(
        self, chunk: bytes, why: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The error names the endpoint, and has neither the secret nor what the endpoint says."""
        caplog.set_level(logging.DEBUG)
        async with WebServer([chunk]).served() as server:
            error = await refusal(endpoint(server), broker())
        assert any(one in str(error) for one in why.split("|"))
        assert server.url("/token") in str(error)
        assert CANARY not in caplog.text
