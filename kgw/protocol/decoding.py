"""Writes the decoder of one (message, version) as Python source, and compiles it.

All nested structures are inlined into one function; consecutive fixed-width fields, including a
length after them, are read with one `struct` call. docs/decisions/0001-generated-codecs.md has the
measurements behind this.

The function is `decode(buffer, position, budget) -> (message, position)`, or a generator that
returns the same and yields after each `ELEMENTS_PER_TURN` array elements, so that the event loop
can run other tasks. `budget` is the memory in bytes that array elements may take; see `codec`. The
function raises DecodeError, struct.error or IndexError, all of which mean malformed bytes. A string
that is not UTF-8 is no error: see `kgw.types.REPLACEMENT`.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from kgw.errors import DecodeError
from kgw.protocol.code_writer import CodeWriter
from kgw.protocol.layout import (
    FIXED_FORMATS,
    FIXED_SIZES,
    TEXT_COST,
    item_memory_cost,
    minimum_item_size,
)
from kgw.protocol.primitives import (
    MAX_STRING_BYTES,
    MAX_TAGGED_FIELDS,
    read_unsigned_varint,
    skip_tagged_fields,
)
from kgw.protocol.schema import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.protocol.primitives import Buffer
    from kgw.protocol.schema import Field, Message, Struct


ELEMENTS_PER_TURN = 1_000
"""How many array elements are decoded between two yields. An element takes 0.5 to 2 us."""

_EMPTY_TEXTS = {"string": "", "bytes": b""}


def compile_decoder(
    message: type[Message],
    version: int,
    *,
    flexible: bool,
    in_turns: bool = False,
) -> Callable[[Buffer, int, int], Any]:
    """Return the function that decodes a version of a message; with `in_turns`, the generator."""
    writer = _DecoderWriter(version, flexible=flexible, in_turns=in_turns)
    return writer.compile("decode", writer.write(message))


class _DecoderWriter(CodeWriter):
    """Collects the lines of one decoder.

    Fixed-width fields are collected in `pending`; `_flush` writes the code that reads all of them
    with one call. Code that needs a value, or changes the position, is written after a flush.
    """

    def __init__(self, version: int, *, flexible: bool, in_turns: bool) -> None:
        super().__init__(
            version,
            flexible=flexible,
            DecodeError=DecodeError,
            new=object.__new__,
            read_unsigned_varint=read_unsigned_varint,
            skip_tagged_fields=skip_tagged_fields,
            unpack_from=unpack_from,
        )
        self.in_turns = in_turns
        self.pending: list[tuple[str, int, str]] = []
        # The nesting depth of arrays. Fields outside of arrays are not charged to the budget.
        self.arrays = 0

    def write(self, message: type[Message]) -> str:
        self._struct(message, "message")
        self._flush()
        body = "\n".join(self.lines)
        view = ""
        if "view[" in body:
            view = "    view = buffer if type(buffer) is memoryview else memoryview(buffer)\n"
        turn = ""
        if self.in_turns:
            # This yield is never reached. It makes the function a generator even if the message
            # has no arrays, and so no other yield.
            turn = f"    left = {ELEMENTS_PER_TURN}\n    if left < 0:\n        yield\n"
        return (
            "def decode(buffer, position, budget):\n"
            "    end = len(buffer)\n"
            f"{turn}{view}{body}\n"
            "    return message, position\n"
        )

    def _fail_if(self, condition: str, name: str, problem: str) -> None:
        """Write the code that raises DecodeError for a field or structure, if a condition holds."""
        self._line(f"if {condition}:")
        self._line(f'    raise DecodeError("{name}: {problem}")')

    def _fixed(self, code: str, size: int, target: str) -> None:
        self.pending.append((code, size, target))

    def _flush(self) -> None:
        if not self.pending:
            return
        size = sum(size for _, size, _ in self.pending)
        if [code for code, _, _ in self.pending] == ["B"]:
            self._line(f"{self.pending[0][2]} = buffer[position]")
        else:
            layout = Layout(">" + "".join(code for code, _, _ in self.pending))
            targets = ", ".join(target for _, _, target in self.pending)
            comma = "," if len(self.pending) == 1 else ""
            unpack = self._constant("unpack", layout.unpack_from)
            self._line(f"{targets}{comma} = {unpack}(buffer, position)")
        self._line(f"position += {size}")
        self.pending.clear()

    # Structures

    def _struct(self, cls: type[Struct], target: str) -> None:
        """Write the code that creates an instance of `cls` and reads all its fields."""
        self._flush()
        constant = self._constant("cls", cls)
        self._line(f"{target} = new({constant})")
        tagged = {}
        for name, field in cls.field_table.items():
            if not field.present(self.version):
                self._default(field, f"{target}.{name}")
            elif field.tag is not None:
                tagged[field.tag] = (name, field)
                self._default(field, f"{target}.{name}")
            else:
                self._field(name, field, f"{target}.{name}")
        if self.flexible:
            self._tagged_fields(cls, target, tagged)

    def _default(self, field: Field, target: str) -> None:
        if field.default is not EMPTY:
            self._line(f"{target} = {self._literal(field.default)}")
        elif field.kind == "struct":
            self._line(f"{target} = {self._constant('cls', field.item)}()")
        else:
            self._line(f"{target} = []")

    def _literal(self, value: object) -> str:
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        return self._constant("default", value)

    def _tagged_fields(
        self, cls: type[Struct], target: str, tagged: dict[int, tuple[str, Field]]
    ) -> None:
        count = self._name("count")
        self._fixed("B", 1, count)
        self._flush()
        self._line(f"if {count}:")
        self.depth += 1
        if not tagged:
            self._line("position = skip_tagged_fields(buffer, position - 1, end)")
        else:
            self._known_tags(cls, target, tagged, count)
        self.depth -= 1

    def _known_tags(
        self,
        cls: type[Struct],
        target: str,
        tagged: dict[int, tuple[str, Field]],
        count: str,
    ) -> None:
        tag, previous = self._name("tag"), self._name("previous")
        size, stop = self._name("size"), self._name("stop")
        self._line(f"if {count} > 127:")
        self._line(f"    {count}, position = read_unsigned_varint(buffer, position - 1)")
        too_many = f"{count} > {MAX_TAGGED_FIELDS}"
        self._fail_if(too_many, cls.__name__, f"more than {MAX_TAGGED_FIELDS} tagged fields")
        self._line(f"{previous} = -1")
        self._line(f"for _ in range({count}):")
        self.depth += 1
        self._line(f"{tag}, position = read_unsigned_varint(buffer, position)")
        self._line(f"{size}, position = read_unsigned_varint(buffer, position)")
        self._line(f"{stop} = position + {size}")
        is_wrong = f"{tag} <= {previous} or {stop} > end"
        self._fail_if(is_wrong, cls.__name__, "tagged fields truncated or out of order")
        self._line(f"{previous} = {tag}")
        branch = "if"
        for number, (name, field) in sorted(tagged.items()):
            self._line(f"{branch} {tag} == {number}:")
            self.depth += 1
            self._field(name, field, f"{target}.{name}")
            self._flush()
            self._fail_if(f"position != {stop}", name, "a size that is not its own")
            self.depth -= 1
            branch = "elif"
        self._line("else:")
        self._line(f"    position = {stop}")
        self.depth -= 1

    # Fields

    def _field(self, name: str, field: Field, target: str) -> None:
        """Write the code that reads one field into `target`."""
        nullable = field.nullable(self.version)
        if field.kind in FIXED_FORMATS:
            self._fixed(FIXED_FORMATS[field.kind], FIXED_SIZES[field.kind], target)
        elif field.kind == "struct":
            self._struct_field(field, target, nullable=nullable)
        elif field.kind == "array":
            self._array(name, field, target, nullable=nullable)
        else:
            self._sized(name, field.kind, target, nullable=nullable)

    def _struct_field(self, field: Field, target: str, *, nullable: bool) -> None:
        item = self._name("item")
        if not nullable:
            self._struct(field.item, item)
            self._flush()
            self._line(f"{target} = {item}")
            return
        mark = self._name("mark")
        self._fixed("b", 1, mark)
        self._flush()
        self._line(f"if {mark} < 0:")
        self._line(f"    {target} = None")
        self._line("else:")
        self.depth += 1
        self._struct(field.item, item)
        self._flush()
        self._line(f"{target} = {item}")
        self.depth -= 1

    def _length(self, name: str, kind: str, target: str, *, nullable: bool) -> str:
        """Write the code that reads a length; leave `depth` inside the branch for non-null values.

        Return an expression for the length. If the field is nullable, the caller's code is inside
        an `else`, and the caller must decrease `depth` after it.
        """
        length = self._name("length")
        if self.flexible:
            self._fixed("B", 1, length)
            self._flush()
            self._line(f"if {length} > 127:")
            if kind == "records":
                # Most lengths of records have two bytes, which inline code reads faster.
                self._line("    byte = buffer[position]")
                self._line("    if byte < 128:")
                self._line(f"        {length} += (byte - 1) * 128")
                self._line("        position += 1")
                self._line("    else:")
                self.depth += 1
            self._line(f"    {length}, position = read_unsigned_varint(buffer, position - 1)")
            if kind == "records":
                self.depth -= 1
            null, offset = f"not {length}", 1
        else:
            code, size = ("h", 2) if kind == "string" else ("i", 4)
            self._fixed(code, size, length)
            self._flush()
            null, offset = f"{length} == -1", 0
        if nullable:
            self._line(f"if {null}:")
            self._line(f"    {target} = None")
            self._line("else:")
            self.depth += 1
        if not self.flexible:
            self._fail_if(f"{length} < 0", name, "negative length")
        elif not nullable:
            self._fail_if(null, name, "null is not allowed")
        return f"{length} - {offset}" if offset else length

    def _sized(self, name: str, kind: str, target: str, *, nullable: bool) -> None:
        """Write the code that reads a string, bytes or records."""
        length = self._length(name, kind, target, nullable=nullable)
        if kind != "records":
            # Most texts of large arrays are empty, and to copy an empty slice takes 0.15 us.
            self._line(f"if {length} == 0:")
            self._line(f"    {target} = {_EMPTY_TEXTS[kind]!r}")
            self._line("else:")
            self.depth += 1
        self._line(f"stop = position + {length}")
        condition = "stop > end"
        if kind == "string" and self.flexible:
            condition += f" or {length} > {MAX_STRING_BYTES}"
        if kind != "records" and self.arrays:
            self._line(f"budget -= {TEXT_COST}")
            condition += " or budget < 0"
        self._fail_if(condition, name, "truncated or too long")
        if kind == "string":
            self._line(f'{target} = str(buffer[position:stop], "utf-8", "replace")')
        elif kind == "bytes":
            self._line(f"{target} = bytes(buffer[position:stop])")
        else:
            self._line(f"{target} = view[position:stop]")
        self._line("position = stop")
        if kind != "records":
            self.depth -= 1
        if nullable:
            self.depth -= 1

    def _array(self, name: str, field: Field, target: str, *, nullable: bool) -> None:
        item: Any = field.item
        length = self._length(name, "array", target, nullable=nullable)
        count = self._name("count")
        size = minimum_item_size(item, self.version, flexible=self.flexible)
        cost = item_memory_cost(item, self.version)
        self._line(f"{count} = {length}")
        self._fail_if(f"{count} * {size} > end - position", name, "more elements than bytes")
        self._line(f"budget -= {count} * {cost}")
        self._fail_if("budget < 0", name, "too many elements for a message of this size")
        if isinstance(item, str) and item in FIXED_FORMATS and item != "uuid":
            code = FIXED_FORMATS[item]
            self._line(f'{target} = list(unpack_from(f">{{{count}}}{code}", buffer, position))')
            self._line(f"position += {count} * {size}")
        else:
            element, append = self._name("element"), self._name("append")
            self._line(f"{target} = []")
            self._line(f"{append} = {target}.append")
            self._line(f"for _ in range({count}):")
            self.depth += 1
            self.arrays += 1
            if not isinstance(item, str):
                self._struct(item, element)
            elif item == "uuid":
                self._fixed("16s", 16, element)
            else:
                self._sized(name, item, element, nullable=False)
            self._flush()
            self._line(f"{append}({element})")
            if self.in_turns:
                self._line("left -= 1")
                self._line("if not left:")
                self._line(f"    left = {ELEMENTS_PER_TURN}")
                self._line("    yield")
            self.arrays -= 1
            self.depth -= 1
        if nullable:
            self.depth -= 1
