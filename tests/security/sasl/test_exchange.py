"""The steps of a login, as a connection drives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode, KafkaError
from kgw.security.sasl.errors import AuthenticationFailed, TooManyFailed
from kgw.security.sasl.exchange import (
    Authenticated,
    Challenge,
    Exchange,
    Step,
    Work,
    offered_mechanisms,
    open_exchange,
)
from kgw.security.sasl.plain import PLAIN
from kgw.security.sasl.scram import ScramCredential, ScramMechanism
from kgw.security.sasl.scram_messages import encode_base64
from tests.security.sasl.logins import (
    ALICE,
    DAY_MS,
    FAKES,
    MECHANISMS,
    NAMES,
    NOW_MS,
    PASSWORD,
    RULES,
    TOKEN,
    Calls,
    Logins,
    always,
    credential_of,
    numbered_bytes,
)
from tests.security.sasl.scram_client import ScramClient

if TYPE_CHECKING:
    from collections.abc import Callable

OFFERED = ["PLAIN", *NAMES]
TOKEN_PASSWORD = encode_base64(RULES.hmac("token-1"))
TOKEN_BARE = "n=token-1,r=fyko+d2lbbFgONRv9qkxdawL,tokenauth=true"


def open_one(
    mechanism: str, logins: Logins | None = None, may_try: Callable[[str], bool] = always
) -> Exchange:
    """Open a login with a mechanism that is offered."""
    return open_exchange(mechanism, OFFERED, logins or Logins(), FAKES, numbered_bytes, may_try)


def drive(exchange: Exchange, message: bytes, now_ms: int = NOW_MS) -> Step:
    """Do what a connection does."""
    step = exchange.respond(message, now_ms)
    while isinstance(step, Work):
        step = step.then(step.run())
    return step


def challenged(exchange: Exchange, client: ScramClient, now_ms: int = NOW_MS) -> bytes:
    """Send the first message and return the final one."""
    step = drive(exchange, client.first(), now_ms)
    assert isinstance(step, Challenge)
    return client.final(step.data)


@pytest.mark.parametrize("name", NAMES)
def test_a_user_logs_in_with_scram(name: str) -> None:
    """The principal is the user, and the session has no end by itself."""
    exchange = open_one(name)
    client = ScramClient(name, PASSWORD)
    step = drive(exchange, challenged(exchange, client))
    assert isinstance(step, Authenticated)
    assert client.accepts(step.data)
    assert (step.principal, step.expires_ms, step.token_id) == (ALICE, None, None)
    assert exchange.mechanism == name


@pytest.mark.parametrize("name", NAMES)
def test_a_token_logs_in_its_owner(name: str) -> None:
    """Until it expires; the password is the HMAC in base64."""
    exchange = open_one(name)
    client = token_client(name)
    step = drive(exchange, challenged(exchange, client))
    assert isinstance(step, Authenticated)
    assert client.accepts(step.data)
    assert (step.principal, step.expires_ms, step.token_id) == (ALICE, NOW_MS + DAY_MS, "token-1")


def token_client(name: str = "SCRAM-SHA-256", password: str = TOKEN_PASSWORD) -> ScramClient:
    """Return a client that logs in with the token."""
    return ScramClient(name, password, bare=TOKEN_BARE)


def token_refusal(first_ms: int, final_ms: int, *, removed: bool = False) -> AuthenticationFailed:
    """Log in with the right HMAC at two times; return the refusal."""
    logins = Logins()
    exchange = open_one("SCRAM-SHA-256", logins)
    final = challenged(exchange, token_client(), first_ms)
    if removed:
        logins.tokens.clear()
    with pytest.raises(AuthenticationFailed) as caught:
        drive(exchange, final, final_ms)
    return caught.value


def test_an_expired_token_is_an_unknown_one() -> None:
    """The right HMAC of a token does not outlive it."""
    late_ms = TOKEN.expiry_timestamp_ms + 1
    assert token_refusal(late_ms, late_ms).reason == "the user or the token is unknown"


@pytest.mark.parametrize("removed", [False, True])
def test_a_token_that_ends_during_the_login_is_refused(removed: bool) -> None:
    """It is looked up when the proof comes."""
    late_ms = NOW_MS if removed else TOKEN.expiry_timestamp_ms + 1
    error = token_refusal(NOW_MS, late_ms, removed=removed)
    assert error.reason == "the user or the token is unknown"


def test_a_token_that_is_removed_while_its_password_is_hashed() -> None:
    """It is looked up again when the proof is right."""
    logins = Logins()
    exchange = open_one("SCRAM-SHA-256", logins)
    work = exchange.respond(challenged(exchange, token_client()), NOW_MS)
    assert isinstance(work, Work)
    made = work.run()
    logins.tokens.clear()
    with pytest.raises(AuthenticationFailed) as caught:
        work.then(made)
    assert caught.value.reason == "the token was removed or has expired during the login"


@pytest.mark.parametrize("name", NAMES)
def test_the_password_of_a_token_is_hashed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the work, not in the loop; the next login with the token hashes nothing."""
    logins = Logins()
    finals = []
    for _ in range(2):
        exchange = open_one(name, logins)
        finals.append((exchange, challenged(exchange, token_client(name))))
    calls = Calls(monkeypatch)
    (exchange, final), (next_exchange, next_final) = finals
    work = exchange.respond(final, NOW_MS)
    assert isinstance(work, Work)
    assert calls.take()["pbkdf2_hmac"] == 0
    made = work.run()
    assert calls.take()["pbkdf2_hmac"] == 1
    assert isinstance(work.then(made), Authenticated)
    assert isinstance(next_exchange.respond(next_final, NOW_MS), Authenticated)
    assert calls.take()["pbkdf2_hmac"] == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_wrong_hmac_is_refused(is_first: bool) -> None:
    """At the first login with the token, and at later ones."""
    logins = Logins()
    if not is_first:
        exchange = open_one("SCRAM-SHA-256", logins)
        drive(exchange, challenged(exchange, token_client()))
    exchange = open_one("SCRAM-SHA-256", logins)
    final = challenged(exchange, token_client(password=encode_base64(RULES.hmac("token-2"))))
    with pytest.raises(AuthenticationFailed) as caught:
        drive(exchange, final)
    assert caught.value.reason == "the proof is wrong"


@pytest.mark.parametrize("name", NAMES)
def test_the_challenge_does_not_tell_whether_a_token_exists(name: str) -> None:
    """Known or not, also after its first login, a token has one salt and 4096 iterations."""
    logins = Logins()
    challenges = []
    for tokens in ({}, {"token-1": TOKEN}, {"token-1": TOKEN}):
        logins.tokens = dict(tokens)
        exchange = open_one(name, logins)
        client = token_client(name)
        step = drive(exchange, client.first())
        assert isinstance(step, Challenge)
        challenges.append(step.data)
        if tokens:
            drive(exchange, client.final(step.data))
    assert len(set(challenges)) == 1
    assert challenges[0].endswith(b",i=4096")


def test_nothing_is_taken_while_the_password_of_a_token_is_hashed() -> None:
    """The thread has the exchange to itself."""
    exchange = open_one("SCRAM-SHA-256")
    final = challenged(exchange, token_client())
    work = exchange.respond(final, NOW_MS)
    assert isinstance(work, Work)
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.respond(final, NOW_MS)
    assert caught.value.reason == "the client sends a message before the last one is answered"


def test_a_token_is_no_user_and_a_user_no_token() -> None:
    """The name `alice` with `tokenauth`, and `token-1` without, are both unknown."""
    for bare, password in [
        ("n=alice,r=abc,tokenauth=true", PASSWORD),
        ("n=token-1,r=abc", TOKEN_PASSWORD),
    ]:
        exchange = open_one("SCRAM-SHA-256")
        final = challenged(exchange, ScramClient("SCRAM-SHA-256", password, bare=bare))
        with pytest.raises(AuthenticationFailed) as caught:
            drive(exchange, final)
        assert caught.value.reason == "the user or the token is unknown"


@pytest.mark.parametrize("user", ["alice", "sha256", "sha512"])
def test_a_user_logs_in_with_plain(user: str) -> None:
    """Whichever SCRAM credentials the user has; the first message says all."""
    exchange = open_one("PLAIN")
    step = drive(exchange, f"\0{user}\0{PASSWORD}".encode())
    assert isinstance(step, Authenticated)
    assert exchange.mechanism == "PLAIN"
    assert (step.data, step.principal.name, step.expires_ms, step.token_id) == (
        b"",
        user,
        None,
        None,
    )


class EveryUser(Logins):
    """Everybody has a credential, also a user who is called `*`."""

    def user_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return credential_of(mechanism)


@pytest.mark.parametrize("name", OFFERED)
def test_no_user_is_called_as_everybody(name: str) -> None:
    """In access rules `User:*` means every principal: the right password does not help."""
    exchange = open_one(name, EveryUser())
    message = f"\0*\0{PASSWORD}".encode()
    if name != PLAIN:
        client = ScramClient(name, PASSWORD, bare="n=*,r=fyko+d2lbbFgONRv9qkxdawL")
        message = challenged(exchange, client)
    with pytest.raises(AuthenticationFailed) as caught:
        drive(exchange, message)
    assert ("a user cannot be called *", "*") == (caught.value.reason, caught.value.user)


def test_plain_hashes_in_the_work_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop does not wait for it."""
    credential_of(ScramMechanism.SHA_256), credential_of(ScramMechanism.SHA_512)
    calls = Calls(monkeypatch)
    step = open_one("PLAIN").respond(f"\0alice\0{PASSWORD}".encode(), NOW_MS)
    assert isinstance(step, Work)
    assert calls.take()["pbkdf2_hmac"] == 0
    assert PASSWORD not in repr(step)
    step.run()
    assert calls.take()["pbkdf2_hmac"] == 2


def test_plain_costs_the_same_for_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known or not, with one credential or two, and whether the password is right or wrong."""
    credential_of(ScramMechanism.SHA_256), credential_of(ScramMechanism.SHA_512)
    calls = Calls(monkeypatch)
    costs = []
    refusals = []
    for user, password in [
        ("alice", PASSWORD),
        ("alice", "wrong"),
        ("sha256", "wrong"),
        ("sha512", "wrong"),
        ("mallory", "wrong"),
        ("mallory", PASSWORD),
        ("token-1", TOKEN_PASSWORD),
    ]:
        try:
            drive(open_one("PLAIN"), f"\0{user}\0{password}".encode())
        except AuthenticationFailed as error:
            refusals.append(error)
        costs.append(calls.take())
    assert [one == costs[0] for one in costs] == [True] * 7
    assert costs[0]["compare_digest"] == 2
    assert costs[0]["iterations of sha512"] == 4096
    assert len(refusals) == 6
    assert len({(one.message, one.code, one.args) for one in refusals}) == 1
    assert [one.reason for one in refusals] == [
        *["the password is wrong"] * 3,
        *["the user is unknown"] * 3,
    ]
    for one in refusals:
        assert one.__context__ is None
        assert "wrong" not in f"{one!r} {one}"


def test_the_password_of_a_fake_credential_opens_nothing() -> None:
    """Even if the fake were a credential that somebody has the password of."""

    class KnownFakes(type(FAKES)):  # type: ignore[misc]
        def credential(self, mechanism: ScramMechanism, user: str, is_token: bool) -> object:
            return credential_of(mechanism)

    exchange = open_exchange(
        "PLAIN", OFFERED, Logins(), KnownFakes(b"known"), numbered_bytes, always
    )
    with pytest.raises(AuthenticationFailed):
        drive(exchange, f"\0mallory\0{PASSWORD}".encode())


@pytest.mark.parametrize("message", [b"\0alice\0wrong", f"\0alice\0{PASSWORD}".encode(), b"x"])
def test_plain_takes_one_message(message: bytes) -> None:
    """A connection guesses one password for each handshake, also while the work runs."""
    exchange = open_one("PLAIN")
    try:
        exchange.respond(message, NOW_MS)
    except AuthenticationFailed:
        assert message == b"x"
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.respond(f"\0alice\0{PASSWORD}".encode(), NOW_MS)
    assert caught.value.reason == "the client sends a message after the end"


def test_a_scram_login_takes_nothing_after_its_end() -> None:
    """The final message cannot be sent twice."""
    exchange = open_one("SCRAM-SHA-256")
    final = challenged(exchange, ScramClient("SCRAM-SHA-256", PASSWORD))
    drive(exchange, final)
    with pytest.raises(AuthenticationFailed):
        drive(exchange, final)


@pytest.mark.parametrize(
    ("encrypted", "plain_without_tls", "offered"),
    [
        (True, False, OFFERED),
        (True, True, OFFERED),
        (False, True, OFFERED),
        (False, False, NAMES),
    ],
)
def test_plain_is_offered_over_tls(
    encrypted: bool, plain_without_tls: bool, offered: list[str]
) -> None:
    """Without, only if the operator allows it."""
    found = offered_mechanisms(
        OFFERED,
        encrypted=encrypted,
        plain_without_tls=plain_without_tls,
        tokens_without_tls=True,
    )
    assert found == offered


@pytest.mark.parametrize(
    "name", ["", "plain", "PLAIN ", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "GSSAPI"]
)
def test_another_mechanism_is_refused(name: str) -> None:
    """As it is when it is offered by mistake."""
    for offered in (OFFERED, [*OFFERED, name]):
        with pytest.raises(KafkaError) as caught:
            open_exchange(name, offered, Logins(), FAKES, numbered_bytes, always)
        assert caught.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("name", OFFERED)
def test_a_mechanism_that_is_not_offered_is_refused(name: str) -> None:
    """A client may not choose what the operator has left out."""
    others = [one for one in OFFERED if one != name]
    with pytest.raises(KafkaError) as caught:
        open_exchange(name, others, Logins(), FAKES, numbered_bytes, always)
    assert caught.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_mechanisms_do_not_share_credentials() -> None:
    """A proof for one mechanism is none for the other."""
    for one, other in [MECHANISMS, MECHANISMS[::-1]]:
        exchange = open_one(one.sasl_name)
        client = ScramClient(other.sasl_name, PASSWORD)
        with pytest.raises(AuthenticationFailed):
            drive(exchange, challenged(exchange, client))


def refusing(asked: list[str]) -> Callable[[str], bool]:
    """Return a function that notes each name, and lets no password be checked."""

    def may_try(name: str) -> bool:
        asked.append(name)
        return False

    return may_try


@pytest.mark.parametrize("mechanism", OFFERED)
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_password_is_checked_only_if_it_may_be_tried(mechanism: str, user: str) -> None:
    """The right password is refused, too; the name is asked for once, and nothing is hashed."""
    asked: list[str] = []
    exchange = open_one(mechanism, may_try=refusing(asked))
    client = ScramClient(mechanism, PASSWORD, bare=f"n={user},r=fyko+d2lbbFgONRv9qkxdawL")
    message = f"\0{user}\0{PASSWORD}".encode()
    if mechanism != PLAIN:
        # The first message is answered as always: it tells nothing.
        step = exchange.respond(client.first(), NOW_MS)
        assert isinstance(step, Challenge)
        assert [] == asked
        message = client.final(step.data)
    with pytest.raises(TooManyFailed) as caught:
        exchange.respond(message, NOW_MS)
    assert [user] == asked
    assert (user, ErrorCode.SASL_AUTHENTICATION_FAILED) == (caught.value.user, caught.value.code)
    assert "too many logins from this address have failed" in str(caught.value)


def test_a_token_is_asked_for_by_its_id() -> None:
    """Somebody could try the passwords of tokens, too."""
    asked: list[str] = []
    exchange = open_one("SCRAM-SHA-256", may_try=refusing(asked))
    client = ScramClient("SCRAM-SHA-256", TOKEN_PASSWORD, bare=TOKEN_BARE)
    with pytest.raises(TooManyFailed):
        drive(exchange, challenged(exchange, client))
    assert ["token-1"] == asked
