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
    """Memory for recently appended batches of all partitions, for readers at the end of a log."""
    chunk_cache_bytes: int = 64 << 20
    """Memory for chunks of older data of all partitions, so that several readers need only one
    fetch. Chunks that are being fetched need further memory."""
    chunk_loads: int = 16
    """The most chunks that are fetched at a time, over all partitions."""
    chunk_load_bytes: int = 64 << 20
    """Limit for the bytes that are fetched and decoded at a time, over all partitions. A chunk
    larger than this is fetched alone."""
    stalled_chunks: int = 256
    """The most stalled fetches in addition to `chunk_loads`. Their server may hang, so other chunks
    are fetched meanwhile."""
    stalled_chunk_bytes: int = 256 << 20
    """Limit for the bytes of stalled fetches, over all partitions, enough for 64 chunks of the
    usual 4 MB. They need memory only when they arrive, but if the server recovers they arrive
    together."""
    waiting_bytes: int = 1 << 30
    """Limit for the bytes of appends that SeaweedFS has not stored yet, over all partitions.
    Further appends are refused. Appends of closed connections still count here, but not in the
    connections' limits."""
    read_ahead_chunks: int = 4
    """Number of chunks that are fetched ahead for a sequential reader."""
    loaded_files: int = 256
    """Number of sealed files whose lists of chunks are in memory, up to 4 KB each, over all
    partitions."""
    file_bytes: int = 64 << 20
    """The greatest size of a log file, even if segment.bytes is larger. Each append writes the
    file's whole list of chunks, retention removes whole files, and compaction has a file in memory.
    """
    file_ms: int = 3_600_000
    """The longest time for which records are appended to a file."""
    many_files: int = 5_000
    """A partition with more files is reported as a problem, because each new file rewrites the
    leader entry."""
    most_files: int = 100_000
    """A partition with this many files accepts no appends until files are joined or removed. Its
    leader entry has 8 MB, and each change of it takes almost a second."""
    open_at_once: int = 64
    """The most partitions that are opened, created or closed at the same time."""
    decoded_on_loop_bytes: int = 64 << 10
    """Larger chunks are verified in a thread."""
    checkpoint_bytes: int = 128 << 20
    """After this many appended bytes, over all partitions, snapshots are saved early. A start after
    a kill reads about this many bytes, or more with many partitions."""
    close_s: float = 10.0
    """How long a stop waits for the filer."""
    chain: ChainOptions = ChainOptions()
    """The limits of a partition's appends."""
