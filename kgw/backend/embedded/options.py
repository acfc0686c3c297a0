"""The options of the embedded backend, with the reason for each default."""

from __future__ import annotations

from typing import NamedTuple


class EmbeddedOptions(NamedTuple):
    """Sizes and limits of one data directory."""

    cache_bytes: int = 32 << 20
    """Memory for recently appended batches of all partitions, from which consumers at the end of a
    log are served."""
    min_free_bytes: int = 64 << 20
    """Appends are refused while the disk has less free space, so that the state store can still
    commit."""
    may_share_directory: bool = False
    """Whether a new data directory may be created beside other files."""
    journal_bytes: int = 16 << 20
    """Size of each of the two journal files, which are filled with zeros once and then reused."""
    journal_append_bytes: int = 32 << 10
    """A group of appends goes through the journal if its average size per partition is below this
    value (docs/decisions/0002-journal.md); 0 disables the journal."""
    group_bytes: int = 32 << 20
    """The most bytes that one flush writes. The next flush writes the remaining ones."""
    quarantine_bytes: int = 256 << 20
    """The most bytes of torn tails to keep, enough for four tails of the largest size (decision
    74)."""
    checkpoint_bytes: int = 128 << 20
    """After this many appended bytes a checkpoint is made, in addition to the periodic ones. It
    limits the bytes that recovery scans. Recovery scans about 2 GB/s of large batches, or 30 MB/s
    of batches of 160 bytes."""
    checkpoints_per_turn: int = 200
    """Checkpoints that the event loop encodes in one iteration."""
    indexed_bytes: int = 1 << 20
    """Number of bytes by which an active segment must grow before a checkpoint updates Kafka's
    indexes. Otherwise a checkpoint would open and write two files for each of a thousand segments
    that have grown by 128 KB."""
    open_files: int = 512
    """Number of files of segments that stay open. If more partitions are in use, each append and
    each read has to open a file. So a server uses a larger number if its limit of descriptors
    allows it."""
    group_partitions: int = 128
    """The most partitions that one flush writes."""
    dirty_segments: int = 128
    """Once this many segments have bytes that are durable only in the journal, these segments are
    synced and the other journal file is used. Until then each of these segments needs a descriptor,
    and so do the segments of the other journal file. A server uses a larger number if its limit of
    descriptors allows it. Otherwise, with appends to 1,000 partitions one after the other, each
    group would sync as many segments as it writes."""
    unsynced_segments: int = 256
    """The most relaxed logs with unsynced bytes, each of which needs a descriptor. Appends to
    further logs wait for a sync, as in a strict log. A server uses a larger number if its limit of
    descriptors allows it. This makes appends to 1,000 partitions, one after the other, 4 to 6 times
    as fast."""
    reserved_offsets: int = 10_000
    """The fewest offsets that a relaxed log reserves at a time. A busy log reserves twice the
    number of offsets that it has assigned since it was opened. After an unclean stop, the next
    start skips unused offsets."""
    reserved_offsets_max: int = 1_000_000
    """The most offsets that are reserved at once. Each reservation replaces one small file."""
    flush_threads: int = 2
    """Threads that sync relaxed logs and reserve offsets for them."""
    read_buffers: int = 16
    """Number of buffers of 1 MB that reads share. If all are in use, a read allocates memory."""
    read_ahead: int = 12
    """Number of further buffers of 1 MB, for old data that consumers will probably read next."""
    read_ahead_threads: int = 1
    """Number of threads that read ahead. More threads would delay the syncs of appends, because a
    disk serves requests in order."""
    read_places: int = 4096
    """Number of remembered positions in segments, at which a consumer's next read needs no search.
    Enough for four consumers of 1,000 partitions, or for 4 GB that one consumer reads."""
    scanned_entries: int = 1 << 16
    """The most side entries that the scan of a segment has in memory. They need 2.6 MB, and cover a
    gigabyte of batches of 16 KB. A segment of the smallest batches has sixteen million entries."""
    io_threads: int = 4
    """Threads that read batches outside the cache and open partitions."""
    rest_s: float = 0.0005
    """How long a checkpoint sleeps after each 0.2 ms of work, so that the event loop gets the
    interpreter. Otherwise the loop would get it for one call every 0.5 ms. A checkpoint after 128
    MB of batches of 5 KB then delayed the loop by 50 ms."""
    switch_interval_s: float = 0.0005
    """How long the event loop may keep the interpreter while the flusher waits for it. With
    Python's default of 5 ms, a busy loop would delay every step of a flush by that time."""
