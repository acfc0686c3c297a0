"""Converts entries to messages of the filer, and messages to entries.

Each append sends an update with every chunk of its file. Making 256 message objects took 0.5 ms, as
long as the filer took to answer. The previous update has already encoded all chunks but the last,
so their bytes are kept. Then the encoding takes 8 us.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.seaweedmq.filer import Chunk, FilerEntry
from kgw.backend.seaweedmq.protos import filer_pb2
from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES_KEPT = 2048
"""The number of files whose encoded chunks are kept. A file with 64 chunks needs 2 KB."""

_FILE_MODE = 0o644
_DIRECTORY_MODE = 1 << 31 | 0o755
"""Go's mode bit for a directory; the filer stores the mode unchanged."""


class _Encoded(NamedTuple):
    chunks: tuple[Chunk, ...]
    raw: bytes


class UpdateEncoder:
    """Makes `UpdateEntry` requests; keeps the encoded chunks of each file for the next request."""

    def __init__(self, files_kept: int = FILES_KEPT) -> None:
        self._files: OrderedDict[tuple[str, str], _Encoded] = OrderedDict()
        self._files_kept = files_kept

    def request(
        self, directory: str, entry: FilerEntry, expected: Mapping[str, bytes], wall_s: int
    ) -> filer_pb2.UpdateEntryRequest:
        """Return the request that replaces an entry under a condition."""
        raw = _without_chunks(entry, wall_s).SerializeToString() + self._chunks(directory, entry)
        return filer_pb2.UpdateEntryRequest(
            directory=directory, entry=raw, expected_extended=expected
        )

    def _chunks(self, directory: str, entry: FilerEntry) -> bytes:
        """Return the chunks as bytes of an encoded entry."""
        if not entry.chunks:
            return b""
        place = (directory, entry.name)
        known, raw = self._files.pop(place, _Encoded((), b""))
        if entry.chunks[: len(known)] != known:
            known, raw = (), b""
        if len(known) < len(entry.chunks):
            raw += _encoded(entry.chunks[len(known) :])
        self._files[place] = _Encoded(entry.chunks, raw)
        if len(self._files) > self._files_kept:
            self._files.popitem(last=False)
        return raw


def message_of(entry: FilerEntry, wall_s: int) -> filer_pb2.Entry:
    """Return the message of a whole entry. Its time is `wall_s` unless the entry has a time."""
    message = _without_chunks(entry, wall_s)
    message.attributes.crtime = message.attributes.mtime
    message.MergeFromString(_encoded(entry.chunks))
    return message


def _without_chunks(entry: FilerEntry, wall_s: int) -> filer_pb2.Entry:
    return filer_pb2.Entry(
        name=entry.name,
        is_directory=entry.is_directory,
        attributes=filer_pb2.FuseAttributes(
            file_size=entry.size_bytes,
            # An update leaves out the time of creation, so the filer keeps the old one.
            mtime=entry.modified_s or wall_s,
            file_mode=_DIRECTORY_MODE if entry.is_directory else _FILE_MODE,
        ),
        extended=entry.extended,
        content=entry.content,
    )


def _encoded(chunks: tuple[Chunk, ...]) -> bytes:
    """Return chunks as bytes of an entry's field; the bytes of later chunks can be appended."""
    return bytes(
        filer_pb2.Entry(
            chunks=[
                filer_pb2.FileChunk(
                    file_id=chunk.file_id,
                    offset=chunk.position,
                    size=chunk.size_bytes,
                    modified_ts_ns=chunk.modified_ns,
                    cipher_key=chunk.cipher_key,
                    is_compressed=chunk.is_compressed,
                )
                for chunk in chunks
            ]
        ).SerializeToString()
    )


def entry_of(directory: str, message: filer_pb2.Entry) -> FilerEntry:
    """Return the entry that a message of the filer contains.

    Raises CorruptionError if the list of chunks is in another chunk, which kgw never does.
    """
    if any(chunk.is_chunk_manifest for chunk in message.chunks):
        raise CorruptionError(
            f"{directory}/{message.name} has its chunks listed in a chunk manifest: "
            "another program has written it"
        )
    ttl_s = max(0, message.attributes.ttl_sec)
    return FilerEntry(
        name=message.name,
        chunks=tuple(
            Chunk(
                chunk.file_id,
                chunk.offset,
                chunk.size,
                chunk.modified_ts_ns,
                chunk.cipher_key,
                chunk.is_compressed,
            )
            for chunk in message.chunks
        ),
        content=message.content,
        extended=dict(message.extended),
        is_directory=message.is_directory,
        # Entries without a time have Go's zero time, which is before 1970.
        modified_s=max(0, message.attributes.mtime),
        expires_s=ttl_s and max(0, message.attributes.crtime) + ttl_s,
    )
