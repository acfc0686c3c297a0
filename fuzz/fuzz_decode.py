"""Coverage-guided fuzzing of every decoder: bytes give a message or a DecodeError, nothing else.

The first two bytes of an input choose the (message, version), or another check; the rest is what is
decoded. What is accepted must survive a round trip. See README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zlib import crc32

from kgw.errors import DecodeError, ProtocolError
from kgw.protocol.codec import codec
from kgw.protocol.framing import FrameReader, decode_request_header
from kgw.protocol.primitives import read_unsigned_varint, skip_tagged_fields
from kgw.records.batch import read_batch
from kgw.records.conversion import to_batch, to_messages
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from kgw.records.message_set import magic_of, read_message_set
from kgw.records.reader import read_records
from tests.protocol.frames import feed
from tests.protocol.random_messages import all_versions

CODECS = [codec(message, version) for message, version in all_versions()]
"""Every (message, version), in the order in which inputs choose them."""

HEADERS = len(CODECS)
"""Chooses the request header as it is read by hand."""

FRAMES = len(CODECS) + 1
"""Chooses the splitter of frames."""

MESSAGE_SETS = len(CODECS) + 2
"""Chooses the record formats 0 and 1."""

CHOICES = len(CODECS) + 3
LIMITS = DecompressionLimits(max_bytes=1 << 20, max_ratio=1000, always_bytes=1 << 16)
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
    elif choice == MESSAGE_SETS:
        _check_message_set(body)
        _check_message_set(_with_right_crcs(body))
        _check_batches(body)
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


def _check_message_set(body: bytes) -> None:
    try:
        batch = read_batch(to_batch(body, LIMITS))
    except RecordError:
        return
    records = list(read_records(batch, LIMITS))
    if not batch.crc_matches() or len(records) != batch.record_count:
        raise AssertionError(f"{batch!r} of {body.hex()}")
    magic = magic_of(body)
    messages = to_messages((batch.buffer,), magic, 0, 1 << 30, LIMITS)
    again = read_batch(to_batch(b"".join(messages.parts), LIMITS))
    if list(read_records(again, LIMITS)) != records:
        raise AssertionError(f"format {magic}: {records} became {messages.parts}")


def _with_right_crcs(body: bytes) -> bytes:
    """Return a set whose messages have the CRCs that they claim: nobody guesses them."""
    mended = bytearray(body)
    position = 0
    while position + 16 <= len(body):
        size = int.from_bytes(body[position + 8 : position + 12], signed=True)
        if size < 4:
            break
        covered = body[position + 16 : position + 12 + size]
        mended[position + 12 : position + 16] = crc32(covered).to_bytes(4)
        position += 12 + size
    return bytes(mended)


def _check_batches(body: bytes) -> None:
    """Convert what might be stored, its header being as wrong as it likes but for the offset."""
    stored = bytes(8) + body[8:]
    for magic in (0, 1):
        messages = to_messages((stored,), magic, 0, 1 << 30, LIMITS)
        if messages.size_bytes != sum(map(len, messages.parts)):
            raise AssertionError(f"{messages.size_bytes} bytes of {messages.parts}")


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
    for converter in (to_batch, to_messages, read_message_set):
        atheris.instrument_func(converter)
    arguments = sys.argv if len(sys.argv) > 1 else [*sys.argv, "-runs=1000000", str(CORPUS)]
    atheris.Setup(arguments, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
