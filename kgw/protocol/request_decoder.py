"""Decodes the requests of one connection. Repeated headers and requests are decoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_request_header

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.protocol.codec import Codec
    from kgw.protocol.schema import Request

_CLIENT_ID_POSITION = 8
"""The position of the client id in a header, after API key, version and correlation id.

From here on, the headers of a client's requests are the same.
"""
# A longer header is decoded every time, to save the memory of ten thousand idle connections.
_KNOWN_HEADER_BYTES = 256
# The only API whose requests are repeated byte by byte, in long polls. Its handler never changes a
# request.
_REPEATED = int(ApiKey.FETCH)
# Enough for about twenty partitions. Larger requests share one budget for all connections: a
# remembered poll takes about 17 times its bytes, 500 KB for one of 1,000 partitions.
_KNOWN_REQUEST_BYTES = 1024
_LARGE_REQUESTS_BYTES = 1 << 20


class RepeatBudget:
    """The bytes of large requests that all connections together remember."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class RequestDecoder:
    """Decodes the requests of one connection.

    It remembers the last header and the last Fetch. If the same bytes come again, it returns the
    same object, by which the handler sees that nothing has changed (`remembers`).
    """

    __slots__ = (
        "_budget",
        "_charged_bytes",
        "_codec",
        "_header",
        "_header_end",
        "_is_flexible",
        "_repeated",
        "_repeated_bytes",
        "_repeated_client_id",
        "client_id",
    )

    def __init__(self, budget: RepeatBudget | None = None) -> None:
        self.client_id: str | None = None
        """The client id of the last request."""
        self._header = b""
        self._header_end = 0
        self._is_flexible: bool | None = None
        self._budget = budget or RepeatBudget()
        self._charged_bytes = 0
        self._codec: Codec[Any] | None = None
        self._repeated: Request | None = None
        self._repeated_bytes = b""
        self._repeated_client_id: str | None = None

    def decode(self, frame: memoryview, codec: Codec[Request]) -> Request:
        """Return the request in a frame, which is given without its length. Raises DecodeError.

        Bytes after the request are ignored, as in Kafka: when librdkafka (2.16) requests all topics
        in Metadata 9 and later, it writes null as four bytes instead of one.
        """
        if self._codec is codec and self._repeated is not None and self._is_repeated(frame):
            self.client_id = self._repeated_client_id
            return self._repeated
        request, _ = codec.decode_prefix(frame, self._body_position(frame, codec))
        if request.api_key == _REPEATED:
            self._remember(frame, request, codec)
        return request

    def decode_in_turns(
        self, frame: memoryview, codec: Codec[Request]
    ) -> Generator[None, None, Request]:
        """Do the same as `decode` in steps (`kgw.turns`), for a large request."""
        if self._codec is codec and self._repeated is not None and self._is_repeated(frame):
            self.client_id = self._repeated_client_id
            return self._repeated
        request = yield from codec.decode_in_turns(frame, self._body_position(frame, codec))
        if request.api_key == _REPEATED:
            self._remember(frame, request, codec)
        return request

    def remembers(self, request: Request) -> bool:
        """Return whether `request` is the object that a repeated request would return."""
        return self._repeated is request

    def forget(self) -> None:
        """Forget the remembered request."""
        self._repeated = None
        self._repeated_bytes = b""
        self._budget.used_bytes -= self._charged_bytes
        self._charged_bytes = 0

    def _is_repeated(self, frame: memoryview) -> bool:
        known = self._repeated_bytes
        # Compare bytes, as memoryviews are compared byte by byte, which is slow.
        return (
            len(frame) == len(known) + _CLIENT_ID_POSITION
            and frame[_CLIENT_ID_POSITION:].tobytes() == known
        )

    def _remember(self, frame: memoryview, request: Request, codec: Codec[Request]) -> None:
        self.forget()
        size = len(frame)
        if size > _KNOWN_REQUEST_BYTES:
            if self._budget.used_bytes + size > _LARGE_REQUESTS_BYTES:
                return
            self._budget.used_bytes += size
            self._charged_bytes = size
        self._codec = codec
        self._repeated = request
        self._repeated_bytes = bytes(frame[_CLIENT_ID_POSITION:])
        self._repeated_client_id = self.client_id

    def _body_position(self, frame: memoryview, codec: Codec[Request]) -> int:
        """Return the position of a request's body. Decode the header unless it is a known one."""
        end = self._header_end
        if codec.flexible is self._is_flexible and frame[_CLIENT_ID_POSITION:end] == self._header:
            return end
        self.client_id, end = decode_request_header(frame)
        if end <= _KNOWN_HEADER_BYTES:
            self._header = bytes(frame[_CLIENT_ID_POSITION:end])
            self._header_end = end
            self._is_flexible = codec.flexible
        return end
