"""The messages and the steps of a login with OAUTHBEARER."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode, KafkaError
from kgw.security.principal import Principal
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import (
    Authenticated,
    Denied,
    Exchange,
    Wait,
    Work,
    offered_mechanisms,
    open_exchange,
)
from kgw.security.sasl.oauthbearer import INVALID_TOKEN, parse_oauthbearer
from tests.security.oauth.issuing import HOUR_S, NOW_MS, FixedTrust, jwk, key_set, message, token
from tests.security.sasl.logins import FAKES, Logins, always, numbered_bytes

OFFERED = ["OAUTHBEARER"]
TRUST = FixedTrust()


def opened(trust: FixedTrust = TRUST) -> Exchange:
    """Open a login."""
    return open_exchange("OAUTHBEARER", OFFERED, Logins(), FAKES, numbered_bytes, always, trust)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", ("a.b.c", "")),
        (b"n,,\x01auth=bearer  a~b+c/d-e_f==\x01\x01", ("a~b+c/d-e_f==", "")),
        (b"n,a=alice,\x01auth=BEARER x\x01host=a.example\x01port=9093\x01\x01", ("x", "alice")),
        (b"n,a=a=2Cb=3Dc,\x01host=h\x01auth=Bearer x\x01\x01", ("x", "a,b=c")),
        ("n,a=Łucja,\x01auth=Bearer x\x01\x01".encode(), ("x", "Łucja")),
    ],
)
def test_messages_of_clients(data: bytes, expected: tuple[str, str]) -> None:
    """The token, and the identity that the client asks for; extensions are ignored."""
    parsed = parse_oauthbearer(data)
    assert expected == (parsed.token, parsed.authorization_id)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01host\x01\x01",
        b"n,,\x01auth=Bearer x\x01host=\x01\x01",
        b"n,,\x01auth=Bearer x\x01ho-st=a\x01\x01",
        b"n,,\x01auth=Bearer x\x01host=a\x00b\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01host=a\x01host=b\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\nb\x01\x01",
        b"n,,\x01auth=Bearerx\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01Auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,alice,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,a=a=2c,\x01auth=Bearer x\x01\x01",
        b"n,a=a\nb,\x01auth=Bearer x\x01\x01",
        b"n,a=" + b"a" * 1_025 + b",\x01auth=Bearer x\x01\x01",
        b"n,,,\x01auth=Bearer x\x01\x01",
        b"n\x01auth=Bearer x\x01\x01",
        b"\0alice\0password",
    ],
)
def test_other_messages_are_refused(data: bytes) -> None:
    """At once, as in Kafka: a client of another protocol understands no denial."""
    exchange = opened()
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.respond(data, NOW_MS)
    assert not caught.value.is_logged
    with pytest.raises(AuthenticationFailed):
        exchange.respond(message(token()), NOW_MS)


@given(st.binary(max_size=80) | st.text(alphabet="n,a=\x01authBer xhost.", max_size=60))
def test_any_bytes_are_parsed_or_refused(data: bytes | str) -> None:
    """With no other exception."""
    given_bytes = data.encode() if isinstance(data, str) else data
    with suppress(AuthenticationFailed):
        assert parse_oauthbearer(given_bytes).token.encode() in given_bytes


def finish(step: object) -> object:
    """Do the work of a step."""
    assert isinstance(step, Work)
    return step.run()


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_a_user_logs_in(authorization_id: str) -> None:
    """The signature is checked in a thread, and the session ends with the token."""
    exchange = opened()
    step = exchange.respond(message(token(), authorization_id), NOW_MS)
    expected = Authenticated(b"", Principal("User", "alice"), NOW_MS + HOUR_S * 1000, None)
    assert expected == finish(step)
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.respond(message(token()), NOW_MS)
    assert not caught.value.is_logged


@pytest.mark.parametrize("authorization_id", ["bob", "Alice", "alice,", "User:alice"])
def test_another_identity_is_denied(authorization_id: str) -> None:
    """Whoever has a token is its subject."""
    asked = authorization_id.replace(",", "=2C")
    step = finish(opened().respond(message(token(), asked), NOW_MS))
    assert isinstance(step, Denied)
    assert ("alice", "another identity") == (step.failure.user, step.failure.reason[-16:])


@pytest.mark.parametrize(
    "answer", [b"\x01", b"", message(token())], ids=["0x01", "nothing", "a good token"]
)
def test_after_a_denial_there_is_only_the_error(answer: bytes) -> None:
    """The client answers it with 0x01; a good token comes too late. The failure is logged once."""
    exchange = opened()
    denied = exchange.respond(message("a.b.c"), NOW_MS)
    assert isinstance(denied, Denied)
    assert (INVALID_TOKEN, False) == (denied.data, denied.failure.is_logged)
    for _ in range(2):
        with pytest.raises(AuthenticationFailed) as caught:
            exchange.respond(answer, NOW_MS)
        assert caught.value.is_logged


async def test_an_unknown_key_is_looked_for() -> None:
    """The key set is asked again, and then the signature is checked, too."""
    trust = FixedTrust(key_set(jwk("ES256", "other")))
    step = opened(trust).respond(message(token()), NOW_MS)
    assert isinstance(step, Wait)
    denied = await step.run()
    assert isinstance(denied, Denied)
    assert ["key-ES256"] == [one.key_id for one in trust.asked]

    exchange = opened(trust)
    step = exchange.respond(message(token(which=2)), NOW_MS)
    assert isinstance(step, Wait)
    trust.keys = TRUST.keys
    assert isinstance(finish(await step.run()), Denied)

    step = opened(FixedTrust(key_set(jwk("ES256", "other")))).respond(message(token()), NOW_MS)
    assert isinstance(step, Wait)


def test_the_mechanism_needs_keys() -> None:
    """A server without them does not open a login, even if it offers the mechanism by mistake."""
    with pytest.raises(KafkaError) as caught:
        open_exchange("OAUTHBEARER", OFFERED, Logins(), FAKES, numbered_bytes, always)
    assert caught.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize(
    ("encrypted", "allowed", "offered"),
    [(True, False, True), (True, True, True), (False, True, True), (False, False, False)],
)
def test_tokens_are_not_shown_to_the_network(encrypted: bool, allowed: bool, offered: bool) -> None:
    """Without TLS the mechanism is offered only if the operator allows it; PLAIN's word is none."""
    found = offered_mechanisms(
        OFFERED, encrypted=encrypted, plain_without_tls=True, tokens_without_tls=allowed
    )
    assert (OFFERED if offered else []) == found
