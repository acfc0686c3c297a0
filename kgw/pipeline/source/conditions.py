"""Conditions on columns that say which offsets need not be read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.pipeline.ranges import OffsetRange, TopicPartition

Operator: TypeAlias = Literal["=", "<", "<=", ">", ">=", "in"]


class Condition(NamedTuple):
    """One comparison of a column with a value, or values for `in`; times in milliseconds."""

    column: str
    operator: Operator
    value: Any

    def holds_for(self, number: Any) -> bool:
        """Whether a value of the column fulfils it."""
        match self.operator:
            case "=":
                return bool(number == self.value)
            case "<":
                return bool(number < self.value)
            case "<=":
                return bool(number <= self.value)
            case ">":
                return bool(number > self.value)
            case ">=":
                return bool(number >= self.value)
            case "in":
                return number in self.value


def may_hold(conditions: Iterable[Condition], key: TopicPartition) -> bool:
    """Whether a partition can have records that fulfil all conditions."""
    return all(
        one.holds_for(key.topic if one.column == "topic" else key.partition)
        for one in conditions
        if one.column in {"topic", "partition"}
    )


def narrow(conditions: Iterable[Condition], wanted: OffsetRange) -> OffsetRange:
    """Return the part of a range outside of which no offset fulfils the conditions on it."""
    first, end = wanted.first, wanted.end
    for one in conditions:
        if one.column == "offset":
            lowest, highest = _extent(one)
            first, end = max(first, lowest), min(end, highest + 1)
    return wanted._replace(first=min(first, wanted.end), end=max(end, wanted.first))


def least_timestamp_ms(conditions: Iterable[Condition]) -> int | None:
    """Return a time before which no record fulfils the conditions; None where there is none.

    There is no such bound at the other end: a late record may carry an early time.
    """
    times = [
        min(one.value) if one.operator == "in" else one.value
        for one in conditions
        if one.column == "timestamp" and one.operator in {"=", ">", ">=", "in"}
    ]
    return max(times) if times else None


_FAR = 1 << 63


def _extent(condition: Condition) -> tuple[int, int]:
    """Return the lowest and the highest number that fulfil a condition."""
    value = condition.value
    match condition.operator:
        case "=":
            return value, value
        case "<":
            return 0, value - 1
        case "<=":
            return 0, value
        case ">":
            return value + 1, _FAR
        case ">=":
            return value, _FAR
        case "in":
            return min(value, default=_FAR), max(value, default=-1)
