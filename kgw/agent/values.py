"""Recognises SMQ's RecordValues by their bytes, and wraps other values in one. Pure."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from kgw.backend.seaweedmq.protos.schema_pb2 import RecordValue

RAW_FIELD: Final = "_value"
"""The field for a value that is no RecordValue: SMQ's SQL uses this name, too."""


def is_record_value(value: bytes) -> bool:
    """Return whether bytes are a RecordValue and nothing else.

    A parser skips unknown fields: many texts would pass for a record without fields.
    """
    try:
        parsed = RecordValue.FromString(value)
    except DecodeError:
        return False
    return not len(UnknownFieldSet(parsed))


def as_record_value(value: bytes) -> bytes:
    """Return a value as a RecordValue: unchanged, or as the only field, `_value`, of a new one."""
    if is_record_value(value):
        return value
    wrapped = RecordValue()
    wrapped.fields[RAW_FIELD].bytes_value = value
    return bytes(wrapped.SerializeToString())
