"""The HTTP client for key sets and tokens, against servers of every kind."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from kgw.config.web_url import parse_web_url
from kgw.security.oauth.errors import KeySetError
from kgw.security.oauth.http import LIMIT_BYTES, HttpAnswer, HttpError, ask
from kgw.security.oauth.sources import UrlSource
from kgw.testing.certificates import CertificateAuthority
from tests.security.oauth.web_servers import WebServer, answer

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-8120"
BODY = b'{"keys": []}'


async def fetched(server: WebServer, limit_s: float = 5.0, path: str = "/keys") -> HttpAnswer:
    """Fetch the answer of a server that is served."""
    return await ask(parse_web_url(server.url(path)), limit_s=limit_s)


async def refusal(*chunks: bytes, hangs: bool = False, limit_s: float = 5.0) -> str:
    """Return why there is no answer."""
    async with WebServer(chunks, hangs=hangs).served() as server:
        with pytest.raises(HttpError) as caught:
            await fetched(server, limit_s, f"/keys?secret={CANARY}")
    assert CANARY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "chunks",
    [
        [answer(BODY)],
        [bytes([one]) for one in answer(BODY)],
        [b"HTTP/1.1 100 Continue\r\n\r\n", answer(BODY)],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"4\r\n" + BODY[:4] + b"\r\n",
            b"8\r\n" + BODY[4:] + b"\r\n0\r\n\r\n",
        ],
        [b"HTTP/1.0 200 OK\r\n\r\n" + BODY],
    ],
    ids=["whole", "by the byte", "100 first", "chunked", "until the end"],
)
async def test_an_answer(chunks: list[bytes]) -> None:
    """In every form that HTTP/1.1 has for its length."""
    async with WebServer(chunks).served() as server:
        assert HttpAnswer(200, BODY) == await fetched(server, path="/a/b?c=d")
    (head,) = server.heads
    assert head.startswith("GET /a/b?c=d HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{server.port}\r\n" in head.lower()
    assert "accept-encoding: identity" in head.lower()


async def test_a_form() -> None:
    """It is posted, with the given headers."""
    async with WebServer([answer(b"{}", "401 Unauthorized")]).served() as server:
        found = await ask(
            parse_web_url(server.url("/token")),
            headers=(("Authorization", "Basic eA=="),),
            form="a=b",
        )
    assert HttpAnswer(401, b"{}") == found
    (head,) = server.heads
    assert head.startswith("POST /token HTTP/1.1\r\n")
    for one in ("authorization: basic ea==", "content-type: application/x-www-form-urlencoded"):
        assert one in head.lower()
    assert [b"a=b"] == server.bodies


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 T", "308 P"])
async def test_redirects_are_not_followed(status: str) -> None:
    """Otherwise whoever can write a redirect chooses the server of the keys."""
    async with WebServer([answer(BODY)]).served() as other:
        moved = answer(b"", status, f"Location: {other.url()}\r\n")
        assert "redirects are not followed" in await refusal(moved)
    assert [] == other.heads


async def test_an_answer_is_not_too_large() -> None:
    """Whether its length is told before or not; a body that is just small enough is taken."""
    head = b"HTTP/1.0 200 OK\r\n\r\n"
    chunk = b"x" * (LIMIT_BYTES // 4)
    assert "more than" in await refusal(head, *[chunk] * 5, hangs=True)
    assert "more than" in await refusal(answer(b"x" * (LIMIT_BYTES + 1)))
    assert "no HTTP" in await refusal(b"HTTP/1.1 200 OK\r\nPad: " + b"x" * 100_000, hangs=True)
    async with WebServer([answer(b"x" * LIMIT_BYTES)]).served() as server:
        assert LIMIT_BYTES == len((await fetched(server)).body)


@pytest.mark.parametrize(
    "chunks",
    [[], [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123"], [b"HTTP/1.1 200 OK\r\n"]],
    ids=["nothing", "half a body", "half a head"],
)
async def test_a_server_that_hangs(chunks: list[bytes]) -> None:
    """The limit is for the whole request."""
    assert "no answer within 0.05 s" == await refusal(*chunks, hangs=True, limit_s=0.05)


async def test_a_server_that_sends_a_byte_at_a_time() -> None:
    """A byte now and then does not extend the limit."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b"X")
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(HttpError, match="no answer within"):
            await ask(parse_web_url(f"http://127.0.0.1:{port}/"), limit_s=0.05)


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "no HTTP"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123"], "incomplete"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"], "no HTTP"),
        ([], "no HTTP, or incomplete|closed"),
    ],
)
async def test_an_answer_that_is_none(chunks: list[bytes], why: str) -> None:
    """Half an answer is not taken for a whole one."""
    found = await refusal(*chunks)
    assert any(one in found for one in why.split("|"))


async def test_nobody_listens() -> None:
    """The reason is in words."""
    async with WebServer().served() as server:
        url = parse_web_url(server.url())
    with pytest.raises(HttpError, match="connection refused"):
        await ask(url)


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "204 No Content"])
async def test_a_key_set_needs_the_status_200(status: str) -> None:
    """The page of an error is no key set."""
    async with WebServer([answer(b"", status)]).served() as server:
        with pytest.raises(KeySetError, match=f"HTTP status {status[:3]}"):
            await UrlSource(parse_web_url(server.url())).fetch()


class TestTls:
    """The certificate of the server is checked."""

    AUTHORITY = CertificateAuthority("kgw test", time.time())

    def _context(self, folder: Path, *names: str) -> ssl.SSLContext:
        file = folder / "server.pem"
        file.write_text(self.AUTHORITY.issue_server(list(names)).keystore_pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    async def test_a_trusted_server(self, tmp_path: Path) -> None:
        """Its certificate has the name of the URL, and is from an authority that is trusted."""
        trusted = ssl.create_default_context(cadata=self.AUTHORITY.truststore_pem)
        server = WebServer([answer(BODY)])
        async with server.served(self._context(tmp_path, "localhost")):
            url = parse_web_url(server.url(scheme="https", host="localhost"))
            assert BODY == await UrlSource(url, trusted).fetch()

    async def test_another_name(self, tmp_path: Path) -> None:
        """A certificate for another server is no proof."""
        trusted = ssl.create_default_context(cadata=self.AUTHORITY.truststore_pem)
        server = WebServer([answer(BODY)])
        async with server.served(self._context(tmp_path, "other.example")):
            url = parse_web_url(server.url(scheme="https", host="localhost"))
            with pytest.raises(KeySetError, match="mismatch"):
                await UrlSource(url, trusted).fetch()
        assert [] == server.heads

    async def test_another_authority(self, tmp_path: Path) -> None:
        """By default the authorities of the system are trusted, and no other."""
        server = WebServer([answer(BODY)])
        async with server.served(self._context(tmp_path, "localhost")):
            url = parse_web_url(server.url(scheme="https", host="localhost"))
            with pytest.raises(KeySetError, match=r"certificate|signed"):
                await UrlSource(url).fetch()
        assert [] == server.heads
