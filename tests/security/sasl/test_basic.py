"""The credentials of HTTP Basic: what a header has, and what is refused."""

from __future__ import annotations

from base64 import b64encode

import pytest

from kgw.security.sasl.basic import BASIC, credentials_of, plain_message
from kgw.security.sasl.errors import AuthenticationFailed
from kgw.security.sasl.plain import parse_plain


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"Basic YTpi", b"YTpi"),
        (b"basic YTpi", b"YTpi"),
        (b"BASIC   YTpi ", b"YTpi"),
        (b"Basic", b""),
        (b"Bearer YTpi", None),
        (b"Basic\tYTpi", None),
        (b"Basi", None),
        (b"", None),
    ],
)
def test_headers(header: bytes, expected: bytes | None) -> None:
    """The scheme is written in any case, and no other scheme counts."""
    assert expected == credentials_of(header, BASIC)


@pytest.mark.parametrize(
    ("text", "user", "password"),
    [("alice:secret", "alice", "secret"), ("é:ü:", "é", "ü:"), ("a::", "a", ":")],
)
def test_credentials(text: str, user: str, password: str) -> None:
    """The first colon ends the user; the password may have more of them."""
    message = parse_plain(plain_message(b64encode(text.encode())))
    assert (user, password) == (message.user, message.password)


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (b"", "no colon"),
        (b"YTpi\n", "not base64"),
        (b"YTp", "not base64"),
        (b"YT pi", "not base64"),
        (b"\xff", "not base64"),
        (b64encode(b"alice"), "no colon"),
        (b64encode(b":secret"), "is empty"),
        (b64encode(b"alice:"), "is empty"),
        (b64encode(b"alice:sec\0ret"), "exactly three parts"),
        (b64encode(b"al\0ice:secret"), "exactly three parts"),
        (b64encode(b"\xff:secret"), "not UTF-8"),
        (b64encode(b"alice:" + b"x" * 5_000), "too long"),
    ],
)
def test_refused_credentials(credentials: bytes, said: str) -> None:
    """The reason is a fixed sentence, and nothing of the header is in the error."""
    with pytest.raises(AuthenticationFailed) as caught:
        parse_plain(plain_message(credentials))
    assert said in caught.value.reason
    assert "secret" not in f"{caught.value!r} {caught.value.reason}"
    assert caught.value.__context__ is None
