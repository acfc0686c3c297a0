"""Packed arrays: arrays of many similar elements that are kept as columns of bytes.

A client that commits a thousand partitions sends an array of elements with a few numbers and the
same short text in each. To create an object for each element took most of the time of such a
request. An array can be packed if all its elements have the same size, and the same bytes after
their numbers. Then each column of numbers is cut out with slices, without a loop over the elements.
`PackedItems` behaves like a list of the elements; tests/protocol/test_packed.py compares the two.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from kgw.protocol.layout import FIXED_FORMATS, FIXED_SIZES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.protocol.primitives import Buffer
    from kgw.protocol.schema import Struct

LONGEST_TEXT_BYTES = 100
_INT16 = Layout(">h")


class PackedItems(Sequence[Any]):
    """A packed array: columns of big-endian numbers, by field, and the text of all elements."""

    __slots__ = ("_cls", "_length", "_text_field", "columns", "text")

    def __init__(
        self,
        cls: type[Struct],
        count: int,
        columns: dict[str, bytes],
        text_field: str,
        text: str | None,
    ) -> None:
        self._cls = cls
        self._text_field = text_field
        self._length = count
        self.columns = columns
        self.text = text

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        numbers = {name: numbers_of(column, len(self)) for name, column in self.columns.items()}
        for values in zip(*numbers.values(), strict=True):
            fields = dict(zip(numbers, values, strict=True))
            yield self._cls(**fields, **{self._text_field: self.text})


def numbers_of(column: bytes, count: int) -> array[int]:
    """Return the `count` numbers of a column, each of which has four or eight bytes."""
    numbers = array("i" if len(column) == 4 * count else "q", column)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def column_at(rows: bytes, position: int, size: int, stride: int) -> bytes:
    """Return the bytes `position` to `position + size` of every row of `stride` bytes."""
    column = bytearray(len(rows) // stride * size)
    for number in range(size):
        column[number::size] = rows[position + number :: stride]
    return bytes(column)


class PackedReader:
    """Reads packed arrays of one structure, which has numbers of fixed width, then one string."""

    def __init__(self, cls: type[Struct], version: int, *, flexible: bool) -> None:
        """Raises ValueError if the structure has other fields."""
        *fixed, (self._text_field, text) = [
            (name, field) for name, field in cls.field_table.items() if field.present(version)
        ]
        if text.kind != "string" or any(
            FIXED_SIZES.get(one.kind) not in {4, 8} for _, one in fixed
        ):
            raise ValueError(f"{cls.__name__} is not numbers and a text")
        self._cls = cls
        self._flexible = flexible
        self._is_nullable = text.nullable(version)
        self._sizes = {name: FIXED_SIZES[field.kind] for name, field in fixed}
        self._numbers_bytes = Layout(
            ">" + "".join(FIXED_FORMATS[field.kind] for _, field in fixed)
        ).size

    def __call__(self, buffer: Buffer, position: int, count: int) -> tuple[PackedItems, int] | None:
        """Return the array whose elements begin at `position`, and the position after it.

        None if the array cannot be packed or is malformed: then its elements are read one by one.
        """
        text_position = position + self._numbers_bytes
        if text_position + _INT16.size > len(buffer):
            return None
        if self._flexible:
            text_bytes = buffer[text_position] - 1
            begin, tags_bytes = text_position + 1, 1
        else:
            (text_bytes,) = _INT16.unpack_from(buffer, text_position)
            begin, tags_bytes = text_position + _INT16.size, 0
        if not (-1 if self._is_nullable else 0) <= text_bytes <= LONGEST_TEXT_BYTES:
            return None
        end = begin + max(0, text_bytes)
        stride = end + tags_bytes - position
        rows = bytes(buffer[position : position + stride * count])
        if len(rows) != stride * count or (tags_bytes and rows[stride - 1]):
            return None
        for number in range(self._numbers_bytes, stride):
            if rows[number::stride] != rows[number : number + 1] * count:
                return None
        text = None
        if text_bytes >= 0:
            text = str(rows[begin - position : end - position], "utf-8", "replace")
        columns, number = {}, 0
        for name, size in self._sizes.items():
            columns[name] = column_at(rows, number, size, stride)
            number += size
        items = PackedItems(self._cls, count, columns, self._text_field, text)
        return items, position + stride * count
