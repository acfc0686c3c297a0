"""What the decoder of a connection remembers changes no request."""

from __future__ import annotations

import pytest

from kgw.errors import DecodeError
from kgw.protocol.codec import codec
from kgw.protocol.messages.fetch import FetchRequest
from kgw.protocol.request_decoder import RequestDecoder
from kgw.turns import at_once
from tests.protocol.request_frames import fetch, frame_of


@pytest.mark.parametrize("client_id", [None, "", "x" * 300])
def test_headers_of_any_length(client_id: str | None) -> None:
    """One that is too long is decoded each time, and one that was cut is refused each time."""
    decoder = RequestDecoder()
    for version in (11, 12, 12, 11):
        frame = frame_of(fetch(), version, client_id=client_id)
        assert fetch() == decoder.decode(frame, codec(FetchRequest, version))
        assert client_id == decoder.client_id
        with pytest.raises(DecodeError):
            decoder.decode(frame[:9], codec(FetchRequest, version))


def test_a_large_request_is_decoded_in_turns() -> None:
    """Its client id counts, too, also if another one was known before."""
    decoder = RequestDecoder()
    decoder.decode(frame_of(fetch(), 11, client_id="another"), codec(FetchRequest, 11))
    turns = decoder.decode_in_turns(frame_of(fetch(10_000), 11), codec(FetchRequest, 11))
    assert (fetch(10_000), "client") == (at_once(turns), decoder.client_id)
