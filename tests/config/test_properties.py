from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.config.properties import (
    PropertiesSyntaxError,
    Property,
    PropertyError,
    parse_properties,
)

CANARY = "c4nary-secret"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# comment\n! another\n\n  \n", {}),
        ("a.b=c", {"a.b": ("c", 1)}),
        ("  a.b \t=\t c d ", {"a.b": ("c d ", 1)}),
        ("a.b: c", {"a.b": ("c", 1)}),
        ("a.b c", {"a.b": ("c", 1)}),
        ("a.b=", {"a.b": ("", 1)}),
        ("a.b==c=:", {"a.b": ("=c=:", 1)}),
        ("a.b=1\na.b=2", {"a.b": ("2", 2)}),
        ("a.b=1\r\nc.d=2\re.f=3", {"a.b": ("1", 1), "c.d": ("2", 2), "e.f": ("3", 3)}),
        # The blanks before a continuation are not part of the value.
        ("\na.b=one \\\n    two\\\n\tthree\nc.d=4", {"a.b": ("one twothree", 2), "c.d": ("4", 5)}),
        # A comment is not continued, and a continuation that begins with # is none.
        ("# comment \\\na.b=c\\\n#d", {"a.b": ("c#d", 2)}),
        ("a.b=c\\\\\nd.e=f", {"a.b": ("c\\", 1), "d.e": ("f", 2)}),
        ("a.b=c\\", {"a.b": ("c", 1)}),
        ("a\\=b\\:\\ c=d", {"a=b: c": ("d", 1)}),
        ("a.b=\\t\\n\\r\\f\\q\\\\", {"a.b": ("\t\n\r\fq\\", 1)}),
        ("a.b=\\u00fc\\u20AC", {"a.b": ("ü€", 1)}),
        ("a.b=\\ud83d\\ude00", {"a.b": ("😀", 1)}),
        ("a.b=\\\\u0041", {"a.b": ("\\u0041", 1)}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, expected: dict[str, tuple[str, int]]) -> None:
    """Comments, continuation lines, separators and escapes; each with its first line."""
    assert expected == {name: tuple(one) for name, one in parse_properties(text).items()}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (f"a.b=1\n{CANARY}\n", 2, "the line is not KEY=VALUE"),
        (f"a.b=1\n\n={CANARY}\n", 3, "the line has no key before its ="),
        (f"a.b={CANARY}\\u12", 1, "\\u without four hexadecimal digits after it"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_by_its_number(
    text: str, line: int, problem: str
) -> None:
    """The line may be the rest of a password: it is not shown."""
    with pytest.raises(PropertiesSyntaxError) as raised:
        parse_properties(text)
    assert (line, problem) == (raised.value.line, str(raised.value))


def escaped(text: str) -> str:
    """Return a text as Java's Properties.store writes it."""
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_java_has_stored_is_read(properties: dict[str, str]) -> None:
    """Any key and value in escapes comes back."""
    text = "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in properties.items())
    assert properties == {name: one.value for name, one in parse_properties(text).items()}


@given(st.text(alphabet=st.sampled_from("ab=: \\\t\n\r#!u0")))
def test_any_text_is_read_or_refused(text: str) -> None:
    """There is no other error, and lines are those of the text."""
    try:
        found = parse_properties(text)
    except PropertiesSyntaxError as error:
        lines = [error.line]
    else:
        lines = [one.line for one in found.values()]
    assert all(1 <= line <= len(text) + 1 for line in lines)


def test_a_value_is_not_shown() -> None:
    """Neither in the representation of a property, nor a name that may be a part of a password."""
    assert "Property(line=3)" == repr(Property(CANARY, 3))
    assert "sasl.password: why" == str(PropertyError("sasl.password", "why"))
    for name in (CANARY, '"Secret";', "secret", "x y.z"):
        assert "a name without a dot: why" == str(PropertyError(name, "why"))
        assert name == PropertyError(name, "why").name
