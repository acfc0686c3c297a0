"""From an append to bytes that are durable, and the answer that says so.

1. `writer` gives batches their offsets and queues them (`append`).
2. `flusher` takes a group from the queue: in its thread, or in the event loop for a small one.
3. `writer` writes the group into segments (`written`), while the disk has room (`disk_room`).
4. The group is synced: segment by segment (`segment_syncs`), or in the journal, with the segments
   synced later (`journaled`).
5. The appends succeed and the high watermark moves.

A relaxed log answers after step 3 (`relaxed`), and `flush_timer` has it synced a little later.
`write_back` has the system begin with what a later sync would have to write.
"""
