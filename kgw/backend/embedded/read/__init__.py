"""From an offset to verified batches.

1. `kgw.backend.hot_cache` is looked at first: batches that were appended a moment ago, in memory,
   as they were accepted. `kgw.cache.bytes` bounds it.
2. `reading` has all others, of which it compares every byte with a checksum each time. First the
   event loop has it look at what is in memory. What that cannot serve, a thread has it read; only
   then does it say what is damaged.
3. `source` is where `reading` gets bytes from: the page cache, or the disk past it.
   `read_ahead` is another source before that one, with what comes next of old data. Both read into
   buffers of a bounded number.

`lookups` finds batches by time and describes segments, in a thread.
"""
