"""Finds the batches at an offset and verifies them.

1. `kgw.backend.hot_cache` is tried first: it has recently appended batches in memory, as they were
   accepted. `kgw.cache.bytes` limits its size.
2. `reading` reads all other batches from the segments, and verifies the checksums of every byte on
   every read. It first tries in the event loop, and reads only bytes that are in the page cache.
   If that is not enough, it reads in a thread; only a read in a thread reports damage.
3. `source` provides the bytes: from the page cache, or from the disk past it. `read_ahead` is a
   source in front of it, which reads the next bytes of old data before they are requested. Both
   read into a limited number of buffers.

`lookups` finds batches by time and describes segments, in a thread.
"""
