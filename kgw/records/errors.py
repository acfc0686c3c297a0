"""What is wrong with record bytes, with the code that a client is answered."""

from __future__ import annotations

from kgw.errors import ErrorCode, KafkaError


class RecordError(KafkaError):
    """Bytes that are not the records they claim to be, or that this server cannot read."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(code, message)
