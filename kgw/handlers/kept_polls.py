"""The kept poll of a connection: an empty Fetch that its client is expected to repeat.

An idle consumer without a fetch session repeats the same complete request: only the correlation id
differs. From the second time on

- the request is not decoded: `decode` returns the same object for the same bytes;
- no partition is looked up or examined: `wait_again` lets the same read wait again, unless
  something has happened to one of the partitions since;
- if the poll ends empty again, `answer_again` returns the answer of the first one. `Fetch` asks for
  it only if the request wants no session and it is confirmed that this node leads.

An idle poll of one partition gets 1.35 times cheaper by this, one of 1,000 partitions 23 times
(docs/decisions/0162).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.protocol.codec import codec
from kgw.protocol.framing import EncodedBody
from kgw.protocol.request_decoder import CLIENT_ID_POSITION

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.partitions.read.answer_room import AnswerBudget
    from kgw.partitions.read.reading import FetchRead, FetchTimes
    from kgw.protocol.codec import Codec
    from kgw.protocol.messages.fetch import FetchRequest, FetchResponse
    from kgw.protocol.request_decoder import RequestDecoder
    from kgw.protocol.schema import Request

# Enough for about twenty partitions. Larger requests share one budget for all connections: a
# remembered poll takes about 17 times the bytes of its request, so 500 KB for 1,000 partitions.
_KNOWN_REQUEST_BYTES = 1024
_LARGE_REQUESTS_BYTES = 1 << 20


class RepeatBudget:
    """The bytes of large requests that all connections remember together."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class FetchDecoder:
    """Decodes the Fetch requests of one connection. Remembers the last one, and keeps its poll.

    Any other Fetch replaces both, even if it is too large to be remembered.
    """

    __slots__ = (
        "_answer",
        "_budget",
        "_charged_bytes",
        "_client_id",
        "_codec",
        "_decoder",
        "_read",
        "_request",
        "_request_bytes",
        "_rules_version",
    )

    def __init__(self, decoder: RequestDecoder, budget: RepeatBudget) -> None:
        """`decoder` decodes all requests of the connection."""
        self._decoder = decoder
        self._budget = budget
        self._charged_bytes = 0
        self._codec: Codec[Any] | None = None
        self._request: Request | None = None
        """The last Fetch, which its handler does not change."""
        self._request_bytes = b""
        self._client_id: str | None = None
        self._read: FetchRead | None = None
        """The read of the last Fetch, if it ended empty and is not in use now."""
        self._answer: EncodedBody | None = None
        self._rules_version = 0

    # --- the request -----------------------------------------------------------------------------

    def decode(self, frame: memoryview, codec: Codec[Request]) -> Request:
        """Do the same as `RequestDecoder.decode`, but return the same object for the same bytes."""
        known = self._known(frame, codec)
        return known or self._remember(frame, self._decoder.decode(frame, codec), codec)

    def decode_in_turns(
        self, frame: memoryview, codec: Codec[Request]
    ) -> Generator[None, None, Request]:
        """Do the same as `decode` in steps (`kgw.turns`), for a large request."""
        known = self._known(frame, codec)
        if known is not None:
            return known
        request = yield from self._decoder.decode_in_turns(frame, codec)
        return self._remember(frame, request, codec)

    def _known(self, frame: memoryview, codec: Codec[Request]) -> Request | None:
        """Return the last Fetch if its bytes behind the correlation id are the same."""
        request, known = self._request, self._request_bytes
        if (
            request is None
            or codec is not self._codec
            or len(frame) != len(known) + CLIENT_ID_POSITION
            # Compare bytes, as memoryviews are compared byte by byte, which is slow.
            or frame[CLIENT_ID_POSITION:].tobytes() != known
        ):
            return None
        self._decoder.client_id = self._client_id
        return request

    def _remember(self, frame: memoryview, request: Request, codec: Codec[Request]) -> Request:
        self.forget()
        size = len(frame)
        if size > _KNOWN_REQUEST_BYTES:
            if self._budget.used_bytes + size > _LARGE_REQUESTS_BYTES:
                return request
            self._budget.used_bytes += size
            self._charged_bytes = size
        self._codec = codec
        self._request = request
        self._request_bytes = bytes(frame[CLIENT_ID_POSITION:])
        self._client_id = self._decoder.client_id
        return request

    def forget(self) -> None:
        """Forget the last Fetch and its poll."""
        self._budget.used_bytes -= self._charged_bytes
        self._charged_bytes = 0
        self._request = self._answer = None
        self._request_bytes = b""
        read, self._read = self._read, None
        if read is not None:
            read.stop()

    # --- its poll --------------------------------------------------------------------------------

    def wait_again(
        self,
        request: FetchRequest,
        budget: AnswerBudget,
        times: FetchTimes,
        rules_version: int = 0,
    ) -> FetchRead | None:
        """Let the kept read of `request` wait again, and return it. None: read the partitions.

        `rules_version` is that of the access rules. A read is kept no longer than they hold.

        The read is not kept until `answer_again` or `keep` keeps it again, as the client may repeat
        the request before it ends.
        """
        if request is not self._request:
            return None
        read, self._read = self._read, None
        is_asked = rules_version == self._rules_version
        self._rules_version = rules_version
        if read is None or (is_asked and read.wait_again(budget, times)):
            return read
        read.stop()
        return None

    def answer_again(self, request: FetchRequest, read: FetchRead) -> EncodedBody | None:
        """If the read has ended unchanged, keep it and return the answer of the poll before."""
        if request is not self._request or not read.is_unchanged:
            return None
        self._read = read
        return self._answer

    def keep(
        self, request: FetchRequest, read: FetchRead, response: FetchResponse, version: int
    ) -> FetchResponse | EncodedBody:
        """Keep a read and its answer if the read ended empty, else stop it. Return the answer."""
        is_empty = read.is_empty and read.is_all_read and not response.session_id
        if request is not self._request or not is_empty:
            read.stop()
            return response
        encoder = codec(type(response), version)
        # Keep only an empty answer: records would stay in memory as long as the connection.
        self._answer = EncodedBody(encoder.flexible, encoder.encode(response))
        self._read = read
        return self._answer
