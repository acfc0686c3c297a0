"""The response that refuses a request, or one part of it, made from the message definitions.

An API declares which array of its response answers which array of the request (`Api.parts`). A
refused part has the name from the request, the error code, and the error message if the version has
a field for it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kgw.protocol.error_codes import is_error_code
from kgw.protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.errors import ErrorCode

_SAME_NAMES = (
    ("name", "topic", "topic_name"),
    ("partition_index", "partition", "index", "partition_id"),
    ("topic_id",),
    ("group_id",),
    ("transactional_id",),
    ("key",),
    ("resource_type",),
    ("resource_name",),
    ("producer_id",),
    ("entity",),
)
"""Fields that identify a part in requests and responses; names in one row mean the same."""


class Refusal:
    """An error, in the form of one version of a response.

    `values` are fields of a refused structure that differ from Kafka's defaults.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str | None,
        version: int,
        parts: Mapping[str, str],
        values: Mapping[str, object],
    ) -> None:
        self._code = code
        self._message = message
        self._version = version
        self.parts = parts
        self._values = values

    def say(self, struct: Struct) -> bool:
        """Write the error into a structure.

        Return whether the structure has a field for the code.
        """
        fields = type(struct).field_table
        code_field = code_field_of(type(struct), self._version)
        if code_field is None:
            return False
        setattr(struct, code_field, self._code)
        if "error_message" in fields and fields["error_message"].present(self._version):
            struct.error_message = self._message  # type: ignore[attr-defined]
        for name, value in self._values.items():
            if name in fields:
                setattr(struct, name, value)
        return True

    def part(self, part_type: Any, asked: Any) -> Any:
        """Return the refusal of one part of a request, given as a structure or as a name."""
        part: Struct = part_type()
        if isinstance(asked, Struct):
            for ours, theirs in names_of(type(part), type(asked)):
                setattr(part, ours, getattr(asked, theirs))
        else:
            setattr(part, key_of(part_type), asked)
        self.say(part)
        self.say_in_parts(part, asked)
        return part

    def say_in_parts(self, response: Struct, request: Any) -> None:
        """Refuse every part in a request or in one of its parts."""
        for name, field in type(response).field_table.items():
            asked_field = self.parts.get(name)
            if asked_field is not None and field.present(self._version):
                asked: Sequence[Any] = getattr(request, asked_field) or ()
                setattr(response, name, [self.part(field.item, one) for one in asked])


@cache
def code_field_of(struct_type: type[Struct], version: int) -> str | None:
    """Return the name of a structure's field for the error code; None if it has none."""
    for name, field in struct_type.field_table.items():
        if is_error_code(name, field) and field.present(version):
            return name
    return None


@cache
def names_of(part_type: type[Struct], asked_type: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return by field that identifies a part in a response the field of the request."""
    return tuple(
        (ours, theirs)
        for same in _SAME_NAMES
        for ours in same
        for theirs in same
        if ours in part_type.field_table and theirs in asked_type.field_table
    )


@cache
def key_of(part_type: type[Struct]) -> str:
    """Return the response's field for a part that is only a name or a number in the request."""
    names = [one for same in _SAME_NAMES for one in same]
    return next(one for one in names if one in part_type.field_table)
