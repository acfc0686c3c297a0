"""kio as an oracle: a codec with one generated class for each version, decoding in Rust."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from dataclasses import fields, is_dataclass
from typing import Any

from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kgw.protocol.schema import Message, Request, Response
from tests.protocol.definitions import snake_case

# kio holds times as timedelta and datetime, whose range is smaller than the wire's.
_TIME_LIMIT_MS = 10**12


def entity(message: type[Message], version: int) -> Any:
    """Return kio's class for a message in one version; None if it has none."""
    name = snake_case(message.__name__)
    kind = EntityType.data
    if issubclass(message, Request):
        name, kind = name.removesuffix("_request"), EntityType.request
    elif issubclass(message, Response):
        name, kind = name.removesuffix("_response"), EntityType.response
    if kind not in schema_name_map.get(name, {}).get(version, {}):
        return None
    return load_entity_schema(name, version, kind)  # type: ignore[arg-type]


class Codec:
    """kio's codec for one version of a message."""

    def __init__(self, entity_class: Any) -> None:
        self.entity_class = entity_class
        self._read = entity_reader(entity_class)
        self._write = entity_writer(entity_class)

    def decode(self, data: bytes) -> tuple[Any, int]:
        """Return the entity and how many bytes are left."""
        decoded, size = self._read(data, 0)
        return decoded, len(data) - size

    def encode(self, value: Any) -> bytes:
        stream = io.BytesIO()
        self._write(stream, value)
        return stream.getvalue()


def places_of_type(entity_class: Any, kafka_type: str) -> list[tuple[str, ...]]:
    """Return the way to each field of a type of Kafka's, such as "error_code"."""
    places: list[tuple[str, ...]] = []
    for field in fields(entity_class):
        if field.metadata.get("kafka_type") == kafka_type:
            places.append((field.name,))
        elif not field.metadata.get("kafka_type"):
            inner = places_of_type(_item_class(field), kafka_type)
            places += [(field.name, *rest) for rest in inner]
    return places


def limit_times(message: Any, entity_class: Any, version: int) -> None:
    """Bring the times in one of our messages into the range that kio can hold, in place."""
    for name, ours, theirs in _paired(message, entity_class, version):
        value = getattr(message, name)
        kind = theirs.metadata.get("kafka_type", "")
        if kind in {"timedelta_i64", "datetime_i64"}:
            setattr(message, name, abs(value) % _TIME_LIMIT_MS)
        elif ours.kind == "array" and not isinstance(ours.item, str):
            for item in value or ():
                limit_times(item, _item_class(theirs), version)
        elif ours.kind == "struct" and value is not None:
            limit_times(value, _item_class(theirs), version)


def plain(value: Any) -> Any:
    """Return an entity as nested lists of plain values, in the order of the fields."""
    if is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dt.timedelta):
        return round(value / dt.timedelta(milliseconds=1))
    if isinstance(value, dt.datetime):
        epoch = dt.datetime.fromtimestamp(0, dt.UTC)
        return round((value - epoch) / dt.timedelta(milliseconds=1))
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def plain_message(message: Any, entity_class: Any, version: int) -> Any:
    """Return one of our messages in the form of `plain`."""
    result = []
    for name, ours, theirs in _paired(message, entity_class, version):
        value = getattr(message, name)
        if ours.kind == "array" and not isinstance(ours.item, str) and value is not None:
            value = [plain_message(item, _item_class(theirs), version) for item in value]
        elif ours.kind == "struct" and value is not None:
            value = plain_message(value, _item_class(theirs), version)
        elif ours.kind == "uuid" and value == bytes(16):
            value = None
        result.append(value)
    return result


def _paired(message: Any, entity_class: Any, version: int) -> Any:
    ours = [
        (name, field) for name, field in type(message).field_table.items() if field.present(version)
    ]
    for (name, field), theirs in zip(ours, fields(entity_class), strict=True):
        yield name, field, theirs


def _item_class(theirs: Any) -> Any:
    """Return the class in annotations such as `Topic`, `Topic | None` and `tuple[Topic, ...]`."""
    pending = [theirs.type]
    while pending:
        annotation = pending.pop()
        if is_dataclass(annotation):
            return annotation
        pending += [item for item in getattr(annotation, "__args__", ()) if item is not ...]
    raise LookupError(theirs.type)
