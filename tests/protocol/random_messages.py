"""Random messages of any declared kind, for properties, hostile input and benchmarks.

The values sit at the edges more often than a uniform choice would put them there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from kgw.errors import ErrorCode
from kgw.protocol import blobs
from kgw.protocol.api_keys import MESSAGE_KEYS
from kgw.protocol.codec import request_class, response_class
from kgw.protocol.schema import ZERO_UUID, Field, Message, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

MessageT = TypeVar("MessageT", bound=Message)

_INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
# kio, one of the oracles, refuses those that came with Kafka 4.4.
_ERROR_CODES = [code for code in ErrorCode if code < ErrorCode.GROUP_DELETION_FAILED]
_TEXTS = ("", "a", "orders", "naïve", "日本語", "🦜", "\x00\n\x7f", "x" * 126, "y" * 127, "z" * 300)


def all_messages() -> list[type[Message]]:
    """Return every declared message: requests, responses and blobs."""
    found: list[type[Message]] = []
    for api_key in sorted(MESSAGE_KEYS):
        found += (request_class(api_key), response_class(api_key))
    found += [
        value
        for value in vars(blobs).values()
        if isinstance(value, type) and issubclass(value, Message)
    ]
    return found


def all_versions() -> Iterator[tuple[type[Message], int]]:
    """Yield every (message, version)."""
    for message in all_messages():
        first, last = message.valid_versions
        for version in range(first, last + 1):
            yield message, version


def random_message(
    message: type[MessageT], version: int, random: Random, *, max_items: int = 3
) -> MessageT:
    """Return a message that this version can express.

    Fields that the version lacks keep their defaults, so that decoding what was encoded gives an
    equal message. `max_items` bounds each array.
    """
    found: MessageT = _random_struct(message, version, random, max_items)
    return found


def _random_struct(struct: Any, version: int, random: Random, max_items: int) -> Any:
    values = {
        name: _random_field(name, field, version, random, max_items)
        for name, field in struct.field_table.items()
        if field.present(version) and (field.tag is None or random.random() < 0.5)
    }
    return struct(**values)


def _random_field(name: str, field: Field, version: int, random: Random, max_items: int) -> object:
    if field.nullable(version) and random.random() < 0.25:
        return None
    if field.kind == "array":
        count = random.randint(0, max_items)
        return [_random_value(name, field.item, version, random, max_items) for _ in range(count)]
    item = field.item if field.kind == "struct" else field.kind
    return _random_value(name, item, version, random, max_items)


def _random_value(
    name: str, kind: str | type[Struct] | None, version: int, random: Random, max_items: int
) -> object:
    if not isinstance(kind, str):
        return _random_struct(kind, version, random, max_items)
    if kind == "int16" and name.endswith("error_code"):
        return int(random.choice(_ERROR_CODES))
    if kind in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[kind]
        return random.choice((low, high, 0, 1, max(low, -1), random.randint(low, high)))
    return _random_scalar(kind, random)


def _random_scalar(kind: str, random: Random) -> object:
    match kind:
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.choice((0.0, -1.5, 1e300, random.uniform(-1e9, 1e9)))
        case "string":
            return random.choice(_TEXTS)
        case "uuid":
            return random.choice((ZERO_UUID, random.randbytes(16)))
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 20, 127, 200)))
    raise ValueError(kind)
