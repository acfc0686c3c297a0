"""Campaign A3: no bad token logs anybody in, and a checker that takes one is found."""

from __future__ import annotations

import inspect
import logging
import socket
from typing import TYPE_CHECKING

import pytest

from kgw.security.oauth.signed_tokens import read_token
from kgw.security.sasl.exchange import Authenticated, Denied, Step, Wait, Work, open_exchange
from kgw.security.sasl.oauthbearer import parse_oauthbearer
from tests.security.oauth.bad_tokens import BAD_TOKENS, BROKEN, GOOD, accepted
from tests.security.oauth.issuing import (
    ALGORITHMS,
    AUDIENCE,
    NOW_MS,
    NOW_S,
    SKEW_S,
    FixedTrust,
    claims,
    message,
    token,
)
from tests.security.sasl.logins import FAKES, Logins, always, numbered_bytes

if TYPE_CHECKING:
    from collections.abc import Coroutine

TRUST = FixedTrust()


def drive(data: bytes, trust: FixedTrust = TRUST) -> Step:
    """Do with the only message of a client what a connection does."""
    exchange = open_exchange(
        "OAUTHBEARER", ["OAUTHBEARER"], Logins(), FAKES, numbered_bytes, always, trust
    )
    step = exchange.respond(data, NOW_MS)
    while isinstance(step, Work | Wait):
        step = step.run() if isinstance(step, Work) else _result(step.run())  # type: ignore[arg-type]
    return step


def _result(waiting: Coroutine[None, None, Step]) -> Step:
    """Return the result of a coroutine that waits for nothing."""
    assert inspect.iscoroutine(waiting)
    try:
        waiting.send(None)
    except StopIteration as end:
        step: Step = end.value
        return step
    raise AssertionError("the key set is fetched")


def kgws(text: str) -> str:
    """Check a token as a login does."""
    step = drive(message(text))
    assert isinstance(step, Authenticated)
    return step.principal.name


def test_no_bad_token_is_accepted() -> None:
    """None of them, and at least the 60 of the campaign."""
    assert 60 <= len(BAD_TOKENS)
    assert set() == accepted(kgws)


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_bad_token_is_denied_in_one_way(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client learns nothing, the reason has no part of the token, and nothing is logged."""
    caplog.set_level(logging.DEBUG)
    text = BAD_TOKENS[name]
    step = drive(message(text))
    assert isinstance(step, Denied)
    assert b'{"status":"invalid_token"}' == step.data
    assert [] == caplog.records
    failure = step.failure
    said = f"{failure!r} {failure} {failure.reason} {failure.__context__!r} {failure.__cause__!r}"
    for part in filter(lambda one: len(one) > 8, text.split(".")):
        assert part not in said
    assert failure.user is None or (len(failure.user) <= 256 and failure.user.isprintable())


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_checker_is_found(name: str) -> None:
    """The campaign names a token that the checker should have refused; the good one is right."""
    checker, expected = BROKEN[name]
    assert expected in accepted(checker)


@pytest.mark.parametrize("name", [one for one in BROKEN if one.startswith("checks")])
def test_a_broken_checker_takes_the_good_token(name: str) -> None:
    """It is broken in one way, and finds no fault with the token that the others are made from."""
    assert "alice" == BROKEN[name][0](GOOD)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_good_token_is_accepted(algorithm: str) -> None:
    """In each algorithm, with the key id or without, whatever the type is called."""
    for header in ({}, {"kid": None}, {"typ": "JWT"}, {"typ": None}, {"cty": "json"}):
        assert "alice" == kgws(token(algorithm, header=header))


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": ["other-service", AUDIENCE]},
        {"aud": ["kafka-2"]},
        {"scope": ["read", "write"]},
        {"scope": None},
        {"scope": ""},
        {"iat": None, "nbf": None, "jti": None},
        {"nbf": NOW_S + SKEW_S, "iat": NOW_S + SKEW_S},
        {"exp": NOW_S + 0.5},
        {"exp": NOW_S + 1},
        {"realm_access": {"roles": ["a", "b"]}, "other": [None, True, 1.5]},
    ],
)
def test_what_a_good_token_may_have(changed: dict[str, object]) -> None:
    """Several audiences, scopes in either form, clocks that differ, claims for others."""
    assert "alice" == kgws(token(payload=claims(**changed)))


@pytest.mark.parametrize(
    "subject", ["auth0|61", "a@b.example", "system:serviceaccount:ns:a", "Łucja"]
)
def test_subjects_of_other_systems(subject: str) -> None:
    """A subject need not be a word."""
    assert subject == kgws(token(payload=claims(sub=subject)))


def test_headers_that_name_a_key_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some issuers write `jku`; the token is good by the operator's key, and nothing is fetched."""
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: asked.append(a))
    trust = FixedTrust()
    for header in ({"jku": "https://attacker.example/keys"}, {"x5u": "https://a.example"}):
        step = drive(message(token(header=header)), trust)
        assert isinstance(step, Authenticated)
    assert ([], []) == (asked, trust.asked)


def test_every_other_letter_is_noticed() -> None:
    """A good token with one letter exchanged, at each place, is another token."""
    taken = []
    for at, letter in enumerate(GOOD):
        other = "A" if letter != "A" else "B"
        step = drive(message(GOOD[:at] + other + GOOD[at + 1 :]))
        if not isinstance(step, Denied):
            taken.append(at)
    assert [] == taken


def test_the_last_letter_is_not_ambiguous() -> None:
    """The bits of the last letter that belong to no byte must be zero."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    taken = [one for one in letters if isinstance(drive(message(GOOD[:-1] + one)), Authenticated)]
    assert [GOOD[-1]] == taken


def test_the_token_is_in_no_text() -> None:
    """Neither the token nor the parsed message shows it."""
    shown = f"{read_token(GOOD)!r} {parse_oauthbearer(message(GOOD))!r}"
    assert all(part not in shown for part in GOOD.split("."))
