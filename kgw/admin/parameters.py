"""Declares the parameters of queries, and checks them before an endpoint runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_FIELDS = 20
MAX_VALUE_CHARACTERS = 1_000
DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
LONG_MAX = (1 << 63) - 1


class ParameterError(ValueError):
    """A query has an invalid parameter; the message has one line."""


class Parameter(NamedTuple):
    """One parameter of an endpoint."""

    name: str
    help: str
    is_number: bool = False
    minimum: int = 0
    maximum: int = LONG_MAX
    is_required: bool = False


LIMIT = Parameter(
    "limit",
    f"How many entries to return, {DEFAULT_LIMIT} unless told.",
    is_number=True,
    minimum=1,
    maximum=MAX_LIMIT,
)
AFTER = Parameter("after", "Where to go on: `next` of the answer before.")
GROUP = Parameter("group", "Only this group.")
TOPIC = Parameter("topic", "Only this topic.")
PARTITION = Parameter("partition", "Only this partition.", is_number=True, maximum=(1 << 31) - 1)


class QueryParameters(NamedTuple):
    """The parameters of one query. A parameter that was not given is None."""

    texts: dict[str, str]
    numbers: dict[str, int]

    def text(self, parameter: Parameter) -> str | None:
        return self.texts.get(parameter.name)

    def number(self, parameter: Parameter) -> int | None:
        return self.numbers.get(parameter.name)

    @property
    def limit(self) -> int:
        """The most entries of the response."""
        return self.numbers.get(LIMIT.name, DEFAULT_LIMIT)


def parse_query(query_string: bytes, parameters: Sequence[Parameter]) -> QueryParameters:
    """Parse the parameters of a query.

    Raises ParameterError for a parameter that is unknown, repeated, missing, too long, or not a
    number or UTF-8 text as required: a mistyped filter must not give a wrong result.
    """
    try:
        given = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError as error:
        raise ParameterError(f"not a query: {error}") from None
    known = {one.name: one for one in parameters}
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for name, value in given:
        parameter = known.get(name)
        if parameter is None:
            names = ", ".join(known) or "no parameters"
            raise ParameterError(f"there is no parameter {name[:100]!r} here; known: {names}")
        if name in texts:
            raise ParameterError(f"{name} was given twice")
        if len(value) > MAX_VALUE_CHARACTERS:
            raise ParameterError(f"{name} is longer than {MAX_VALUE_CHARACTERS} characters")
        texts[name] = value
        if parameter.is_number:
            numbers[name] = _number(parameter, value)
    for parameter in parameters:
        if parameter.is_required and parameter.name not in texts:
            raise ParameterError(f"{parameter.name} is needed")
    return QueryParameters(texts, numbers)


def _number(parameter: Parameter, value: str) -> int:
    # int() alone would accept underscores, spaces and digits of other scripts.
    is_number = value.isascii() and value.isdigit() and len(value) <= len(str(LONG_MAX))
    if not is_number or not parameter.minimum <= int(value) <= parameter.maximum:
        raise ParameterError(
            f"{parameter.name} is a number from {parameter.minimum} to {parameter.maximum}"
        )
    return int(value)
