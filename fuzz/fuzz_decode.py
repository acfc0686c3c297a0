"""Coverage-guided fuzzing of every decoder: bytes give a message or a DecodeError, nothing else.

The first two bytes of an input choose the (message, version), a third the kind of check; the rest
is what is decoded. What is accepted must survive a round trip. See README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kgw.errors import DecodeError, ProtocolError
from kgw.protocol.codec import codec
from kgw.protocol.framing import FrameReader, decode_request_header
from kgw.protocol.primitives import read_unsigned_varint, skip_tagged_fields
from tests.protocol.frames import feed
from tests.protocol.random_messages import all_versions

CODECS = [codec(message, version) for message, version in all_versions()]
"""Every (message, version), in the order in which inputs choose them."""

HEADERS = len(CODECS)
"""Chooses the request header as it is read by hand."""

FRAMES = len(CODECS) + 1
"""Chooses the splitter of frames."""

CHOICES = len(CODECS) + 2
CORPUS = Path(__file__).parent / "corpus"


def check(data: bytes) -> None:
    """Decode one input; raise if anything but a message or its refusal comes of it."""
    if len(data) < 2:
        return
    choice = int.from_bytes(data[:2]) % CHOICES
    body = data[2:]
    if choice == HEADERS:
        _check_header(body)
    elif choice == FRAMES:
        _check_frames(body)
    else:
        _check_message(choice, body)


def _check_message(choice: int, body: bytes) -> None:
    ours = CODECS[choice]
    try:
        message = ours.decode(memoryview(body))
    except DecodeError:
        return
    # A second encoding is compared, because unknown tags and padded lengths are not kept; NaN is
    # not equal to itself, so the bytes are compared and not the messages.
    encoded = ours.encode(message)
    again = ours.encode(ours.decode(encoded))
    if again != encoded:
        raise AssertionError(f"{ours}: {encoded.hex()} became {again.hex()}")


def _check_header(body: bytes) -> None:
    try:
        _, position = decode_request_header(memoryview(body))
    except DecodeError:
        return
    if not 8 <= position <= len(body):
        raise AssertionError(f"a body at {position} of {len(body)} bytes")


def _check_frames(body: bytes) -> None:
    try:
        whole = feed(FrameReader(max_frame_bytes=1000), body)
    except ProtocolError:
        return
    split = FrameReader(max_frame_bytes=1000)
    pieces = [frame for at in range(len(body)) for frame in feed(split, body[at : at + 1], 4)]
    if pieces != whole:
        raise AssertionError("frames depend on how the bytes were cut")


def main() -> None:
    """Run libFuzzer with the arguments of the command line."""
    import atheris

    # The decoders are source compiled at run time, which atheris does not see by itself: each is
    # compiled now, and its code instrumented.
    for ours in CODECS:
        first = ours.message()
        ours.decode(ours.encode(first))
        ours._decode = atheris.instrument_func(ours._decode)  # noqa: SLF001
    for function in (read_unsigned_varint, skip_tagged_fields, decode_request_header):
        atheris.instrument_func(function)
    atheris.instrument_func(FrameReader.take)
    arguments = sys.argv if len(sys.argv) > 1 else [*sys.argv, "-runs=1000000", str(CORPUS)]
    atheris.Setup(arguments, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
