"""The key set of a server: fetched at the start, again by time, and again for an unknown key."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest

from kgw.logs import JsonFormatter
from kgw.metrics import Metrics
from kgw.security.oauth.errors import KeySetError
from kgw.security.oauth.refresh_rule import RefreshRule
from kgw.security.oauth.signed_tokens import TokenHeader
from kgw.security.oauth.sources import FileSource
from kgw.security.oauth.trust import TokenTrust
from kgw.testing.clock import ManualClock
from tests.security.oauth.issuing import RULES, jwk, key_set
from tests.server.fakes import settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ONE, TWO = key_set(jwk("ES256", "one")), key_set(jwk("ES256", "two", which=2))
HEADERS = {name: TokenHeader("ES256", name) for name in ("one", "two", "three")}


class Source:
    """A key set that a test exchanges. With `hold` a fetch waits for it."""

    def __init__(self) -> None:
        self.content: bytes | Exception = ONE
        self.fetches = 0
        self.hold: asyncio.Event | None = None

    def __str__(self) -> str:
        return "https://issuer.example/keys"

    async def fetch(self) -> bytes:
        self.fetches += 1
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


class Trusting:
    """A trust with a source and a clock of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.source = Source()
        self.metrics = Metrics()
        self.trust = TokenTrust(self.source, RULES, RefreshRule(3600.0, 1.0, 4.0), self.clock)

    @property
    def known(self) -> list[str]:
        """The ids of keys in use."""
        return [name for name, header in HEADERS.items() if self.trust.find(header) is not None]

    async def fetched(self, fetches: int) -> None:
        """Wait until so many fetches are over."""
        await until(lambda: sum(self.metrics.key_set_fetches.values()) >= fetches)
        await settle()
        assert self.source.fetches == fetches + 1

    async def ask(self, name: str) -> bool:
        """Ask as a login with an unknown key does; return whether the key was found."""
        return await self.trust.find_again(HEADERS[name]) is not None


def written(record: logging.LogRecord) -> dict[str, str]:
    """Return a line of the log as JSON."""
    line: dict[str, str] = json.loads(JsonFormatter().format(record))
    return line


@pytest.fixture
async def trusting() -> AsyncIterator[Trusting]:
    """A trust that has fetched the key set once, and goes on."""
    one = Trusting()
    await one.trust.load()
    one.trust.start(one.metrics)
    await settle()
    yield one
    await one.trust.aclose()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (KeySetError("connection refused"), "connection refused"),
        (b"<html>", "no JSON object"),
        (key_set({"kty": "oct", "k": "AAAA"}), "no key that can check a token"),
        (RuntimeError("a part of a key"), "RuntimeError"),
    ],
)
async def test_the_first_fetch_must_succeed(content: bytes | Exception, why: str) -> None:
    """There is no server without keys."""
    one = Trusting()
    one.source.content = content
    with pytest.raises(KeySetError, match=f"https://issuer.example/keys: .*{why}") as caught:
        await one.trust.load()
    assert "a part of a key" not in str(caught.value)
    assert 1 == one.source.fetches
    assert [] == one.known


async def test_the_key_set_is_fetched_again_by_time(
    trusting: Trusting, caplog: pytest.LogCaptureFixture
) -> None:
    """A removed key ends, and a new one counts, an hour later at most."""
    caplog.set_level(logging.INFO)
    trusting.source.content = TWO
    trusting.clock.advance(3599.0)
    await settle(20)
    assert (["one"], 1) == (trusting.known, trusting.source.fetches)
    trusting.clock.advance(1.0)
    await trusting.fetched(1)
    assert ["two"] == trusting.known
    assert ["the key set has changed"] == [one.message for one in caplog.records]
    trusting.clock.advance(3600.0)
    await trusting.fetched(2)
    assert {"done": 2} == trusting.metrics.key_set_fetches


async def test_old_keys_stay_when_a_fetch_fails(
    trusting: Trusting, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again after pauses that grow; the log has each reason once, and the end."""
    caplog.set_level(logging.INFO)
    trusting.source.content = KeySetError("HTTP status 503")
    trusting.clock.advance(3600.0)
    await trusting.fetched(1)
    for at, pause_s in enumerate((1.0, 2.0, 4.0, 4.0)):
        trusting.clock.advance(pause_s - 0.001)
        await settle(20)
        trusting.clock.advance(0.001)
        await trusting.fetched(at + 2)
        assert ["one"] == trusting.known
    trusting.source.content = b"<html>"
    trusting.clock.advance(4.0)
    await trusting.fetched(6)
    trusting.source.content = TWO
    trusting.clock.advance(4.0)
    await trusting.fetched(7)
    assert ["two"] == trusting.known
    assert {"failed": 6, "done": 1} == trusting.metrics.key_set_fetches
    lines = [one.message for one in caplog.records]
    assert 2 == sum("the old keys stay in use" in one for one in lines)
    assert ["HTTP status 503", "it is no JSON object, or has a name twice"] == [
        written(one)["why"] for one in caplog.records if one.levelno == logging.ERROR
    ]
    assert "the key set is fetched again" in lines


async def test_an_unknown_key_is_looked_for_at_once(trusting: Trusting) -> None:
    """At most every ten seconds, and not for a key that is known or has no id."""
    trusting.source.content = TWO
    assert not await trusting.ask("one")
    assert await trusting.trust.find_again(TokenHeader("ES256", None)) is None
    assert await trusting.trust.find_again(TokenHeader("ES384", "one")) is None
    assert not await trusting.ask("two")
    assert 1 == trusting.source.fetches
    trusting.clock.advance(10.0)
    assert await trusting.ask("two")
    assert 2 == trusting.source.fetches
    for _ in range(50):
        assert not await trusting.ask("three")
    assert 2 == trusting.source.fetches
    trusting.clock.advance(10.0)
    assert not await trusting.ask("three")
    assert 3 == trusting.source.fetches


async def test_logins_share_a_fetch(trusting: Trusting) -> None:
    """A client that goes away does not end the waits of others."""
    trusting.source.content = TWO
    trusting.source.hold = asyncio.Event()
    trusting.clock.advance(10.0)
    waiting = [asyncio.ensure_future(trusting.ask("two")) for _ in range(5)]
    await until(lambda: trusting.source.fetches == 2)
    waiting[0].cancel()
    await settle()
    trusting.source.hold.set()
    assert [True] * 4 == await asyncio.gather(*waiting[1:])
    assert waiting[0].cancelled()
    assert 2 == trusting.source.fetches


async def test_an_operator_can_ask(trusting: Trusting) -> None:
    """As by SIGHUP."""
    trusting.source.content = TWO
    trusting.trust.fetch_now()
    await trusting.fetched(1)
    assert ["two"] == trusting.known


async def test_keys_that_are_not_used_are_told_once(
    trusting: Trusting, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise an operator would not find out why a token is denied."""
    trusting.source.content = key_set(jwk("ES256", "one"), jwk("ES256", "two", d="AAAA"))
    for fetches in (1, 2):
        trusting.trust.fetch_now()
        await trusting.fetched(fetches)
    assert ["a key of the key set is not used"] == [one.message for one in caplog.records]
    assert "private part" in written(caplog.records[0])["why"]


async def test_a_close_ends_a_fetch() -> None:
    """A server that does not answer does not delay a stop."""
    one = Trusting()
    await one.trust.load()
    one.trust.start(one.metrics)
    one.source.hold = asyncio.Event()
    one.trust.fetch_now()
    await until(lambda: one.source.fetches == 2)
    await one.trust.aclose()
    assert {} == one.metrics.key_set_fetches


class TestFiles:
    async def test_a_file_is_read_each_time(self, tmp_path: Path) -> None:
        """It may be replaced."""
        file = tmp_path / "keys.json"
        source = FileSource(str(file))
        for content in (ONE, TWO):
            file.write_bytes(content)
            assert content == await source.fetch()
        assert str(file) == str(source)

    async def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        """The reason is one line."""
        (tmp_path / "large").write_bytes(b" " * ((1 << 19) + 1))
        for name, why in (("missing", "no such file"), (".", "directory"), ("large", "more than")):
            with pytest.raises(KeySetError, match=why):
                await FileSource(str(tmp_path / name)).fetch()
