"""Spark's filters as conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kgw.pipeline.source.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from kgw.pipeline.source.conditions import Operator

_OPERATORS: Final[dict[type[Filter], Operator]] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
}
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_always_true(one: Filter) -> bool:
    """Whether every record fulfils a filter."""
    return isinstance(one, IsNotNull) and one.attribute[0] in _NEVER_NULL


def condition_of(one: Filter) -> Condition | None:
    """Return what a filter says of partitions and offsets; None where it says nothing of them."""
    operator = _OPERATORS.get(type(one))
    if operator is None or len(one.attribute) != 1:  # type: ignore[attr-defined] # each of those has it
        return None
    (column,) = one.attribute  # type: ignore[attr-defined]
    value: Any = one.value  # type: ignore[attr-defined]
    values = value if operator == "in" else (value,)
    if column == "topic":
        fits = operator in {"=", "in"} and all(isinstance(each, str) for each in values)
    elif column == "timestamp":
        fits = all(isinstance(each, datetime) and each.tzinfo is not None for each in values)
        if fits:
            values = [_milliseconds(each) for each in values]
    else:
        fits = column in {"partition", "offset"} and all(type(each) is int for each in values)
    if not fits:
        return None
    return Condition(column, operator, tuple(values) if operator == "in" else values[0])


def is_exact(condition: Condition) -> bool:
    """Whether the ranges leave out every record that does not fulfil a condition."""
    if condition.column == "offset":
        return condition.operator != "in"
    return condition.column != "timestamp"


def _milliseconds(when: datetime) -> int:
    """Return whole milliseconds since 1970, rounded down."""
    passed = when - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000
