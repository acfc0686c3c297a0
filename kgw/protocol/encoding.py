"""Writes the encoder of one (message, version) as Python source, and compiles it.

The function is `encode(message) -> list of buffers`: one buffer, or several if records are large
enough to be passed by reference. It raises EncodeError if the version cannot encode a value of the
message. AttributeError, TypeError, ValueError and struct.error mean that a field has a value of the
wrong type.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack
from typing import TYPE_CHECKING, Any

from kgw.errors import EncodeError
from kgw.protocol.code_writer import CodeWriter
from kgw.protocol.layout import FIXED_FORMATS
from kgw.protocol.primitives import MAX_STRING_BYTES, unsigned_varint
from kgw.protocol.schema import EncodedItems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.protocol.primitives import Buffer
    from kgw.protocol.schema import Field, Message, Struct

GATHER_BYTES = 4096
"""Records of at least this size are passed by reference; smaller ones are cheaper to copy."""


def compile_encoder(
    message: type[Message], version: int, *, flexible: bool
) -> Callable[[Any], list[Buffer]]:
    """Return the function that encodes a version of a message."""
    writer = _EncoderWriter(version, flexible=flexible)
    return writer.compile("encode", writer.write(message))


def compile_items_encoder(
    item: type[Struct], version: int, *, flexible: bool
) -> Callable[[Iterable[Any]], list[Buffer]]:
    """Return a function that encodes structures as elements of an array, without its length."""
    writer = _EncoderWriter(version, flexible=flexible)
    return writer.compile("encode", writer.write_items(item))


def _check_string(size: int, name: str) -> None:
    if size > MAX_STRING_BYTES:
        raise EncodeError(f"{name}: a string of {size} bytes: {MAX_STRING_BYTES} are allowed")


def _holds_records(item: type[Struct]) -> bool:
    """Return whether a structure has a field of records, which may be passed by reference."""
    return any(
        field.kind == "records" or (isinstance(field.item, type) and _holds_records(field.item))
        for field in item.field_table.values()
    )


class _EncoderWriter(CodeWriter):
    """Collects the lines of one encoder.

    Fixed-width fields are collected in `pending`; `_flush` writes the code that packs all of them
    with one call. Code for other fields is written after a flush. The generated code collects
    buffers in the list `out`, and each tagged field in its own list, because its size precedes it.
    """

    def __init__(self, version: int, *, flexible: bool) -> None:
        super().__init__(
            version,
            flexible=flexible,
            EncodeError=EncodeError,
            EncodedItems=EncodedItems,
            check_string=_check_string,
            pack=pack,
            pack_int16=Layout(">h").pack,
            pack_int32=Layout(">i").pack,
            small_varints=tuple(unsigned_varint(value) for value in range(0x80)),
            unsigned_varint=unsigned_varint,
        )
        self.pending: list[tuple[str, str | None]] = []
        self.append = "append"

    def write(self, message: type[Message]) -> str:
        self._struct(message, "message")
        self._flush()
        body = "\n".join(self.lines)
        if "parts." in body:
            return (
                "def encode(message):\n"
                "    parts = []\n"
                "    out = []\n"
                "    append = out.append\n"
                f"{body}\n"
                "    if out:\n"
                '        parts.append(b"".join(out))\n'
                "    return parts\n"
            )
        return (
            "def encode(message):\n"
            "    out = []\n"
            "    append = out.append\n"
            f"{body}\n"
            '    return [b"".join(out)]\n'
        )

    def write_items(self, item: type[Struct]) -> str:
        self.depth = 2
        self._struct(item, "item")
        self._flush()
        body = "\n".join(self.lines)
        return (
            "def encode(items):\n"
            "    parts = []\n"
            "    out = []\n"
            "    append = out.append\n"
            "    for item in items:\n"
            f"{body}\n"
            '    parts.append(b"".join(out))\n'
            "    return parts\n"
        )

    def _flush(self) -> None:
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        values = [value for _, value in self.pending if value is not None]
        if values:
            function = self._constant("pack", Layout(">" + codes).pack)
            self._line(f"{self.append}({function}({', '.join(values)}))")
        else:
            self._line(f"{self.append}({bytes(len(codes))!r})")
        self.pending.clear()

    # Structures

    def _struct(self, cls: type[Struct], source: str) -> None:
        """Write the code that appends all fields of the structure called `source`."""
        tagged = []
        for name, field in cls.field_table.items():
            value = f"{source}.{name}"
            if not field.present(self.version):
                if not field.ignorable:
                    self._flush()
                    self._line(f"if {self._differs(field, value)}:")
                    self._line(
                        f'    raise EncodeError("{name}: version {self.version} has no such field")'
                    )
            elif field.tag is not None:
                tagged.append((field.tag, name, field))
            else:
                self._field(name, field, value)
        if self.flexible:
            if tagged:
                self._tagged_fields(sorted(tagged, key=lambda entry: entry[0]), source)
            else:
                # "x" packs one zero byte: no tagged fields.
                self.pending.append(("x", None))

    def _differs(self, field: Field, value: str) -> str:
        """Return an expression that is true unless the value is the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.kind == "array":
            # None is not the default, so it must not be dropped without an error either.
            return value if field.nullable_since is None else f"{value} != []"
        if field.kind == "struct":
            item: Any = field.item
            return " or ".join(
                self._differs(inner, f"{value}.{name}") for name, inner in item.field_table.items()
            )
        if field.nullable_since is None and field.default in {0, "", b""}:
            return value
        return f"{value} != {self._literal(field.default)}"

    def _literal(self, value: object) -> str:
        if isinstance(value, (bool, int, str)):
            return repr(value)
        return self._constant("default", value)

    def _tagged_fields(self, tagged: list[tuple[int, str, Field]], source: str) -> None:
        self._flush()
        conditions = [self._differs(field, f"{source}.{name}") for _, name, field in tagged]
        self._line(f"if {' or '.join(conditions)}:")
        self.depth += 1
        sections = self._name("sections")
        outer, self.append = self.append, self._name("append")
        self._line(f"{sections} = []")
        for (tag, name, field), condition in zip(tagged, conditions, strict=True):
            section = self._name("section")
            self._line(f"if {condition}:")
            self.depth += 1
            self._line(f"{section} = []")
            self._line(f"{self.append} = {section}.append")
            self._field(name, field, f"{source}.{name}")
            self._flush()
            self._line(f'{section} = b"".join({section})')
            self._line(
                f"{sections} += "
                f"{unsigned_varint(tag)!r}, unsigned_varint(len({section})), {section}"
            )
            self.depth -= 1
        self.append = outer
        self._line(f"{self.append}(unsigned_varint(len({sections}) // 3))")
        self._line(f'{self.append}(b"".join({sections}))')
        self.depth -= 1
        self._line("else:")
        self._line(f'    {self.append}(b"\\x00")')

    # Fields

    def _field(self, name: str, field: Field, value: str) -> None:
        nullable = field.nullable(self.version)
        if field.kind == "uuid":
            self._uuid(name, value)
        elif field.kind in FIXED_FORMATS:
            self.pending.append((FIXED_FORMATS[field.kind], value))
        elif field.kind == "struct":
            self._struct_field(name, field, value, nullable=nullable)
        elif field.kind == "array":
            self._array(name, field, value, nullable=nullable)
        else:
            self._sized(name, field.kind, value, nullable=nullable)

    def _uuid(self, name: str, value: str) -> None:
        # `struct` would truncate or pad the value without an error.
        self._flush()
        self._line(f"if len({value}) != 16:")
        self._line(f'    raise EncodeError("{name}: a UUID has 16 bytes")')
        self.pending.append(("16s", value))

    def _struct_field(self, name: str, field: Field, value: str, *, nullable: bool) -> None:
        item: Any = field.item
        inner = self._name("item")
        self._flush()
        self._line(f"{inner} = {value}")
        if nullable:
            self._line(f"if {inner} is None:")
            self._line(f'    {self.append}(b"\\xff")')
            self._line("else:")
            self.depth += 1
            self._line(f'{self.append}(b"\\x01")')
        self._struct(item, inner)
        self._flush()
        if nullable:
            self.depth -= 1

    def _begin(self, kind: str, value: str, *, nullable: bool) -> str:
        """Write the branch for null. Leave `depth` inside the branch for other values.

        Return the name of a variable that holds the value.
        """
        self._flush()
        name = self._name("value")
        self._line(f"{name} = {value}")
        if nullable:
            if self.flexible:
                null = b"\0"
            else:
                null = b"\xff\xff" if kind == "string" else b"\xff\xff\xff\xff"
            self._line(f"if {name} is None:")
            self._line(f"    {self.append}({null!r})")
            self._line("else:")
            self.depth += 1
        return name

    def _length(self, kind: str, length: str, name: str = "") -> None:
        """Write the code that appends a length or count held by the variable `length`."""
        if self.flexible:
            self._line(f"if {length} < 127:")
            self._line(f"    {self.append}(small_varints[{length} + 1])")
            self._line("else:")
            if kind == "string":
                self._line(f'    check_string({length}, "{name}")')
            self._line(f"    {self.append}(unsigned_varint({length} + 1))")
        elif kind == "string":
            self._line(f"{self.append}(pack_int16({length}))")
        else:
            self._line(f"{self.append}(pack_int32({length}))")

    def _sized(self, name: str, kind: str, value: str, *, nullable: bool) -> None:
        """Write the code that appends a string, bytes or records."""
        local = self._begin(kind, value, nullable=nullable)
        if kind == "records":
            self._records(local)
        else:
            if kind == "string":
                self._line(f"{local} = {local}.encode()")
            length = self._name("length")
            self._line(f"{length} = len({local})")
            self._length(kind, length, name)
            self._line(f"{self.append}({local})")
        if nullable:
            self.depth -= 1

    def _records(self, local: str) -> None:
        length = self._name("length")
        self._line(f"if not isinstance({local}, (list, tuple)):")
        self._line(f"    {local} = ({local},)")
        self._line(f"{length} = sum(map(len, {local}))")
        self._length("records", length)
        self._line(f"if {length} >= {GATHER_BYTES}:")
        self._line('    parts.append(b"".join(out))')
        self._line("    out.clear()")
        self._line(f"    parts.extend({local})")
        self._line("else:")
        self._line(f"    out.extend({local})")

    def _array(self, name: str, field: Field, value: str, *, nullable: bool) -> None:
        item: Any = field.item
        local = self._begin("array", value, nullable=nullable)
        length = self._name("length")
        self._line(f"{length} = len({local})")
        self._length("array", length)
        if isinstance(item, str) and item in FIXED_FORMATS and item != "uuid":
            code = FIXED_FORMATS[item]
            self._line(f'{self.append}(pack(f">{{{length}}}{code}", *{local}))')
        else:
            element = self._name("element")
            if field.may_be_encoded:
                self._line(f"if {local}.__class__ is EncodedItems:")
                if _holds_records(item):
                    self._line('    parts.append(b"".join(out))')
                    self._line("    out.clear()")
                    self._line(f"    parts.extend({local}.pieces)")
                else:
                    self._line(f"    for {element} in {local}.pieces:")
                    self._line(f"        {self.append}({element})")
                self._line(f"    {local} = ()")
            self._line(f"for {element} in {local}:")
            self.depth += 1
            if item == "uuid":
                self._uuid(name, element)
            elif isinstance(item, str):
                self._sized(name, item, element, nullable=False)
            else:
                self._struct(item, element)
            self._flush()
            self.depth -= 1
        if nullable:
            self.depth -= 1
