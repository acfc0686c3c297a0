"""The options of the seaweedmq backend, with the reason for each default."""

from __future__ import annotations

from typing import NamedTuple

from kgw.backend.seaweedmq.chain import ChainOptions
from kgw.backend.seaweedmq.entries.layouts import Layout


class SeaweedMqOptions(NamedTuple):
    """Sizes and limits of one gateway on a SeaweedFS."""

    layout: Layout = Layout.BATCHES
    """The layout of topics that have no setting for it."""
    cache_bytes: int = 32 << 20
    """Recently appended batches kept for readers at the tail, over all partitions."""
    chunk_cache_bytes: int = 64 << 20
    """Chunks kept for readers of older data, over all partitions: readers that follow each other at
    a distance fetch a chunk once. Chunks that are being fetched come on top."""
    chunk_loads: int = 16
    """Chunks that are fetched at a time, over all partitions."""
    chunk_load_bytes: int = 64 << 20
    """The size of the chunks that are fetched and decoded at a time, over all partitions: one may
    be as large as a batch. A larger one is fetched alone."""
    stalled_chunks: int = 256
    """Stalled chunks beside these: their server may hang, and others are fetched meanwhile."""
    stalled_chunk_bytes: int = 256 << 20
    """The size of the stalled chunks, over all partitions: 64 of the usual 4 MB. They occupy memory
    only when they arrive, but when the server goes on they arrive together."""
    waiting_bytes: int = 1 << 30
    """The size of the appends that SeaweedFS has not stored yet, over all partitions: more are
    refused. Produce requests of a closed connection no longer count against its limits, but their
    appends still wait here."""
    read_ahead_chunks: int = 4
    """Chunks that are fetched before a reader asks for them, if it reads sequentially."""
    loaded_files: int = 256
    """Sealed files whose lists of chunks are kept, over all partitions: up to 4 KB each."""
    file_bytes: int = 64 << 20
    """The greatest size of a log file, whatever segment.bytes says: each append writes the file's
    whole list of chunks, retention removes whole files and compaction holds one in memory."""
    file_ms: int = 3_600_000
    """For how long records are appended to a file."""
    many_files: int = 5_000
    """Health names a partition with more files: each new file has its leader entry written anew."""
    most_files: int = 100_000
    """A partition with this many files takes no appends until some are joined or removed: its
    leader entry is 8 MB then, and each change of it takes most of a second."""
    open_at_once: int = 64
    """Partitions that are opened, created or closed at the same time."""
    decoded_on_loop_bytes: int = 64 << 10
    """Larger chunks are verified in a thread."""
    checkpoint_bytes: int = 128 << 20
    """After this many bytes were written, over all partitions, snapshots are saved early: a start
    after a kill reads about as much again, and more with many partitions."""
    close_s: float = 10.0
    """For how long a stop waits for the filer."""
    chain: ChainOptions = ChainOptions()
    """The limits of a partition's appends."""
