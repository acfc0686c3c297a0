"""The error for wrong record bytes, with the code that the client gets."""

from __future__ import annotations

from kgw.errors import ErrorCode, KafkaError


class RecordError(KafkaError):
    """The bytes are not valid records, or this server cannot read them."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(code, message)
