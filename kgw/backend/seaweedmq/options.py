"""What can be set about the seaweedmq backend, with the reason for each default."""

from __future__ import annotations

from typing import NamedTuple

from kgw.backend.seaweedmq.chain import ChainOptions
from kgw.backend.seaweedmq.entries.layouts import Layout


class SeaweedMqOptions(NamedTuple):
    """Sizes and limits of one gateway on a SeaweedFS."""

    layout: Layout = Layout.BATCHES
    """Of topics that say nothing else."""
    cache_bytes: int = 32 << 20
    """Recently appended batches kept for readers at the tail, over all partitions."""
    chunk_cache_bytes: int = 64 << 20
    """Chunks kept for readers of older data, over all partitions: those that follow each other at
    a distance read a chunk once. The largest read at a time come on top."""
    chunk_loads: int = 16
    """Chunks that are fetched at a time, over all partitions."""
    chunk_load_bytes: int = 64 << 20
    """Of the chunks that are fetched and unpacked at a time, over all partitions: one may be as
    large as a batch. A larger one is fetched by itself."""
    stalled_chunks: int = 256
    """Chunks that have been on their way for a while, beside these: their server hangs, perhaps,
    and others are fetched meanwhile."""
    stalled_chunk_bytes: int = 256 << 20
    """Of these chunks, over all partitions: 64 of the usual 4 MB. They are in memory only when they
    come, but then all at once: the server goes on."""
    waiting_bytes: int = 1 << 30
    """Of the appends that SeaweedFS has not taken yet, over all partitions: more is refused. What
    a gone client has sent is not counted among its requests any more, and waits all the same."""
    read_ahead_chunks: int = 4
    """Chunks that are fetched before a reader asks for them, once it reads on where it ended."""
    loaded_files: int = 256
    """Sealed files whose lists of chunks are kept, over all partitions: up to 4 KB each."""
    file_bytes: int = 64 << 20
    """The most in a log file, whatever segment.bytes says: each append writes the file's list of
    chunks whole, retention removes whole files and compaction holds one in memory."""
    file_ms: int = 3_600_000
    """How long a file is appended to."""
    many_files: int = 5_000
    """A partition with more is named in health: its leader entry is written anew with each."""
    most_files: int = 100_000
    """A partition with so many takes no appends until they are joined or removed: its leader entry
    is 8 MB then, and each change of it takes most of a second."""
    open_at_once: int = 64
    """Partitions that are opened, created or closed side by side."""
    decoded_on_loop_bytes: int = 64 << 10
    """Larger chunks are verified in a thread."""
    checkpoint_bytes: int = 128 << 20
    """Bytes written, over all partitions, after which snapshots are asked for before their time: a
    start after a kill reads as much again, and more where partitions are many."""
    close_s: float = 10.0
    """For how long a stop waits for the filer."""
    chain: ChainOptions = ChainOptions()
    """What bounds the appends of a partition."""
