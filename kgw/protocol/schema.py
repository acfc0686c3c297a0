"""The classes and functions with which messages are declared.

A message is one class for all of its versions:

    class ProduceRequest(schema.Request, api_key=ApiKey.PRODUCE):
        transactional_id: str | None = schema.string(since=3, nullable_since=3, default=None)
        acks: int = schema.int16()
        timeout_ms: int = schema.int32()
        topic_data: list[TopicProduceData] = schema.array(TopicProduceData)

`ApiKey` has the versions of each API. The order of the fields is their order on the wire. For a
type checker the class has a keyword-only constructor in which every field is optional and has
Kafka's default. At run time the declarations become `__slots__` and a table; the constructor is
compiled for the first instance, as a dataclass costs about a millisecond at import.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.protocol.api_keys import ApiKey
    from kgw.protocol.primitives import Buffer

ZERO_UUID = bytes(16)
"""The UUID that means "no id" in Kafka, as UUIDs cannot be null."""

LAST_VERSION = 0x7FFF
"""The value of `until` for a field that has not been removed."""

IMPLICIT_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "records": None,
}


class EncodedItems:
    """Encoded structures, as the value of an array that is declared with `may_be_encoded`.

    `pieces` are the buffers of `count` structures in order, encoded by `codec.encode_items` for the
    version of the message. `error_codes` are the error codes in the structures, without NONE: they
    cannot be found in the bytes.
    """

    __slots__ = ("count", "error_codes", "pieces")

    def __init__(self, count: int, pieces: list[Buffer], error_codes: Sequence[int] = ()) -> None:
        self.count = count
        self.pieces = pieces
        self.error_codes = error_codes

    def __len__(self) -> int:
        return self.count


class _Empty:
    """The type of `EMPTY`."""

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = _Empty()
"""The default of arrays and structures: each instance gets a new list or structure."""


class Field(NamedTuple):
    """A declared field: its kind, the versions that have it, and its form in these versions."""

    kind: str
    """A key of `IMPLICIT_DEFAULTS`, or "array" or "struct"."""
    default: Any
    """`EMPTY` means a new list, or a new structure with its defaults."""
    item: Any = None
    """The kind of an array's elements, or their class; the class of a structure."""
    since: int = 0
    until: int = LAST_VERSION
    nullable_since: int | None = None
    nullable_until: int = LAST_VERSION
    tag: int | None = None
    ignorable: bool = False
    """Whether a value is dropped without an error in a version that has no such field."""
    may_be_encoded: bool = False
    """Whether an array is a list or `EncodedItems`."""

    def present(self, version: int) -> bool:
        """Return whether a version of the message has the field, tagged or not."""
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        """Return whether the field may be null in a version of the message."""
        return self.nullable_since is not None and (
            self.nullable_since <= version <= self.nullable_until
        )


def _kind(kind: str) -> Callable[..., Any]:
    """Return a function that declares fields of a kind, with the options of `Field`."""
    return partial(Field, kind=kind, default=IMPLICIT_DEFAULTS[kind])


boolean = _kind("bool")
int8 = _kind("int8")
int16 = _kind("int16")
uint16 = _kind("uint16")
int32 = _kind("int32")
int64 = _kind("int64")
float64 = _kind("float64")
byte_string = _kind("bytes")
uuid = _kind("uuid")
string = _kind("string")
record_data = _kind("records")
"""Record batches: a memoryview of the input when decoded, any buffers to encode."""


def array(item: str | type[Struct], **options: Any) -> Any:
    """Declare an array of structures, or of scalars named by their kind."""
    return Field(**{"kind": "array", "item": item, "default": EMPTY, **options})


def struct(item: type[Struct], **options: Any) -> Any:
    """Declare a structure within the message."""
    return Field(**{"kind": "struct", "item": item, "default": EMPTY, **options})


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns the declared fields of a class into slots and a table."""

    field_table: dict[str, Field]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key in fields:
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        namespace["field_table"] = fields
        namespace["codecs"] = {}
        return type.__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructType):
    """A structure of named fields. Its versions are those of its message."""

    codecs: ClassVar[dict[int, Any]]
    """The codecs by version, created by `kgw.protocol.codec` at the first use of each version."""

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            # The first instance of a class compiles a constructor, which replaces this one.
            cls = type(self)
            cls.__init__ = _compile_constructor(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).field_table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).field_table)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A structure that is encoded and decoded by itself, in one of its versions."""

    valid_versions: ClassVar[tuple[int, int]]
    """The first and the last version, both valid."""

    flexible_since: ClassVar[int | None]
    """The first version with compact lengths and tagged fields (KIP-482); None if there is none."""


class ApiMessage(Message):
    """A message that has a header: a request or a response."""

    api_key: ClassVar[ApiKey]

    def __init_subclass__(cls, api_key: ApiKey | None = None) -> None:
        if api_key is not None:
            cls.api_key = api_key
            cls.valid_versions = (0, api_key.last_version or 0)
            cls.flexible_since = api_key.flexible_since


class Request(ApiMessage):
    """A message that a client sends."""


class Response(ApiMessage):
    """A message with which the broker answers a request."""


def _compile_constructor(cls: type[Struct]) -> Any:
    """Build a keyword-only `__init__` with Kafka's defaults."""
    namespace: dict[str, Any] = {"UNSET": EMPTY}
    parameters = []
    body = []
    for name, field in cls.field_table.items():
        value = name
        if field.default is EMPTY:
            new = "[]"
            if field.kind == "struct":
                new = f"new_{name}()"
                namespace[f"new_{name}"] = field.item
            parameters.append(f"{name}=UNSET")
            value = f"{new} if {name} is UNSET else {name}"
        else:
            namespace[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        body.append(f"    self.{name} = {value}")
    source = "def __init__(self{}):\n{}\n".format(
        "".join([", *, ", ", ".join(parameters)]) if parameters else "",
        "\n".join(body) or "    pass",
    )
    exec(source, namespace)  # noqa: S102 - the text is made of declared names alone
    return namespace["__init__"]
