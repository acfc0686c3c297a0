"""From an offset to batches whose bytes have been verified.

A reader is served by the first of these that can:

1. `cache`: batches that were appended a moment ago, in memory.
2. `read_ahead`: what was read from the disk before the reader asked for it.
3. `cached_reading`: what the system has in its page cache, read in the event loop.
4. `reading`: the disk, in a thread. It alone decides what damage means, and it looks up
   timestamps.
"""
