"""kafka-python 3 as an oracle: the definitions that it carries, and its codec for any of them."""

from __future__ import annotations

import io
import uuid
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.protocol.definitions import parse, within

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.data_container import DataContainer
    from kafka.protocol.schemas import StructField


def definitions() -> dict[str, dict[str, Any]]:
    """Return Kafka's definitions by message name."""
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "protocol/schemas/resources"
    return {path.stem: parse(path.read_text()) for path in folder.glob("*.json")}


class Codec:
    """kafka-python's codec, made from a definition.

    Messages of ours go in and come out as dictionaries, because its own classes name some fields
    otherwise.
    """

    def __init__(self, definition: dict[str, Any]) -> None:
        self.definition = definition
        # Its classes cannot hold a field called "version".
        fields = [
            {**field, "name": "RecordVersion"} if field["name"] == "Version" else field
            for field in definition["fields"]
        ]
        self.struct = StructField({**definition, "fields": fields})
        # Kafka 4 definitions begin at the oldest version that Kafka 4 serves, and so does this.
        self.struct._versions = (0, self.struct._versions[1])  # noqa: SLF001 - has no setter
        data_class = type(definition["name"], (DataContainer,), {"_struct": self.struct})
        self.struct.set_data_class(data_class)

    def encode(self, message: Any, version: int) -> bytes:
        flexible = within(version, self.definition.get("flexibleVersions"))
        values = _to_dictionary(message, self.struct, version)
        encoded: bytes = self.struct.encode(
            values, version=version, compact=flexible, tagged=flexible
        )
        return encoded

    def decode(self, data: bytes, version: int) -> tuple[Any, int]:
        """Return what was decoded, as a dictionary, and how many bytes are left."""
        flexible = within(version, self.definition.get("flexibleVersions"))
        stream = io.BytesIO(data)
        decoded = self.struct.decode(stream, version=version, compact=flexible, tagged=flexible)
        return _from_container(decoded, self.struct, version), len(data) - stream.tell()

    def as_dictionary(self, message: Any, version: int) -> Any:
        """Return one of our messages in the form that `decode` returns."""
        return _to_dictionary(message, self.struct, version)


def _present(struct: Any, version: int) -> list[Any]:
    return [field for field in struct._fields if field.for_version_q(version)]


def _to_dictionary(value: Any, struct: Any, version: int) -> dict[str, Any] | None:
    """Turn a structure of ours, with the same fields in the same order, into a dictionary.

    A tagged field with its default is left out: kafka-python writes the tags that it is given.
    """
    if value is None:
        return None
    ours = [
        (name, field) for name, field in type(value).field_table.items() if field.present(version)
    ]
    result: dict[str, Any] = {}
    for theirs, (name, field) in zip(_present(struct, version), ours, strict=True):
        item = getattr(value, name)
        if field.tag is not None and item == getattr(type(value)(), name):
            continue
        if item is None:
            result[theirs.name] = None
        elif theirs.is_struct_array():
            result[theirs.name] = [_to_dictionary(one, theirs.array_of, version) for one in item]
        elif theirs.is_struct():
            result[theirs.name] = _to_dictionary(item, theirs, version)
        elif field.kind == "uuid":
            result[theirs.name] = uuid.UUID(bytes=item)
        elif field.item == "uuid":
            result[theirs.name] = [uuid.UUID(bytes=one) for one in item]
        elif field.kind == "records":
            result[theirs.name] = bytes(item)
        else:
            result[theirs.name] = item
    return result


def _from_container(value: Any, struct: Any, version: int) -> dict[str, Any] | None:
    if value is None:
        return None
    result: dict[str, Any] = {}
    for field in _present(struct, version):
        if field.tag is not None and not (value.tags and field.name in value.tags):
            continue
        item = getattr(value, field.name)
        if item is None:
            # kafka-python reads the zero UUID as None.
            result[field.name] = uuid.UUID(int=0) if field.type_str == "uuid" else None
        elif field.is_struct_array():
            result[field.name] = [_from_container(one, field.array_of, version) for one in item]
        elif field.is_struct():
            result[field.name] = _from_container(item, field, version)
        elif isinstance(item, memoryview):
            result[field.name] = bytes(item)
        else:
            result[field.name] = item
    return result
