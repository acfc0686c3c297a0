"""Recognises SMQ's RecordValues by their bytes, and wraps other values in a RecordValue. Pure."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from kgw.backend.seaweedmq.protos.schema_pb2 import RecordValue

RAW_FIELD: Final = "_value"
"""The field with a value that is not a RecordValue; SMQ's SQL uses the same name."""


def is_record_value(value: bytes) -> bool:
    """Return whether the bytes are exactly one RecordValue.

    Refuse unknown fields, which a protobuf parser skips: otherwise most texts would pass as an
    empty RecordValue.
    """
    try:
        parsed = RecordValue.FromString(value)
    except DecodeError:
        return False
    return not len(UnknownFieldSet(parsed))


def as_record_value(value: bytes) -> bytes:
    """Return a RecordValue unchanged; wrap any other value in the field `_value` of a new one."""
    if is_record_value(value):
        return value
    wrapped = RecordValue()
    wrapped.fields[RAW_FIELD].bytes_value = value
    return bytes(wrapped.SerializeToString())
