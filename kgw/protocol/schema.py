"""The vocabulary in which messages are declared.

A message is one class for all of its versions:

    class ProduceRequest(Request):
        api_key = ApiKey.PRODUCE
        valid_versions = (0, 13)
        flexible_since = 9

        transactional_id: str | None = string(since=3, nullable_since=3, default=None)
        acks: int = int16()
        timeout_ms: int = int32()
        topic_data: list[TopicProduceData] = array(TopicProduceData)

The order of the fields is their order on the wire. To a type checker the class has a keyword-only
constructor in which every field may be left out and then has Kafka's default. At run time the
declarations become `__slots__` and a table, and nothing more happens until the first instance:
some 400 classes are created at start-up, and a dataclass costs about a millisecond each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

if TYPE_CHECKING:
    from kgw.protocol.api_keys import ApiKey
    from kgw.protocol.primitives import Buffer

ZERO_UUID = bytes(16)
"""Kafka's way to say "no id" where a UUID cannot be null."""

LAST_VERSION = 0x7FFF
"""What `until` is for a field that has not been removed."""

IMPLICIT_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "records": None,
}


class EncodedItems:
    """What an array declared with `may_be_encoded` may hold in place of structures: their bytes.

    `pieces` are `count` structures in order, encoded by `codec.encode_items` for the version that
    the message is written in; a piece may hold many of them.
    """

    __slots__ = ("count", "pieces")

    def __init__(self, count: int, pieces: list[Buffer]) -> None:
        self.count = count
        self.pieces = pieces

    def __len__(self) -> int:
        return self.count


class Field:
    """One declared field: its kind, the versions that have it, and how each version writes it.

    `kind` is a key of `IMPLICIT_DEFAULTS`, or "array" or "struct"; `item` is then the kind of an
    array's elements or the class of a structure. A default of `EMPTY` stands for a new list or a
    new structure of defaults. Where `may_be_encoded`, an array is a list or `EncodedItems`; where
    `may_be_packed`, a decoded one is a list or `kgw.protocol.packed.PackedItems`.
    """

    __slots__ = (
        "compact",
        "default",
        "ignorable",
        "item",
        "kind",
        "may_be_encoded",
        "may_be_packed",
        "nullable_since",
        "nullable_until",
        "since",
        "tag",
        "until",
    )

    def __init__(
        self,
        kind: str,
        item: str | type[Struct] | None,
        *,
        since: int,
        until: int,
        nullable_since: int | None,
        tag: int | None,
        default: Any,
        ignorable: bool,
    ) -> None:
        self.kind = kind
        self.item = item
        self.since = since
        self.until = until
        self.nullable_since = nullable_since
        self.nullable_until = until
        self.tag = tag
        self.default = default
        self.ignorable = ignorable
        self.compact = True
        self.may_be_encoded = False
        self.may_be_packed = False

    def present(self, version: int) -> bool:
        """Whether this version of the message has the field, tagged or not."""
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        """Whether this version can say null."""
        return self.nullable_since is not None and (
            self.nullable_since <= version <= self.nullable_until
        )


class _Empty:
    """The type of `EMPTY`."""

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = _Empty()
"""Default of arrays and structures: each instance gets a new one."""


def _scalar(kind: str) -> Any:
    """Return the function that declares fields of one scalar kind."""
    implicit_default = IMPLICIT_DEFAULTS[kind]

    def declare(
        *,
        since: int = 0,
        until: int = LAST_VERSION,
        nullable_since: int | None = None,
        tag: int | None = None,
        default: Any = implicit_default,
        ignorable: bool = False,
    ) -> Any:
        return Field(
            kind,
            None,
            since=since,
            until=until,
            nullable_since=nullable_since,
            tag=tag,
            default=default,
            ignorable=ignorable,
        )

    return declare


boolean = _scalar("bool")
int8 = _scalar("int8")
int16 = _scalar("int16")
uint16 = _scalar("uint16")
int32 = _scalar("int32")
uint32 = _scalar("uint32")
int64 = _scalar("int64")
float64 = _scalar("float64")
byte_string = _scalar("bytes")
uuid = _scalar("uuid")


def string(
    *,
    since: int = 0,
    until: int = LAST_VERSION,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: str | None = "",
    ignorable: bool = False,
    compact: bool = True,
) -> Any:
    """Declare a string; `compact=False` keeps the two-byte length in flexible versions too."""
    field = Field(
        "string",
        None,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        default=default,
        ignorable=ignorable,
    )
    field.compact = compact
    return field


def record_data(
    *,
    since: int = 0,
    until: int = LAST_VERSION,
    nullable_since: int | None = None,
    nullable_until: int = LAST_VERSION,
    ignorable: bool = False,
) -> Any:
    """Declare record batches: a memoryview of the input when decoded, any buffers to encode."""
    field = Field(
        "records",
        None,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=None,
        default=None,
        ignorable=ignorable,
    )
    field.nullable_until = nullable_until
    return field


def array(
    item: str | type[Struct],
    *,
    since: int = 0,
    until: int = LAST_VERSION,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: Any = EMPTY,
    ignorable: bool = False,
    may_be_encoded: bool = False,
    may_be_packed: bool = False,
) -> Any:
    """Declare an array of structures, or of scalars named by their kind."""
    field = Field(
        "array",
        item,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        default=default,
        ignorable=ignorable,
    )
    field.may_be_encoded = may_be_encoded
    field.may_be_packed = may_be_packed
    return field


def struct(
    item: type[Struct],
    *,
    since: int = 0,
    until: int = LAST_VERSION,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: Any = EMPTY,
    ignorable: bool = False,
) -> Any:
    """Declare a structure within the message."""
    return Field(
        "struct",
        item,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
        default=default,
        ignorable=ignorable,
    )


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns the declared fields of a class into slots and a table."""

    field_table: dict[str, Field]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> StructType:
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key in fields:
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        namespace["field_table"] = fields
        namespace["codecs"] = {}
        return type.__new__(mcs, name, bases, namespace)


class Struct(metaclass=StructType):
    """A structure of named fields; its versions are those of the message that it is part of."""

    codecs: ClassVar[dict[int, Any]]
    """Made by `kgw.protocol.codec`, one for each version that has been used."""

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            # The first instance of a class compiles its constructor and leaves this one behind.
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


class Request(Message):
    """What a client sends."""

    api_key: ClassVar[ApiKey]


class Response(Message):
    """What the broker answers."""

    api_key: ClassVar[ApiKey]


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
