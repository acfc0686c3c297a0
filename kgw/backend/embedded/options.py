"""The options of the embedded backend, with the reason for each default."""

from __future__ import annotations

from typing import NamedTuple


class EmbeddedOptions(NamedTuple):
    """Sizes and limits of one data directory."""

    cache_bytes: int = 32 << 20
    """Memory for recently appended batches, which serve consumers at the end of a log; over all
    partitions."""
    min_free_bytes: int = 64 << 20
    """Appends are refused while less is free, so that the state store can still commit."""
    may_share_directory: bool = False
    """Whether a new data directory may be created beside other files."""
    journal_bytes: int = 16 << 20
    """Size of each of the two journal files. They are written once in full and then reused."""
    journal_append_bytes: int = 32 << 10
    """A group goes through the journal if its bytes are fewer than this value times its number of
    partitions (docs/decisions/0002-journal.md); 0 disables the journal."""
    group_bytes: int = 32 << 20
    """The most bytes that one flush writes; the next flush writes the others."""
    quarantine_bytes: int = 256 << 20
    """The most bytes of torn tails that are kept: enough for four of the largest (decision 74)."""
    checkpoint_bytes: int = 128 << 20
    """After this many appended bytes a checkpoint is made, in addition to the periodic ones. It
    limits the bytes that recovery scans: at about 2 GB/s in large batches, 30 MB/s in batches of
    160 bytes."""
    checkpoints_per_turn: int = 200
    """Checkpoints that the event loop encodes in one iteration."""
    indexed_bytes: int = 1 << 20
    """Number of bytes by which an active segment must grow before a checkpoint updates Kafka's
    indexes. Otherwise a checkpoint would open and write two files for each of a thousand segments
    that have grown by 128 KB."""
    open_files: int = 512
    """Descriptors that stay open for segments and side files. A server uses more if it may: if more
    partitions than this are in use, each append and each read opens a file."""
    group_partitions: int = 128
    """The most partitions that one flush writes."""
    dirty_segments: int = 128
    """Once this many segments have bytes that only the journal made durable, they are synced and
    the other journal file is used. Each of them keeps a descriptor open until then, and so do the
    segments of the other journal file. A server uses more if it may have the descriptors: if 1,000
    partitions are appended to one after the other, each group would sync as many segments as it
    writes."""
    unsynced_segments: int = 256
    """The most relaxed logs with unsynced bytes; each keeps a descriptor open. Appends to a further
    log wait for a sync, as in a strict log. A server uses more if it may have the descriptors: if
    1,000 partitions are appended to one after the other, that makes it 4 to 6 times as fast."""
    reserved_offsets: int = 10_000
    """The fewest offsets that a relaxed log reserves at a time. If twice the number that it has
    assigned since it was opened is more, it reserves that many. After an unclean stop, the next
    start skips the unused ones."""
    reserved_offsets_max: int = 1_000_000
    """The most offsets that are reserved at once. Each reservation replaces one small file."""
    flush_threads: int = 2
    """Threads that sync relaxed logs and reserve offsets for them."""
    read_buffers: int = 16
    """Buffers of 1 MB that reads share; a read that finds none free allocates memory."""
    read_ahead: int = 12
    """Further buffers of 1 MB, for old data that consumers are expected to read next."""
    read_ahead_threads: int = 1
    """Threads that read ahead. More of them would delay the syncs of producers' batches, because a
    disk serves requests in order."""
    read_places: int = 4096
    """Remembered positions in segments: where consumers continue without a search, and where other
    consumers will pass. Enough for four consumers of 1,000 partitions, or for 4 GB read by one."""
    scanned_entries: int = 1 << 16
    """The most side entries that the scan of a segment holds at a time: 2.6 MB, enough for a
    gigabyte in batches of 16 KB. A segment of the smallest batches has sixteen million entries."""
    io_threads: int = 4
    """Threads that read batches outside the cache and open partitions."""
    rest_s: float = 0.0005
    """How long a checkpoint releases the interpreter after each 0.2 ms of work. Otherwise the loop
    gets it every 0.5 ms for one call: 128 MB in batches of 5 KB delayed the loop by 50 ms."""
    switch_interval_s: float = 0.0005
    """How long the event loop may keep the interpreter while the flusher waits for it. With
    Python's default of 5 ms, a busy loop would delay every step of a flush by that time."""
