"""Finds the batches at an offset and verifies them.

1. `kgw.backend.hot_cache` is tried first. It has recently appended batches in memory;
   `kgw.cache.bytes` limits its size.
2. `reading` reads all other batches from the segments, and verifies the checksums of every byte on
   every read. The first attempt runs in the event loop and reads only bytes that are in the page
   cache. If bytes are missing, a second attempt runs in a thread. Only reads in a thread report
   damage.
3. `source` gets the bytes from the page cache or directly from the disk. `read_ahead` wraps a
   source and reads old data before it is requested. Both use a limited number of buffers.

`lookups` finds batches by time and describes segments. It runs in a thread.
"""
