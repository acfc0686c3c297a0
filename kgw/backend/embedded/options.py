"""What can be set about the embedded backend, with the reason for each default."""

from __future__ import annotations

from typing import NamedTuple


class EmbeddedOptions(NamedTuple):
    """Sizes and limits of one data directory."""

    cache_bytes: int = 32 << 20
    """Recently appended batches kept for readers at the tail, over all partitions."""
    min_free_bytes: int = 64 << 20
    """Appends are refused below this, so that the state store can still commit."""
    may_share_directory: bool = False
    """Whether a new data directory may be made where other files are."""
    journal_bytes: int = 16 << 20
    """Size of each of the two journal files; they are written once in full and then reused."""
    journal_append_bytes: int = 32 << 10
    """A group goes through the journal while its bytes are below this figure times its number of
    partitions (docs/decisions/0002-journal.md); 0 turns the journal off."""
    group_bytes: int = 32 << 20
    """The most that one flush writes; what is left waits for the next."""
    quarantine_bytes: int = 256 << 20
    """What is kept of torn tails, in all: four of the largest (decision 74)."""
    checkpoint_bytes: int = 128 << 20
    """Appended bytes after which a checkpoint is made between the periodic ones. It bounds what
    recovery scans: about 2 GB/s in large batches, 30 MB/s in batches of 160 bytes."""
    checkpoints_per_turn: int = 200
    """Checkpoints that the event loop encodes in one turn."""
    indexed_bytes: int = 1 << 20
    """By how much a segment that is written to grows before a checkpoint brings Kafka's indexes up
    to date: two files to open and to write for each of a thousand that have grown by 128 KB."""
    open_files: int = 512
    """Descriptors that are kept open for segments and side files. A server keeps more of them
    where it may: beyond as many partitions each append and each read opens a file."""
    group_partitions: int = 128
    """Partitions that one flush writes at most."""
    dirty_segments: int = 128
    """Segments behind the journal after which they are synced and the journal is changed. Each
    holds a descriptor until then, and so do those of the other journal file. A server has more of
    them where it may have the descriptors: with 1,000 partitions that append in turn each group
    would sync as many segments as it writes."""
    unsynced_segments: int = 256
    """Relaxed logs that may hold what no sync has covered; each holds a descriptor. A log beyond
    them is made durable as a strict one until there is room. A server has more of them where it may
    have the descriptors: 1,000 partitions that append in turn reach 4 to 6 times the rate."""
    reserved_offsets: int = 10_000
    """The fewest offsets that a relaxed log reserves ahead; as many again as it has got since it
    was opened are, when those are more. An unclean start leaves out what is left of them."""
    reserved_offsets_max: int = 1_000_000
    """The most that are reserved at a time: one small file is replaced for each block."""
    flush_threads: int = 2
    """Threads that sync what relaxed logs have answered, and reserve offsets for them."""
    read_buffers: int = 16
    """Buffers of 1 MB that reads share; what finds none free gets memory of its own."""
    read_ahead: int = 12
    """Further buffers of 1 MB, for old data that its readers will want next."""
    read_ahead_threads: int = 1
    """Threads that read it: producers' syncs wait behind what a disk has been asked for."""
    read_places: int = 4096
    """Places in the files that are remembered: where readers go on without a search, and where
    others will come by. Four readers of 1,000 partitions, or 4 GB of one."""
    scanned_entries: int = 1 << 16
    """Side entries that the scan of a segment holds at a time: 2.6 MB, which is enough for a
    gigabyte in batches of 16 KB. A segment of the smallest batches has sixteen million of them."""
    io_threads: int = 4
    """Threads for reads that miss the cache and for opening partitions."""
    rest_s: float = 0.0005
    """How long a checkpoint leaves the interpreter alone between two turns of 0.2 ms. Else the
    loop gets it every 0.5 ms for one call: 128 MB in batches of 5 KB held it up for 50 ms."""
    switch_interval_s: float = 0.0005
    """How long the event loop may keep the interpreter while the flusher waits for it. Python's
    5 ms would be added to every step of a flush when the loop is busy."""
