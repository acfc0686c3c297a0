"""Stores a snapshot of derived state beside a partition's files, with a checksum.

Each snapshot replaces the previous one, and is written without a condition. If a replaced gateway
writes a snapshot late, it is older but still right, because every record that the gateway
acknowledged is in the log. The next replay only takes longer. SMQ's readers skip names that end in
`.offset`.

Content: magic 8s, offset i64, length of the data u64, CRC-32C of the data and of the 24 bytes
before it u32, the data; as in a data directory.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Final

from kgw.backend.base import Snapshot
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.errors import CorruptionError
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.seaweedmq.filer import Filer

NAME: Final = "kgw-producers.offset"
_MAGIC: Final = b"kgwstat1"
_HEADER: Final = Struct(">8sqQ")
_CRC: Final = Struct(">I")
_INLINE_BYTES: Final = 16 << 10
"""Larger snapshots are stored as chunks instead of in the filer's own store."""


async def save_snapshot(filer: Filer, directory: str, snapshot: Snapshot) -> None:
    """Write a snapshot, which replaces the one before it. Raises FilerError."""
    header = _HEADER.pack(_MAGIC, snapshot.offset, len(snapshot.data))
    crc = _CRC.pack(crc32c(snapshot.data, crc32c(header)))
    pieces = (header, crc, snapshot.data)
    if len(snapshot.data) <= _INLINE_BYTES:
        entry = FilerEntry(NAME, content=b"".join(pieces))
    else:
        entry = FilerEntry(NAME, chunks=(await filer.upload(pieces),))
    await filer.put(directory, entry)


async def load_snapshot(
    filer: Filer, directory: str, report: Callable[[str], None]
) -> Snapshot | None:
    """Return the snapshot, None when there is none or it is damaged. Raises FilerError."""
    entry = await filer.look_up(directory, NAME)
    if entry is None:
        return None
    try:
        content = entry.content or b"".join(
            [await filer.read_chunk(chunk, 0, chunk.size_bytes) for chunk in entry.chunks]
        )
        return _decode(content)
    except CorruptionError as problem:
        report(f"{directory}/{NAME}: {problem}; it is not used")
        return None


def _decode(content: bytes) -> Snapshot:
    try:
        magic, offset, size_bytes = _HEADER.unpack_from(content)
        (crc,) = _CRC.unpack_from(content, _HEADER.size)
    except error:
        raise CorruptionError("it is cut off") from None
    data = content[_HEADER.size + _CRC.size :]
    if (magic, size_bytes) != (_MAGIC, len(data)) or crc != crc32c(
        data, crc32c(content[: _HEADER.size])
    ):
        raise CorruptionError("it fails its checksum")
    return Snapshot(offset, data)
