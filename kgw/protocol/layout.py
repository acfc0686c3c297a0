"""Formats, sizes and memory costs of kinds of fields, for the generators of codecs."""

from __future__ import annotations

from struct import calcsize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.protocol.schema import Field, Struct

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""`struct` formats of the kinds whose size does not depend on the value."""

FIXED_SIZES = {kind: calcsize(f">{code}") for kind, code in FIXED_FORMATS.items()}

# The most bytes that CPython 3.11 allocates for a value of a kind, rounded up to its allocator's
# size classes. Small integers and empty strings are shared objects and take none.
_VALUE_COSTS = {
    "bool": 0,
    "int8": 0,
    "int16": 32,
    "uint16": 32,
    "int32": 32,
    "int64": 48,
    "float64": 32,
    "uuid": 64,
    "string": 0,
    "bytes": 0,
    "records": 192,
}
# The memory of a non-empty string or byte string in addition to its content. It is charged when the
# string is read, as most optional strings are empty or null.
TEXT_COST = 80
# Empty strings take no memory, but decoding a request with 500,000 of them took 100 ms.
_LEAST_TEXT_ELEMENT_COST = 64
_LIST_COST = 64
# A pointer in a list, which allocates an eighth more than it needs when it grows.
_LIST_SLOT_COST = 9


def minimum_size(cls: type[Struct], version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that can encode this structure."""
    size = 1 if flexible else 0
    for field in cls.field_table.values():
        if field.present(version) and field.tag is None:
            size += _minimum_field_size(field, version, flexible=flexible)
    return size


def minimum_item_size(item: str | type[Struct], version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that can encode one element of an array; at least one."""
    if isinstance(item, str):
        return FIXED_SIZES.get(item) or _length_size(item, flexible=flexible)
    return max(1, minimum_size(item, version, flexible=flexible))


def _minimum_field_size(field: Field, version: int, *, flexible: bool) -> int:
    if field.kind in FIXED_SIZES:
        return FIXED_SIZES[field.kind]
    if field.kind == "struct":
        if field.nullable(version):
            return 1
        return minimum_size(field.item, version, flexible=flexible)
    return _length_size(field.kind, flexible=flexible)


def _length_size(kind: str, *, flexible: bool) -> int:
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def item_memory_cost(item: str | type[Struct], version: int) -> int:
    """Return the most bytes of memory that a decoded array element takes.

    Strings and array elements within it are not included: they are charged when they are read.
    """
    if isinstance(item, str):
        cost = _LIST_SLOT_COST + _VALUE_COSTS[item]
        return cost if item in FIXED_FORMATS else max(cost, _LEAST_TEXT_ELEMENT_COST)
    return _LIST_SLOT_COST + _struct_memory_cost(item, version)


def _struct_memory_cost(cls: type[Struct], version: int) -> int:
    # The headers of the object and the garbage collector, and a pointer for each slot.
    cost = 32 + (8 * len(cls.field_table) + 15) // 16 * 16
    for field in cls.field_table.values():
        if field.kind == "array":
            cost += _LIST_COST
        elif field.kind == "struct":
            cost += _struct_memory_cost(field.item, version)
        elif field.present(version):
            cost += _VALUE_COSTS[field.kind]
    return cost
