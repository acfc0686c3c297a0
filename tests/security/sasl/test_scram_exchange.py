"""The server's side of a SCRAM login, and what a client learns from a failed one."""

from __future__ import annotations

import re
import traceback
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.scram import (
    FakeCredentials,
    ScramCredential,
    ScramExchange,
    ScramMechanism,
    make_credential,
    matches,
)
from kgw.security.sasl.scram_messages import (
    MAX_NAME_BYTES,
    escape_name,
    parse_client_final,
    parse_client_first,
)
from tests.security.sasl.logins import (
    FAKES,
    MECHANISMS,
    NAMES,
    NONCE,
    PASSWORD,
    SALT,
    SERVER_NONCE,
    Calls,
    attempt,
    credential_of,
    numbered_bytes,
    open_scram,
    valid_messages,
)
from tests.security.sasl.scram_client import ScramClient

SHA_256 = ScramMechanism.SHA_256
SHA_512 = ScramMechanism.SHA_512
FINAL = "c={binding},r={nonce},p={proof}"


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
@pytest.mark.parametrize(
    ("header", "bare", "template"),
    [
        ("n,,", f"n=alice,r={NONCE}", FINAL),
        ("y,,", f"n=alice,r={NONCE}", FINAL),
        ("n,a=alice,", f"n=alice,r={NONCE}", FINAL),
        ("n,,", f"n=alice,r={NONCE},tokenauth=false", FINAL),
        ("n,,", f"n=alice,r={NONCE},hint=a=b", "c={binding},r={nonce},hint=1,p={proof}"),
        ("n,,", "n=alice,r=!", FINAL),
        ("n,,", f"n=alice,r={'~' * 256}", FINAL),
    ],
)
def test_a_client_with_the_password_logs_in(
    mechanism: ScramMechanism, header: str, bare: str, template: str
) -> None:
    """Without channel binding, for its own identity, with any optional extension."""
    client = ScramClient(mechanism.sasl_name, PASSWORD, bare=bare, header=header)
    exchange = open_scram(mechanism)
    final = client.final(exchange.respond(client.first()), template=template)
    succeeded = [exchange.succeeded]
    assert client.accepts(exchange.respond(final))
    succeeded.append(exchange.succeeded)
    assert succeeded == [False, True]
    assert (exchange.user, exchange.is_token) == ("alice", False)


@pytest.mark.parametrize(
    "user",
    ["a,b", "a=b", "a=2Cb", "=3D2C", "j\u00fcrgen", "\u4e2d", "a b", "a\nb", "," * MAX_NAME_BYTES],
)
def test_a_name_may_have_any_character_but_nul(user: str) -> None:
    """Commas and equals signs are escaped; the limit counts bytes after unescaping."""
    client = ScramClient("SCRAM-SHA-256", PASSWORD, bare=f"n={escape_name(user)},r={NONCE}")
    exchange = open_scram(SHA_256, {user: credential_of(SHA_256)})
    exchange.respond(client.final(exchange.respond(client.first())))
    assert exchange.user == user


def test_the_server_answers_as_in_rfc_5802() -> None:
    """Nonce, salt, iterations."""
    answer = open_scram(SHA_256).respond(valid_messages(SHA_256)[0]).decode()
    assert answer == f"r={NONCE}{SERVER_NONCE},s={b64encode(SALT).decode()},i=4096"


def test_the_server_nonce_is_random() -> None:
    """It takes 24 bytes, all of which are in the nonce."""
    asked = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return b"\xff" * count

    exchange = open_scram(SHA_256, random_bytes=random_bytes)
    answer = exchange.respond(valid_messages(SHA_256)[0])
    assert asked == [24]
    assert answer.startswith(f"r={NONCE}{'/' * 32},".encode())


def test_a_token_is_no_user() -> None:
    """The exchange tells which token the client claims, and logs in with its credential alone."""
    asked: list[str] = []

    def credential_for(user: str) -> ScramCredential | None:
        asked.append(user)
        return credential_of(SHA_256)

    exchange = ScramExchange(SHA_256, credential_for, FAKES, numbered_bytes)
    bare = f"n=token-1,r={NONCE},tokenauth=TRUE"
    client = ScramClient("SCRAM-SHA-256", PASSWORD, bare=bare)
    claimed = [exchange.claimed_token]
    final = client.final(exchange.respond(client.first()))
    claimed.append(exchange.claimed_token)
    exchange.supply(make_credential(SHA_256, PASSWORD, exchange.salt, 4096))
    exchange.respond(final)
    claimed.append(exchange.claimed_token)
    assert claimed == [None, "token-1", None]
    assert asked == []
    assert (exchange.user, exchange.is_token) == ("token-1", True)


def test_a_user_claims_no_token() -> None:
    """Also in the middle of a login."""
    exchange = open_scram(SHA_256)
    exchange.respond(valid_messages(SHA_256)[0])
    assert exchange.claimed_token is None


def test_a_credential_with_another_salt_is_a_bug() -> None:
    """The client has hashed with the salt that it was sent."""
    exchange = open_scram(SHA_256)
    with pytest.raises(RuntimeError):
        _ = exchange.salt
    with pytest.raises(ValueError, match="another salt"):
        exchange.supply(credential_of(SHA_256))
    exchange.respond(valid_messages(SHA_256)[0])
    exchange.supply(credential_of(SHA_256))
    with pytest.raises(ValueError, match="another salt"):
        exchange.supply(make_credential(SHA_256, PASSWORD, b"other", 4096))
    with pytest.raises(ValueError, match="another salt"):
        exchange.supply(make_credential(SHA_256, PASSWORD, exchange.salt, 4097))


def test_nothing_is_told_before_the_end() -> None:
    """An unproved name must not become a principal."""
    exchange = open_scram(SHA_256)
    exchange.respond(valid_messages(SHA_256)[0])
    with pytest.raises(RuntimeError):
        _ = exchange.user
    with pytest.raises(RuntimeError):
        _ = exchange.is_token


def test_a_recorded_login_cannot_be_repeated() -> None:
    """The nonce of the next exchange is another one."""
    error = attempt(open_scram(SHA_256, random_bytes=bytes), *valid_messages(SHA_256))
    assert error is not None
    assert error.reason == "the nonce differs from the server's"


@pytest.mark.parametrize(
    "order", ["final", "first first", "first final first", "first final final"]
)
def test_messages_have_one_order(order: str) -> None:
    """Each first and final message is the valid one."""
    first, final = valid_messages(SHA_256)
    messages = {"first": first, "final": final}
    exchange = open_scram(SHA_256)
    *before, last = order.split()
    for name in before:
        exchange.respond(messages[name])
    with pytest.raises(AuthenticationFailed):
        exchange.respond(messages[last])
    assert not exchange.succeeded


def test_an_exchange_that_has_failed_stays_failed() -> None:
    """A second try of the proof needs a new nonce."""
    first, final = valid_messages(SHA_256)
    exchange = open_scram(SHA_256)
    exchange.respond(first)
    with pytest.raises(AuthenticationFailed):
        exchange.respond(final[:-2] + b"A=")
    with pytest.raises(AuthenticationFailed) as caught:
        exchange.respond(final)
    assert caught.value.reason == "the client sends a message after the end"


def test_a_bug_in_the_lookup_ends_the_exchange() -> None:
    """It does not leave a login half open."""

    def credential_for(user: str) -> ScramCredential | None:
        raise KeyError(user)

    exchange = ScramExchange(SHA_256, credential_for, FAKES, numbered_bytes)
    first, _ = valid_messages(SHA_256)
    with pytest.raises(KeyError):
        exchange.respond(first)
    with pytest.raises(AuthenticationFailed):
        exchange.respond(first)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_other_bytes_raise_nothing_else(messages: list[bytes]) -> None:
    """Nor do they ever log in."""
    assert attempt(open_scram(SHA_256), *messages) is not None


@given(st.binary(max_size=300))
def test_the_parsers_raise_nothing_else(message: bytes) -> None:
    """Whatever the bytes."""
    for parse in (parse_client_first, parse_client_final):
        try:
            parse(message, "SCRAM-SHA-256")
        except AuthenticationFailed:
            continue


# --- unknown users


def failing_login(
    mechanism: ScramMechanism, user: str, password: str, extensions: str = ""
) -> tuple[bytes, AuthenticationFailed]:
    """Log in as a client that does not know the password; return the challenge and the error."""
    bare = f"n={user},r={NONCE}{extensions}"
    client = ScramClient(mechanism.sasl_name, password, bare=bare)
    exchange = open_scram(mechanism)
    server_first = exchange.respond(client.first())
    error = attempt(exchange, client.final(server_first))
    assert error is not None
    return server_first, error


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=NAMES)
def test_an_unknown_user_gets_the_answers_of_a_wrong_password(
    mechanism: ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text, the same code, and as many calls of hash functions (CVE-2021-38153)."""
    failing_login(mechanism, "alice", "wrong")
    failing_login(mechanism, "mallory", "wrong")
    calls = Calls(monkeypatch)
    challenge, error = failing_login(mechanism, "alice", "wrong")
    work = calls.take()
    other_challenge, other_error = failing_login(mechanism, "mallory", "wrong")
    assert calls.take() == work
    assert work["compare_digest"] == 1
    assert work["pbkdf2_hmac"] == 0
    expected = (
        "Authentication failed during authentication due to invalid credentials "
        f"with SASL mechanism {mechanism.sasl_name}"
    )
    assert (error.message, error.code) == (expected, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert (other_error.message, other_error.code) == (error.message, error.code)
    assert (error.args, str(error)) == (other_error.args, str(other_error))
    assert error.reason == "the proof is wrong"
    assert other_error.reason == "the user or the token is unknown"
    form = rb"r=[^,]{56},s=[^,]{36},i=4096"
    assert re.fullmatch(form, challenge)
    assert re.fullmatch(form, other_challenge)


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `hmac`, once in each login."""
    messages = valid_messages(SHA_256)
    calls = Calls(monkeypatch)
    assert attempt(open_scram(SHA_256), *messages) is None
    assert calls.take()["compare_digest"] == 1
    assert not matches(credential_of(SHA_256), SHA_256, "wrong")
    assert calls.take()["compare_digest"] == 1


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_user_has_the_same_challenge_each_time(user: str) -> None:
    """Known or not: a salt that changes would tell them apart."""
    challenges = {failing_login(SHA_256, user, "wrong")[0] for _ in range(3)}
    assert len(challenges) == 1


def test_a_fake_salt_outlives_a_restart() -> None:
    """It is made of the secret, so a client sees no change."""
    salts = {FakeCredentials(b"secret").credential(SHA_256, "mallory", False) for _ in range(2)}
    assert len(salts) == 1


def test_fake_salts_differ_where_real_ones_would() -> None:
    """By user, mechanism, kind and server."""
    other_server = FakeCredentials(b"another secret")
    made = [
        FAKES.credential(SHA_256, "mallory", False),
        FAKES.credential(SHA_256, "mallory2", False),
        FAKES.credential(SHA_512, "mallory", False),
        FAKES.credential(SHA_256, "mallory", True),
        other_server.credential(SHA_256, "mallory", False),
    ]
    assert len({one.salt for one in made}) == len(made)
    assert len({one.stored_key for one in made}) == len(made)


def test_a_fake_iteration_count_is_one_of_the_real_ones() -> None:
    """Each user keeps the count it has."""
    fakes = FakeCredentials(b"secret", {SHA_256: {4096: 1, 8192: 1}})
    names = [f"user-{number}" for number in range(50)]
    counts = [fakes.credential(SHA_256, name, False).iterations for name in names]
    assert set(counts) == {4096, 8192}
    assert [fakes.credential(SHA_256, name, False).iterations for name in names] == counts


def test_fake_counts_are_as_common_as_the_real_ones() -> None:
    """A rare count would be that of a real user."""
    fakes = FakeCredentials(b"secret", {SHA_256: {4096: 9, 8192: 1}})
    names = [f"user-{number}" for number in range(1_000)]
    rare = [one for one in names if fakes.credential(SHA_256, one, False).iterations == 8192]
    assert 70 <= len(rare) <= 130


def test_few_fake_counts_change_with_the_users() -> None:
    """One more user of a hundred: a name takes the new user's count, or keeps what it has."""
    before = FakeCredentials(b"secret", {SHA_256: {4096: 50, 8192: 50}})
    after = FakeCredentials(b"secret", {SHA_256: {4096: 50, 8192: 51}})
    changed = [
        (old, new)
        for name in range(1_000)
        for old, new in [
            [one.credential(SHA_256, str(name), False).iterations for one in (before, after)]
        ]
        if old != new
    ]
    assert len(changed) < 20
    assert set(changed) <= {(4096, 8192)}


def test_fake_counts_are_those_of_the_mechanism() -> None:
    """Without users of a mechanism the count is the default."""
    fakes = FakeCredentials(b"secret", {SHA_512: {8192: 1}})
    assert fakes.credential(SHA_512, "nobody", False).iterations == 8192
    assert fakes.credential(SHA_256, "nobody", False).iterations == 4096


def test_a_fake_has_the_same_count_for_both_mechanisms() -> None:
    """As users have who were added with both."""
    counts = {4096: 1, 8192: 1}
    fakes = FakeCredentials(b"secret", {SHA_256: counts, SHA_512: counts})
    for number in range(50):
        both = {fakes.credential(one, str(number), False).iterations for one in (SHA_256, SHA_512)}
        assert len(both) == 1


def test_tokens_have_the_least_count() -> None:
    """Real ones have no other, so an unknown one must not either."""
    fakes = FakeCredentials(b"secret", {SHA_256: {8192: 1}})
    assert fakes.credential(SHA_256, "token", True).iterations == 4096


@pytest.mark.parametrize(
    ("secret", "counts"),
    [(b"", {4096: 1}), (b"secret", {4096: 0}), (b"secret", {4096: 1, 16385: 1})],
)
def test_fakes_that_would_be_noticed_are_refused(secret: bytes, counts: dict[int, int]) -> None:
    """At the start of the server, not at a login."""
    with pytest.raises(ValueError, match=r".+"):
        FakeCredentials(secret, {SHA_256: counts})


class KnownFakes(FakeCredentials):
    """Fake credentials whose password somebody knows."""

    def credential(self, mechanism: ScramMechanism, user: str, is_token: bool) -> ScramCredential:
        return credential_of(mechanism)


def test_the_keys_of_an_unknown_user_open_nothing() -> None:
    """Even a client that knew the fake's password would be refused."""
    exchange = open_scram(SHA_256, {}, fakes=KnownFakes(b"known"))
    error = attempt(exchange, *valid_messages(SHA_256))
    assert error is not None
    assert error.reason == "the user or the token is unknown"


def test_an_unknown_token_gets_the_same_error() -> None:
    """The log knows which token the client named."""
    _, error = failing_login(SHA_256, "token-9", "wrong", ",tokenauth=true")
    _, other = failing_login(SHA_256, "alice", "wrong")
    assert error.args == other.args
    assert error.user == "token-9"


# --- secrets


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=hunter2\xff,r=x",
        b"n,,n=hunter2,r=hunter2,hunter2",
        b"p=hunter2,,n=hunter2,r=x",
        b"n,,n=hunter2,r=x,m=hunter2",
        b"n,,n=hunter2=,r=x",
        b"n,,n=alice,r=x,tokenauth=hunter2",
        b"n,,n=alice,r=hunter2 hunter2",
        b"c=biws,r=hunter2,p=YQ==",
        b"c=hunter2,r=hunter2,p=hunter2",
    ],
)
def test_an_error_holds_no_bytes_of_the_client(message: bytes) -> None:
    """People type passwords into the wrong field; a decoder's exception holds what it read."""
    first, _ = valid_messages(SHA_256)
    for messages in ([message], [first, message]):
        error = attempt(open_scram(SHA_256), *messages)
        assert error is not None
        assert (error.__context__, error.__cause__) == (None, None)
        shown = "".join(traceback.format_exception(error))
        assert "hunter2" not in f"{error!r} {error} {error.reason} {error.args} {shown}"
