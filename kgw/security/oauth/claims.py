"""Decides whether the claims of a token are accepted. Time is an argument. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from kgw.security.oauth.errors import TokenRefused
from kgw.security.oauth.strict_json import parse_object
from kgw.security.principal import check_user_name

LONGEST_SUBJECT_BYTES: Final = 256
"""The longest accepted subject, in UTF-8. OpenID Connect allows 255 characters."""
MAX_TOKEN_BYTES: Final = 32_768
"""The longest token that a server reads, or a client sends."""
_LATEST_S: Final = 253_402_300_799
"""The end of the year 9999. A later time is a mistake, and too large for the protocol."""


class ClaimRules(NamedTuple):
    """The claims that an accepted token has."""

    issuer: str
    audiences: frozenset[str]
    """A token must be for at least one of them."""
    subject_claim: str = "sub"
    """The name of the claim that names the user."""
    scope_claim: str = "scope"
    clock_skew_s: int = 0
    """The time that the clock of the issuer may be ahead."""


class AcceptedToken(NamedTuple):
    """The claims that the server uses."""

    subject: str
    expires_ms: int
    """The time since the epoch at which the token expires."""


def check_claims(payload: bytes, rules: ClaimRules, now_ms: int) -> AcceptedToken:
    """Check the claims of a token whose signature is right. Raises TokenRefused.

    A token is refused from its expiry on. The clock skew does not extend it, because a session ends
    when its token expires.
    """
    try:
        claims = parse_object(payload)
    except ValueError:
        raise TokenRefused("the claims are no JSON object, or a claim is there twice") from None
    subject = _subject(claims, rules.subject_claim)
    try:
        _check_issuer(claims, rules)
        _check_scope(claims, rules.scope_claim)
        expires_s = _check_times(claims, rules, now_ms / 1000)
    except TokenRefused as error:
        raise TokenRefused(error.reason, subject) from None
    return AcceptedToken(subject, int(expires_s * 1000))


def _subject(claims: dict[str, object], name: str) -> str:
    subject = claims.get(name)
    if not isinstance(subject, str) or not subject:
        raise TokenRefused("the claim with the subject is missing, empty or no string")
    try:
        check_user_name(subject)
    except ValueError as error:
        raise TokenRefused(str(error)) from None
    if len(subject.encode("utf-8", "surrogatepass")) > LONGEST_SUBJECT_BYTES:
        raise TokenRefused("the subject is too long")
    return subject


def _check_issuer(claims: dict[str, object], rules: ClaimRules) -> None:
    if claims.get("iss") != rules.issuer:
        raise TokenRefused("the issuer is not sasl.oauthbearer.expected.issuer")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise TokenRefused("the audience is missing, or neither a string nor a list of strings")
    if rules.audiences.isdisjoint(audiences):
        raise TokenRefused("the audience has none of sasl.oauthbearer.expected.audience")


def _check_scope(claims: dict[str, object], name: str) -> None:
    """Check the form of the scopes, as Kafka does. They decide nothing."""
    if name not in claims:
        return
    scope = claims[name]
    if isinstance(scope, str):
        return
    if not isinstance(scope, list) or not all(isinstance(one, str) and one for one in scope):
        raise TokenRefused("the scope is neither a string nor a list of strings")


def _check_times(claims: dict[str, object], rules: ClaimRules, now_s: float) -> float:
    """Return the time at which the token expires."""
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise TokenRefused("the token has no time at which it expires (exp)")
    if now_s >= expires_s:
        raise TokenRefused("the token has expired")
    for name, reason in (
        ("nbf", "the token is not valid yet (nbf)"),
        ("iat", "the token was issued in the future (iat)"),
    ):
        begins_s = _time(claims, name)
        if begins_s is not None and begins_s > now_s + rules.clock_skew_s:
            raise TokenRefused(reason)
    return expires_s


def _time(claims: dict[str, object], name: str) -> float | None:
    """Return a claim with a time in seconds; None if it is missing."""
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TokenRefused("a time of the token is no number")
    # The comparison also refuses infinity, which 1e999 is for Python's parser.
    if not 0 <= value <= _LATEST_S:
        raise TokenRefused("a time of the token is out of range")
    return value
