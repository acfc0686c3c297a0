"""Which requests a connection may send before, during and after its login."""

from __future__ import annotations

import pytest

from kgw.errors import ErrorCode, KafkaError
from kgw.protocol.api_keys import ApiKey
from kgw.security.principal import Principal
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.exchange import Authenticated
from kgw.security.sasl.session_rules import RequestVerdict, SaslSession, session_lifetime_ms
from tests.security.sasl.logins import ALICE, BOB, NOW_MS

HANDLE = RequestVerdict.HANDLE
REFUSE = RequestVerdict.REFUSE
REFUSE_AND_CLOSE = RequestVerdict.REFUSE_AND_CLOSE
CLOSE = RequestVerdict.CLOSE
HANDSHAKE = ApiKey.SASL_HANDSHAKE
AUTHENTICATE = ApiKey.SASL_AUTHENTICATE
SCRAM = "SCRAM-SHA-256"
START_S = 50.0


def login_of(principal: Principal = ALICE, expires_ms: int | None = None) -> Authenticated:
    """Return a login that has succeeded."""
    return Authenticated(b"", principal, expires_ms, None)


def logged_in(max_reauth_ms: int, expires_ms: int | None = None) -> SaslSession:
    """Return the session of a client that has logged in at START_S."""
    session = SaslSession(max_reauth_ms)
    session.begin(SCRAM, START_S)
    session.finish(login_of(expires_ms=expires_ms), NOW_MS, START_S)
    return session


def verdicts(session: SaslSession, now_s: float) -> dict[ApiKey, RequestVerdict]:
    """Return the verdict on each request."""
    return {one: session.admit(one, now_s) for one in ApiKey}


def all_but(
    verdict: RequestVerdict, others: dict[ApiKey, RequestVerdict]
) -> dict[ApiKey, RequestVerdict]:
    """Return one verdict on all requests but some."""
    return dict.fromkeys(ApiKey, verdict) | others


def test_before_the_login_two_requests_are_handled() -> None:
    """Any other one closes the connection."""
    expected = all_but(CLOSE, {ApiKey.API_VERSIONS: HANDLE, HANDSHAKE: HANDLE})
    assert verdicts(SaslSession(0), START_S) == expected


def test_during_the_login_one_request_is_handled() -> None:
    """At the first login as at a later one, and also after the end of the session."""
    first = SaslSession(0)
    first.begin(SCRAM, START_S)
    again = logged_in(1000)
    again.begin(SCRAM, START_S + 0.5)
    expected = all_but(REFUSE_AND_CLOSE, {AUTHENTICATE: HANDLE})
    assert verdicts(first, START_S) == expected
    assert verdicts(again, START_S + 2) == expected


def test_after_the_login_all_requests_are_handled() -> None:
    """Without an end of the session there is no second login, as in Kafka."""
    expected = all_but(HANDLE, {HANDSHAKE: REFUSE, AUTHENTICATE: REFUSE})
    assert verdicts(logged_in(0), START_S + 1e9) == expected


def test_after_a_failed_login_no_request_is_handled() -> None:
    """The connection closes."""
    session = SaslSession(0)
    session.begin(SCRAM, START_S)
    session.end()
    assert verdicts(session, START_S) == all_but(CLOSE, {})


def test_a_request_after_the_end_closes() -> None:
    """Only a new login is handled."""
    session = logged_in(1000)
    assert verdicts(session, START_S + 0.999) == all_but(HANDLE, {AUTHENTICATE: REFUSE})
    assert verdicts(session, START_S + 1) == all_but(CLOSE, {HANDSHAKE: HANDLE})


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "lifetime_ms"),
    [
        (0, None, None),
        (5000, None, 5000),
        (0, NOW_MS + 3000, 3000),
        (5000, NOW_MS + 3000, 3000),
        (3000, NOW_MS + 5000, 3000),
        (-1, None, None),
        (0, NOW_MS - 1, 0),
        (5000, NOW_MS, 0),
    ],
)
def test_the_lifetime_is_the_lesser_limit(
    max_reauth_ms: int, expires_ms: int | None, lifetime_ms: int | None
) -> None:
    """Of the setting and the credential; None means no end."""
    assert session_lifetime_ms(max_reauth_ms, expires_ms, NOW_MS) == lifetime_ms


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "answered_ms"),
    [(0, None, 0), (5000, None, 5000), (0, NOW_MS + 3000, 3000), (5000, NOW_MS + 3000, 3000)],
)
def test_the_lifetime_is_answered_and_kept(
    max_reauth_ms: int, expires_ms: int | None, answered_ms: int
) -> None:
    """The first request at the end of the session closes."""
    session = SaslSession(max_reauth_ms)
    session.begin(SCRAM, START_S)
    login = login_of(expires_ms=expires_ms)._replace(token_id="token-1")
    assert session.finish(login, NOW_MS, START_S) == answered_ms
    assert (session.mechanism, session.principal, session.token_id) == (SCRAM, ALICE, "token-1")
    if answered_ms:
        end_s = START_S + answered_ms / 1000
        assert session.admit(ApiKey.FETCH, end_s - 0.001) == HANDLE
        assert session.admit(ApiKey.FETCH, end_s) == CLOSE


@pytest.mark.parametrize("expires_ms", [NOW_MS, NOW_MS - 1])
def test_an_expired_credential_opens_no_session(expires_ms: int) -> None:
    """A lifetime of 0 would mean that the session has no end."""
    session = SaslSession(0)
    session.begin(SCRAM, START_S)
    with pytest.raises(AuthenticationFailed) as caught:
        session.finish(login_of(expires_ms=expires_ms), NOW_MS, START_S)
    assert caught.value.reason == "the credential has expired"
    assert session.admit(ApiKey.FETCH, START_S) == CLOSE
    assert session.principal is None


def test_a_new_login_extends_the_session() -> None:
    """The new lifetime counts from the end of the new login."""
    session = logged_in(1000)
    session.begin(SCRAM, START_S + 0.9)
    session.finish(login_of(), NOW_MS, START_S + 1)
    assert session.admit(ApiKey.FETCH, START_S + 1.9) == HANDLE
    assert session.admit(ApiKey.FETCH, START_S + 2) == CLOSE


def test_a_new_login_keeps_the_mechanism() -> None:
    """Another one ends the session."""
    session = logged_in(1000)
    with pytest.raises(KafkaError) as caught:
        session.begin("PLAIN", START_S + 0.5)
    assert caught.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert session.admit(AUTHENTICATE, START_S + 0.5) == CLOSE


@pytest.mark.parametrize(
    "principal", [BOB, Principal("Group", "alice"), Principal("User", "Alice")]
)
def test_a_new_login_keeps_the_principal(principal: Principal) -> None:
    """Another one ends the session, also if it has logged in correctly."""
    session = logged_in(1000)
    session.begin(SCRAM, START_S + 0.5)
    with pytest.raises(AuthenticationFailed) as caught:
        session.finish(login_of(principal), NOW_MS, START_S + 0.5)
    assert caught.value.reason == "the principal has changed"
    assert session.principal == ALICE
    assert session.admit(ApiKey.FETCH, START_S + 0.5) == CLOSE


def test_a_connection_logs_in_again_once_a_second() -> None:
    """As in Kafka; the next handshake is refused, and closes after the end of the session."""
    session = logged_in(1200)
    session.begin(SCRAM, START_S + 0.1)
    session.finish(login_of(), NOW_MS, START_S + 0.2)
    assert session.admit(HANDSHAKE, START_S + 1.0) == REFUSE
    assert session.admit(HANDSHAKE, START_S + 1.1) == HANDLE
    short = logged_in(100)
    short.begin(SCRAM, START_S + 0.1)
    short.finish(login_of(), NOW_MS, START_S + 0.2)
    assert short.admit(HANDSHAKE, START_S + 0.5) == CLOSE


def test_a_login_is_opened_before_it_is_finished() -> None:
    """The order is the caller's; a wrong one is a bug."""
    session = SaslSession(0)
    with pytest.raises(RuntimeError):
        session.finish(login_of(), NOW_MS, START_S)
    session.begin(SCRAM, START_S)
    with pytest.raises(RuntimeError):
        session.begin(SCRAM, START_S)
    session.end()
    with pytest.raises(RuntimeError):
        session.begin(SCRAM, START_S)
