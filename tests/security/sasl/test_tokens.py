"""The rules of delegation tokens."""

from __future__ import annotations

import hashlib
import hmac
from os import urandom
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode, KafkaError
from kgw.security.principal import ANONYMOUS, Principal
from kgw.security.sasl.scram import ScramMechanism, matches
from kgw.security.sasl.scram_messages import encode_base64
from kgw.security.sasl.tokens import (
    DelegationToken,
    TokenLimits,
    TokenRules,
    check_token_requests_allowed,
    decode_token,
    new_token_id,
)
from kgw.types import parse_uuid
from tests.security.sasl.logins import ALICE, BOB, DAY_MS, NOW_MS, RULES, SALT

if TYPE_CHECKING:
    from collections.abc import Callable

CAROL = Principal("User", "carol")
DISABLED = [TokenRules(secret, TokenLimits(7 * DAY_MS, DAY_MS)) for secret in (None, "")]
TOKEN = RULES.create("token-1", ALICE, BOB, [CAROL], -1, NOW_MS)
MAX_INT64 = 2**63 - 1


def code_of(call: Callable[[], object]) -> ErrorCode:
    """Return the code of the error that a call raises."""
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_the_hmac_is_kafkas() -> None:
    """HmacSHA512 of the id, with the secret as the key."""
    expected = hmac.new(b"master", b"token-1", hashlib.sha512).digest()
    assert RULES.hmac("token-1") == expected


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_the_password_of_a_token_is_its_hmac_in_base64(mechanism: ScramMechanism) -> None:
    """For both mechanisms of SCRAM."""
    credential = RULES.credential("token-1", mechanism, SALT)
    assert credential.iterations == 4096
    assert matches(credential, mechanism, encode_base64(RULES.hmac("token-1")))


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (1, 1, 1),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (8 * DAY_MS, 7 * DAY_MS, DAY_MS),
        (MAX_INT64, 7 * DAY_MS, DAY_MS),
    ],
)
def test_a_new_token_has_the_lesser_lifetime(asked_ms: int, max_ms: int, expiry_ms: int) -> None:
    """Of the one in the request and the server's; its first expiry is the server's."""
    token = RULES.create("token-1", ALICE, BOB, [CAROL], asked_ms, NOW_MS)
    assert token == DelegationToken(
        "token-1", ALICE, BOB, (CAROL,), NOW_MS, NOW_MS + max_ms, NOW_MS + expiry_ms, RULES.key_id
    )


def test_the_longest_limits_do_not_overflow() -> None:
    """A timestamp has 63 bits on the wire."""
    rules = TokenRules("master", TokenLimits(MAX_INT64, MAX_INT64))
    token = rules.create("token-1", ALICE, ALICE, [], -1, NOW_MS)
    assert (token.max_timestamp_ms, token.expiry_timestamp_ms) == (MAX_INT64, MAX_INT64)
    assert rules.renew(token, ALICE, MAX_INT64, NOW_MS) == token
    assert rules.expire(token, ALICE, MAX_INT64, NOW_MS) == token


def test_a_renewer_is_stored_once() -> None:
    """However often the request names it."""
    token = RULES.create("token-1", ALICE, ALICE, [CAROL, BOB, CAROL], 0, NOW_MS)
    assert token.renewers == (CAROL, BOB)


@pytest.mark.parametrize("name", ["", "*", "ANONYMOUS", "a\nb", "a\0"])
def test_names_that_no_client_has_are_refused(name: str) -> None:
    """A token of `User:*` would log in somebody who is everybody."""
    nobody, code = Principal("User", name), ErrorCode.INVALID_REQUEST
    assert code_of(lambda: RULES.create("t", nobody, ALICE, [], 0, NOW_MS)) == code
    assert code_of(lambda: RULES.create("t", ALICE, ALICE, [BOB, nobody], 0, NOW_MS)) == code


def test_a_client_may_have_any_name_for_its_own_token() -> None:
    """Names in certificates are longer than those of users, and have other characters."""
    owner = Principal("User", "CN=a\tb,OU=" + "x" * 900)
    assert RULES.create("t", owner, owner, [], 0, NOW_MS).owner == owner


@pytest.mark.parametrize(
    "renewers",
    [[Principal("User", "x" * 4000)], [Principal("User", f"renewer-{n}") for n in range(250)]],
    ids=["a long name", "many names"],
)
def test_a_long_token_is_refused(renewers: list[Principal]) -> None:
    """The stored form has at most 4,096 bytes, so that tokens do not fill the memory."""
    code = ErrorCode.INVALID_REQUEST
    assert code_of(lambda: RULES.create("t", ALICE, ALICE, renewers, 0, NOW_MS)) == code
    fits = RULES.create("t", ALICE, ALICE, [Principal("User", "x" * 3500)], 0, NOW_MS)
    assert 3500 < len(fits.encode()) <= 4096


def test_the_key_id_tells_secrets_apart() -> None:
    """It is the same after a restart, and has nothing of the secret."""
    others = [TokenRules(secret, TokenLimits(1, 1)) for secret in ("master", "Master", "master ")]
    assert others[0].key_id == RULES.key_id
    assert len({one.key_id for one in others}) == 3
    assert RULES.key_id == "6362a94ed2cff2eb"
    assert "master" not in RULES.key_id


def test_a_new_id_is_one_of_kafkas() -> None:
    """22 characters of URL-safe base64; none begins with a dash, as in Kafka."""
    texts = iter([b"\xfb" + bytes(15), b"\xff" * 16])
    assert new_token_id(lambda count: next(texts)[:count]) == "_" * 21 + "w"
    assert parse_uuid(new_token_id(urandom))


def test_owners_and_renewers_are_users() -> None:
    """Kafka logs in `User:NAME` for a token of `Group:NAME`, so such an owner would be a user."""
    group = Principal("Group", "alice")
    code = ErrorCode.INVALID_PRINCIPAL_TYPE
    assert code_of(lambda: RULES.create("t", ALICE, ALICE, [BOB, group], 0, NOW_MS)) == code
    assert code_of(lambda: RULES.create("t", group, ALICE, [], 0, NOW_MS)) == code


@pytest.mark.parametrize("rules", DISABLED, ids=["none", "empty"])
def test_without_a_secret_there_are_no_tokens(rules: TokenRules) -> None:
    """Every rule says so, and no HMAC is made with an empty key."""
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert code_of(lambda: rules.hmac("t")) == code
    assert code_of(lambda: rules.create("t", ALICE, ALICE, [], 0, NOW_MS)) == code
    assert code_of(lambda: rules.renew(TOKEN, ALICE, 0, NOW_MS)) == code
    assert code_of(lambda: rules.expire(TOKEN, ALICE, 0, NOW_MS)) == code


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expiry_ms"),
    [
        (-1, NOW_MS, NOW_MS + DAY_MS),
        (0, NOW_MS, NOW_MS + DAY_MS),
        (1000, NOW_MS, NOW_MS + 1000),
        (2 * DAY_MS, NOW_MS + 5, NOW_MS + DAY_MS + 5),
        (MAX_INT64, NOW_MS + DAY_MS, NOW_MS + 2 * DAY_MS),
    ],
)
@pytest.mark.parametrize("principal", [ALICE, CAROL])
def test_owner_and_renewers_renew(
    principal: Principal, period_ms: int, now_ms: int, expiry_ms: int
) -> None:
    """By the period of the request, but by no more than the server's."""
    renewed = RULES.renew(TOKEN, principal, period_ms, now_ms)
    assert renewed == TOKEN._replace(expiry_timestamp_ms=expiry_ms)


def test_no_renewal_goes_beyond_the_longest_lifetime() -> None:
    """Neither does an expiry period."""
    token = TOKEN._replace(max_timestamp_ms=NOW_MS + 5000)
    assert RULES.renew(token, ALICE, -1, NOW_MS).expiry_timestamp_ms == NOW_MS + 5000
    expired = RULES.expire(token, ALICE, MAX_INT64, NOW_MS)
    assert expired is not None
    assert expired.expiry_timestamp_ms == NOW_MS + 5000


@pytest.mark.parametrize("principal", [ALICE, CAROL])
def test_owner_and_renewers_expire(principal: Principal) -> None:
    """At once with a negative period; 0 means that the token expires now."""
    assert RULES.expire(TOKEN, principal, -1, NOW_MS) is None
    for period_ms in (0, 1000, 3 * DAY_MS):
        expired = RULES.expire(TOKEN, principal, period_ms, NOW_MS)
        assert expired == TOKEN._replace(expiry_timestamp_ms=NOW_MS + period_ms)


@pytest.mark.parametrize(
    ("token", "principal", "now_ms", "code"),
    [
        (None, ALICE, NOW_MS, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (TOKEN, BOB, NOW_MS, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (TOKEN, ANONYMOUS, NOW_MS, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (TOKEN, Principal("Group", "alice"), NOW_MS, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (TOKEN, ALICE, NOW_MS + DAY_MS + 1, ErrorCode.DELEGATION_TOKEN_EXPIRED),
        (
            TOKEN._replace(max_timestamp_ms=NOW_MS - 1),
            ALICE,
            NOW_MS,
            ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ),
    ],
)
def test_other_changes_are_refused(
    token: DelegationToken | None, principal: Principal, now_ms: int, code: ErrorCode
) -> None:
    """The requester may not change a token of another owner."""
    assert code_of(lambda: RULES.renew(token, principal, -1, now_ms)) == code
    assert code_of(lambda: RULES.expire(token, principal, 1, now_ms)) == code


def test_the_order_of_the_checks_is_kafkas() -> None:
    """A stranger learns that a token has expired from a renewal, and not from an expiry."""
    late_ms = NOW_MS + DAY_MS + 1
    expired, mismatch = (
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    )
    assert code_of(lambda: RULES.renew(TOKEN, BOB, -1, late_ms)) == expired
    assert code_of(lambda: RULES.expire(TOKEN, BOB, -1, late_ms)) == mismatch
    assert code_of(lambda: RULES.expire(TOKEN, BOB, 1, late_ms)) == mismatch


def test_an_expired_token_can_be_removed() -> None:
    """By those who may expire it; it cannot be given another time."""
    assert RULES.expire(TOKEN, ALICE, -1, NOW_MS + DAY_MS + 1) is None


@pytest.mark.parametrize(
    ("principal", "is_shown"),
    [(ALICE, True), (BOB, True), (CAROL, True), (Principal("User", "dave"), False)],
)
def test_owner_requester_and_renewers_see_a_token(principal: Principal, is_shown: bool) -> None:
    """The requester does not renew it, and may see it."""
    assert TOKEN.is_of_any({principal}) == is_shown
    assert TOKEN.is_of_any({Principal("Group", "alice"), principal}) == is_shown


def test_a_token_is_valid_at_its_last_millisecond() -> None:
    """Kafka's comparison is strict."""
    assert not TOKEN.is_expired(NOW_MS + DAY_MS)
    assert TOKEN.is_expired(NOW_MS + DAY_MS + 1)


def test_a_token_creates_no_tokens() -> None:
    """It would extend itself for ever. A client without a login has nothing to delegate."""
    check_token_requests_allowed(ALICE, None)
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert code_of(lambda: check_token_requests_allowed(ALICE, "token-1")) == code
    assert code_of(lambda: check_token_requests_allowed(ANONYMOUS, None)) == code


principals = st.builds(Principal, st.sampled_from(["User", "Group"]), st.text(min_size=1))
timestamps = st.integers(0, MAX_INT64)
tokens = st.builds(
    DelegationToken,
    st.text(min_size=1),
    principals,
    principals,
    st.lists(principals, max_size=3).map(tuple),
    timestamps,
    timestamps,
    timestamps,
    st.text(),
)


@given(tokens)
def test_a_stored_token_is_read_again(token: DelegationToken) -> None:
    """Whatever its names contain."""
    assert decode_token(token.encode()) == token


def test_a_truncated_token_is_refused() -> None:
    """At any length."""
    stored = TOKEN.encode()
    for length in range(len(stored)):
        with pytest.raises(ValueError, match=r".+"):
            decode_token(stored[:length])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"token-1"', b'""'),
        (b'"token-1"', b"7"),
        (b'"token-1"', b"null"),
        (b'"User:alice"', b'"alice"'),
        (b'"User:bob"', b"null"),
        (b'["User:carol"]', b'["carol"]'),
        (b'["User:carol"]', b"7"),
        (str(NOW_MS).encode(), b'"1"'),
        (str(NOW_MS).encode(), b"1.5"),
        (str(NOW_MS).encode(), b"true"),
        (b'"owner"', b'"other"'),
        (b'"key_id":"', b'"key_id":7,"x":"'),
        (b'"key_id"', b'"key"'),
    ],
)
def test_a_damaged_token_is_refused(old: bytes, new: bytes) -> None:
    """With ValueError, as every other row."""
    stored = TOKEN.encode()
    assert old in stored
    with pytest.raises(ValueError, match=r".+"):
        decode_token(stored.replace(old, new))


def test_a_deeply_nested_row_is_refused() -> None:
    """The decoder of JSON raises RecursionError."""
    with pytest.raises(ValueError, match="not a stored delegation token"):
        decode_token(b"[" * 100_000)
