"""Parses the property `sasl.jaas.config` of Kafka's clients. Pure.

No error text contains a part of the property: any part may be a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MECHANISMS = {
    PLAIN_MODULE: ("PLAIN",),
    SCRAM_MODULE: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    BEARER_MODULE: ("OAUTHBEARER",),
}
"""The mechanisms of SASL that each login module is for."""
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

# As Kafka sets up Java's StreamTokenizer.
_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<word> [A-Za-z0-9_$.\-\u00a0-\U0010ffff]+ )
    | "(?P<double> (?: [^"\\\n] | \\[^\n] )* )"
    | '(?P<single> (?: [^'\\\n] | \\[^\n] )* )'
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasLogin(NamedTuple):
    """The login module and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        """Hide the options, which have a password."""
        return f"JaasLogin({self.module})"


class _Token(NamedTuple):
    kind: str
    text: str


_END = _Token("end", "")


def module_options(text: str, mechanism: str) -> dict[str, str]:
    """Return the options of the login module for a mechanism. Raises ValueError."""
    module, options = parse_jaas(text)
    mechanisms = _MECHANISMS.get(module)
    if mechanisms is None:
        raise ValueError(f"its login module is none that is known: {', '.join(_MECHANISMS)}")
    if mechanism not in mechanisms:
        meant = next(one for one, known in _MECHANISMS.items() if mechanism in known)
        raise ValueError(f"with sasl.mechanism={mechanism} its login module is {meant}")
    return options


def parse_jaas(text: str) -> JaasLogin:
    """Parse `MODULE required KEY="VALUE" ...;`. Raises ValueError."""
    tokens = _tokens(text)
    module = next(tokens, _END)
    if module.kind != "word":
        raise ValueError("it does not begin with the class of a login module")
    flag = next(tokens, _END)
    if flag.text.lower() not in _FLAGS:
        raise ValueError(
            "after the login module the word required is missing, as in "
            f'{SCRAM_MODULE} required username="..." password="...";'
        )
    options: dict[str, str] = {}
    for key in tokens:
        if key == _Token("sign", ";"):
            break
        equals, value = next(tokens, _END), next(tokens, _END)
        if key.kind == "sign" or equals != _Token("sign", "="):
            raise ValueError('options are not written as KEY="VALUE"')
        if value.kind == "sign" or value is _END:
            raise ValueError("an option has no value")
        if value.kind == "word" and (value.text[0].isdigit() or value.text[0] in "-."):
            # Java would read a number.
            raise ValueError("a value that begins with a digit must be in quotation marks")
        options[key.text] = value.text
    else:
        raise ValueError("the semicolon at the end is missing")
    if next(tokens, None) is not None:
        raise ValueError("there is text after the semicolon: only one login module is expected")
    return JaasLogin(module.text, options)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            is_quoted = text[position] in "\"'"
            raise ValueError(
                "a quotation mark is not closed"
                if is_quoted
                else "a value with special characters must be in quotation marks"
            )
        position = found.end()
        kind = found.lastgroup or ""
        if kind in {"double", "single"}:
            yield _Token("string", _ESCAPE.sub(_unescaped, found[kind]))
        elif kind != "space":
            yield _Token(kind, found[kind])


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _LETTERS.get(escaped, escaped)
