"""Parses Java's properties files, as Kafka's clients and tools take them.

No error text contains a value, or a part of a line: both may be a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kgw.config.setting import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_DOTTED_NAME = re.compile(r"[a-z]+(?:[._-][a-z0-9]+)+")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


class PropertyError(ConfigError):
    """A property has an invalid value, or is not known; `name` is the property's name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{shown_name(name)}: {problem}")
        self.name = name


class PropertiesSyntaxError(ConfigError):
    """A line of a properties file cannot be read. Lines are counted from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class Property(NamedTuple):
    """A value, and the number of the line on which the property begins."""

    value: str
    line: int

    def __repr__(self) -> str:
        """Hide the value, which may be a password."""
        return f"Property(line={self.line})"


def shown_name(name: str) -> str:
    """Return a property's name for an error text; a substitute if it may be a password."""
    return name if _DOTTED_NAME.fullmatch(name) else "a name without a dot"


def parse_properties(text: str) -> dict[str, Property]:
    """Parse a properties file: `key=value` or `key: value`, comments, continuation lines, escapes.

    As in Java, the last one of several lines with the same key counts. Raises
    PropertiesSyntaxError.
    """
    found: dict[str, Property] = {}
    for line, content in _logical_lines(text):
        key = _KEY.match(content)
        end = 0 if key is None else key.end()
        separator = _SEPARATOR.match(content, end)
        start = end if separator is None else separator.end()
        if start == end:
            raise PropertiesSyntaxError(line, "the line is not KEY=VALUE")
        name = _unescape(content[:end], line)
        if not name:
            raise PropertiesSyntaxError(line, "the line has no key before its =")
        found[name] = Property(_unescape(content[start:], line), line)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not empty and no comment, joined with its continuation lines."""
    begun = 0
    parts: list[str] = []
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        content = natural.lstrip(_BLANK)
        if not parts:
            if not content or content[0] in "#!":
                continue
            begun = number
        backslashes = len(content) - len(content.rstrip("\\"))
        if backslashes % 2:
            parts.append(content[:-1])
            continue
        yield begun, "".join((*parts, content))
        parts = []
    if parts:
        yield begun, "".join(parts)


def _unescape(text: str, line: int) -> str:
    """Replace the escapes of a key or value. Raises PropertiesSyntaxError."""
    if "\\" not in text:
        return text
    parts, position = [], 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        escaped = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if escaped == "u":
            digits = _UNICODE.match(text, position)
            if digits is None:
                raise PropertiesSyntaxError(line, "\\u without four hexadecimal digits after it")
            parts.append(chr(int(digits[0], 16)))
            position = digits.end()
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    parts.append(text[position:])
    # Java writes a character beyond 16 bits as two escapes.
    joined = "".join(parts)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
