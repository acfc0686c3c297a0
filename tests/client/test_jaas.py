from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.client.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasLogin, parse_jaas

CANARY = "c4nary"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'{PLAIN_MODULE} required username="alice" password="a;b=c d";',
            JaasLogin(PLAIN_MODULE, {"username": "alice", "password": "a;b=c d"}),
        ),
        (
            f"""{SCRAM_MODULE} Required
            username='al"ice' // who
            password=se-cret_$1
            /* a token */ tokenauth="true" ;""",
            JaasLogin(
                SCRAM_MODULE,
                {"username": 'al"ice', "password": "se-cret_$1", "tokenauth": "true"},
            ),
        ),
        (
            r'm required a="\"\\\'" b="\t\n\101\7" c="\q\477";',
            JaasLogin("m", {"a": "\"\\'", "b": "\t\nA\7", "c": "q'7"}),
        ),
        ('m required password="";', JaasLogin("m", {"password": ""})),
        ("m sufficient;", JaasLogin("m", {})),
        ("m required password=ü1;", JaasLogin("m", {"password": "ü1"})),
    ],
)
def test_a_login_module_is_parsed(text: str, expected: JaasLogin) -> None:
    """Words, both quotation marks, escapes and comments, as Java's tokenizer reads them."""
    assert expected == parse_jaas(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "class of a login module"),
        (f'"{CANARY}" required;', "class of a login module"),
        (f'm username="{CANARY}";', "the word required is missing"),
        (f'm required password="{CANARY}"', "semicolon"),
        (f'm required password="{CANARY};', "not closed"),
        (f'm required password="{CANARY}\n";', "not closed"),
        (f"m required password '{CANARY}';", "KEY="),
        (f"m required ={CANARY};", "KEY="),
        ("m required password=;", "no value"),
        ("m required password=", "no value"),
        (f"m required password={CANARY}/1;", "must be in quotation marks"),
        (f"m required password={CANARY}!;", "must be in quotation marks"),
        (f"m required password=1{CANARY};", "begins with a digit"),
        (f'm required password="a"; {CANARY} required;', "only one login module"),
    ],
)
def test_what_is_no_login_module_is_refused(text: str, problem: str) -> None:
    """The reason is told without a part of the text, which may be the password."""
    with pytest.raises(ValueError, match=problem) as raised:
        parse_jaas(text)
    assert CANARY not in str(raised.value)


def quoted(text: str) -> str:
    """Return a text in quotation marks as Java's tokenizer reads it."""
    return '"' + "".join(f"\\{one}" if one in '"\\' else one for one in text) + '"'


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_any_password_can_be_quoted(password: str) -> None:
    """Only the quotation mark and the backslash need an escape."""
    text = f"{SCRAM_MODULE} required username=a password={quoted(password)};"
    assert {"username": "a", "password": password} == parse_jaas(text).options


@given(st.text(alphabet=st.sampled_from("ma=;\"'\\ \n/*1")))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """There is no other error."""
    with suppress(ValueError):
        parse_jaas(text)


def test_options_are_not_shown() -> None:
    """The representation has the module alone."""
    assert "JaasLogin(m)" == repr(parse_jaas(f'm required password="{CANARY}";'))
