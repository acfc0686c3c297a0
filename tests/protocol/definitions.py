"""Reads Kafka's own message definitions and compares our declarations with them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kgw.protocol.schema import EMPTY, IMPLICIT_DEFAULTS, ZERO_UUID, Field, Message, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTEGERS = ("int8", "int16", "uint16", "int32", "int64")


def parse(text: str) -> dict[str, Any]:
    """Parse a definition: JSON with comments; shared structures are put where they are used."""
    definition: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    _resolve(definition.get("fields", []), shared)
    return definition


def _resolve(fields: list[dict[str, Any]], shared: dict[str, Any]) -> None:
    for field in fields:
        name = field["type"].removeprefix("[]")
        if name in shared:
            field["fields"] = shared[name]
        _resolve(field.get("fields", []), shared)


def versions(definition: dict[str, Any]) -> range:
    """Return the valid versions; none where Kafka says "none"."""
    text = definition["validVersions"]
    if text == "none":
        return range(0)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def within(version: int, text: str | None) -> bool:
    """Whether a version is in a range such as "3+", "2-4", "0" or "none"."""
    if text is None or text in {"", "none"}:
        return False
    if text.endswith("+"):
        return version >= int(text[:-1])
    first, _, last = text.partition("-")
    return int(first) <= version <= int(last or first)


def snake_case(name: str) -> str:
    """Return Kafka's field name in Python's form."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


def differences(message: type[Message], definition: dict[str, Any], version: int) -> Iterator[str]:
    """Yield what this version of our message has otherwise than the definition says."""
    flexible = message.flexible_since is not None and version >= message.flexible_since
    if flexible != within(version, definition.get("flexibleVersions")):
        yield f"{message.__name__} v{version}: flexible"
    api_key = getattr(message, "api_key", None)
    if api_key != definition.get("apiKey"):
        yield f"{message.__name__}: API key {api_key}"
    yield from _struct_differences(message, definition["fields"], version, message.__name__)


def _struct_differences(
    struct: type[Struct], fields: list[dict[str, Any]], version: int, path: str
) -> Iterator[str]:
    expected = [field for field in fields if within(version, field["versions"])]
    ours = {name: field for name, field in struct.field_table.items() if field.present(version)}
    names = [snake_case(field["name"]) for field in expected]
    if names != list(ours):
        yield f"{path} v{version}: fields {list(ours)}, not {names}"
        return
    for theirs, (name, field) in zip(expected, ours.items(), strict=True):
        yield from _field_differences(field, theirs, version, f"{path}.{name}")


def _field_differences(
    field: Field, theirs: dict[str, Any], version: int, path: str
) -> Iterator[str]:
    tagged = within(version, theirs.get("taggedVersions"))
    pairs = {
        "type": (_type(field), theirs["type"] if "fields" not in theirs else _shape(theirs)),
        "nullable": (field.nullable(version), within(version, theirs.get("nullableVersions"))),
        "tag": (field.tag, theirs["tag"] if tagged else None),
        "default": (field.default, _default(theirs)),
        "ignorable": (field.ignorable, bool(theirs.get("ignorable", False))),
    }
    for what, (ours, expected) in pairs.items():
        if ours != expected:
            yield f"{path} v{version}: {what} {ours!r}, not {expected!r}"
    if "fields" in theirs:
        item: Any = field.item
        yield from _struct_differences(item, theirs["fields"], version, path)


def _type(field: Field) -> str:
    if field.kind == "array":
        return "[]" + (field.item if isinstance(field.item, str) else "struct")
    return field.kind


def _shape(theirs: dict[str, Any]) -> str:
    return "[]struct" if theirs["type"].startswith("[]") else "struct"


def _default(theirs: dict[str, Any]) -> object:
    kind, text = theirs["type"], theirs.get("default")
    if text == "null":
        return None
    if kind.startswith("[]") or "fields" in theirs:
        return EMPTY
    if text is None:
        return IMPLICIT_DEFAULTS[kind]
    if kind in _INTEGERS:
        return int(str(text), 0)
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "uuid":
        return ZERO_UUID
    return text
