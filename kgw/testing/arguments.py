"""Checks the arguments that a test passes to a broker; errors name the argument and the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class ArgumentError(ValueError):
    """A test has passed an invalid argument; the message names it."""


def text(argument: str, given: Any) -> str:
    """Return a string argument. This function and the others raise ArgumentError."""
    if not isinstance(given, str):
        raise ArgumentError(f"{argument} is a string, not {given!r}")
    return given


def texts(argument: str, given: Any) -> list[str]:
    """Return an argument that is one string or several."""
    listed = [given] if isinstance(given, str) else _listed(argument, given)
    return [text(argument, one) for one in listed]


def whole_number(argument: str, given: Any) -> int:
    """Return an argument that is a whole number of 0 or more."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise ArgumentError(f"{argument} is a whole number, not {given!r}")
    if given < 0:
        raise ArgumentError(f"{argument} is 0 or more, not {given}")
    return given


def seconds(argument: str, given: Any) -> float:
    """Return an argument that is a number of seconds of 0 or more."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ArgumentError(f"{argument} is a number of seconds, not {given!r}")
    # `not >=` instead of `<`, so that NaN is refused, too.
    if not given >= 0:
        raise ArgumentError(f"{argument} is 0 or more, not {given:g}: time does not go back")
    return given


def data(argument: str, given: Any) -> bytes | None:
    """Return a key or value as bytes; a string is encoded in UTF-8."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)
    if not isinstance(given, str):
        raise ArgumentError(f"{argument} is bytes, a string or None, not {given!r}")
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{argument} cannot be written in UTF-8: {error.reason}") from None


def values(argument: str, given: Any) -> list[bytes | None]:
    """Return the values of several records as bytes."""
    if isinstance(given, (bytes, bytearray, memoryview, str)):
        raise ArgumentError(f"{argument} is a list of records, not one: [{given!r}]")
    return [
        data(f"{argument}[{number}]", one) for number, one in enumerate(_listed(argument, given))
    ]


def headers(argument: str, given: Any) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record, which are given as pairs or as a dict."""
    found = []
    pairs = given.items() if hasattr(given, "items") else given
    for number, pair in enumerate(_listed(argument, pairs)):
        where = f"{argument}[{number}]"
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f'{where} is a pair, as ("trace", b"1"), not {pair!r}')
        found.append(
            (text(f"the name in {where}", pair[0]), data(f"the value in {where}", pair[1]))
        )
    return found


def _listed(argument: str, given: Any) -> Iterable[Any]:
    if hasattr(given, "items") or isinstance(given, (bytes, str)) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"{argument} is a list, not {given!r}")
    found: Iterable[Any] = given
    return found
