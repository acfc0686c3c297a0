"""Finds the error codes in a response and in its topics, partitions, groups and members.

The message definitions show which fields are error codes. As with encoders, the function that reads
these fields is generated and compiled at the first use of a (structure, version). So a response
without errors costs only one comparison for each of these fields.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kgw.protocol.schema import EncodedItems

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.protocol.schema import Field, Struct


@cache
def error_codes_finder(item: type[Struct], version: int) -> Callable[[Sequence[Struct]], list[int]]:
    """Return a function that lists the error codes, without NONE, in structures of class `item`.

    The codes of structures that are encoded already are those of `EncodedItems.error_codes`.
    """
    lines = _lines(item, version, "item", 2)
    if not lines:
        return _find_nothing
    source = "\n".join(
        ("def find(items):", "    found = []", "    for item in items:", *lines, "    return found")
    )
    namespace: dict[str, Any] = {"EncodedItems": EncodedItems}
    exec(source, namespace)  # noqa: S102 - the text is made of declared names alone
    find: Callable[[Sequence[Struct]], list[int]] = namespace["find"]
    return find


def is_error_code(name: str, field: Field) -> bool:
    """Return whether a field of a response has an error code.

    `topic_config_error_code` does not count, as in Kafka: the topic was created, and only its
    configuration cannot be described.
    """
    return (
        field.kind == "int16" and name.endswith("error_code") and name != "topic_config_error_code"
    )


def _find_nothing(_: Sequence[Struct]) -> list[int]:
    return []


def _lines(item: type[Struct], version: int, source: str, depth: int) -> list[str]:
    """Return the code that adds the codes of the structure called `source` to `found`."""
    indent = "    " * depth
    lines = []
    for name, field in item.field_table.items():
        if not field.present(version):
            continue
        value = f"{source}.{name}"
        if is_error_code(name, field):
            lines += [f"{indent}if {value}:", f"{indent}    found.append({value})"]
            continue
        if not isinstance(field.item, type):
            continue
        inner = f"{source}_{name}"
        if field.kind == "struct":
            body = _lines(field.item, version, inner, depth + 1)
            if body:
                lines += [f"{indent}{inner} = {value}", f"{indent}if {inner} is not None:", *body]
            continue
        body = _lines(field.item, version, f"{inner}_item", depth + 1)
        if not body:
            continue
        lines.append(f"{indent}{inner} = {value}")
        if field.may_be_encoded:
            lines += [
                f"{indent}if {inner}.__class__ is EncodedItems:",
                f"{indent}    found += {inner}.error_codes",
                f"{indent}    {inner} = ()",
            ]
        every = f"{inner} or ()" if field.nullable(version) else inner
        lines += [f"{indent}for {inner}_item in {every}:", *body]
    return lines
