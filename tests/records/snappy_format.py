"""Snappy by its format description, in plain Python: another implementation than the server's.

https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2
_MATCH_BYTES = 4
_MAX_COPY_BYTES = 64
_MAX_DISTANCE_BYTES = 0xFFFF


def encode(data: bytes) -> bytes:
    """Return a block: literals, and copies of what came within the last 64 KB."""
    output = bytearray(_varint(len(data)))
    seen: dict[bytes, int] = {}
    position = literal_start = 0
    while position < len(data):
        word = data[position : position + _MATCH_BYTES]
        earlier = seen.get(word)
        seen[word] = position
        if len(word) < _MATCH_BYTES or earlier is None or position - earlier > _MAX_DISTANCE_BYTES:
            position += 1
            continue
        length = _MATCH_BYTES
        while (
            length < _MAX_COPY_BYTES
            and position + length < len(data)
            and data[earlier + length] == data[position + length]
        ):
            length += 1
        _append_literal(output, data[literal_start:position])
        output.append(length - 1 << 2 | _COPY_2)
        output += (position - earlier).to_bytes(2, "little")
        position += length
        literal_start = position
    _append_literal(output, data[literal_start:])
    return bytes(output)


def decode(block: bytes) -> bytes:
    """Return what a block holds. Raises AssertionError or IndexError for one that is wrong."""
    size = shift = position = 0
    while True:
        byte = block[position]
        size |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    output = bytearray()
    while position < len(block):
        tag = block[position]
        position += 1
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == _LITERAL:
            if length > 60:
                width = length - 60
                length = int.from_bytes(block[position : position + width], "little") + 1
                position += width
            assert position + length <= len(block)
            output += block[position : position + length]
            position += length
            continue
        if kind == _COPY_1:
            length = (tag >> 2 & 7) + 4
            distance = tag >> 5 << 8 | block[position]
            position += 1
        else:
            width = 2 if kind == _COPY_2 else 4
            distance = int.from_bytes(block[position : position + width], "little")
            position += width
        assert 0 < distance <= len(output)
        for _ in range(length):
            output.append(output[-distance])
    assert size == len(output)
    return bytes(output)


def _append_literal(output: bytearray, data: bytes) -> None:
    if not data:
        return
    last = len(data) - 1
    if last < 60:
        output.append(last << 2 | _LITERAL)
    else:
        width = (last.bit_length() + 7) // 8
        output.append(59 + width << 2 | _LITERAL)
        output += last.to_bytes(width, "little")
    output += data


def _varint(number: int) -> bytes:
    output = bytearray()
    while number >= 0x80:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)
