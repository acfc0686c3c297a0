"""Makes appended batches durable and acknowledges them.

1. `flusher` lets `write_path` assign an append's offsets and queue it. At the end of the event
   loop's iteration it wakes the thread that writes.
2. This thread takes a group of appends from the queue. `write_path` writes them into segments, if
   the disk has enough space.
3. The group is synced: either segment by segment (`segment_syncs`), or in the journal. In the
   second case the segments are synced later.
4. In the event loop the high watermark moves and the appends succeed, group after group.

Appends to a relaxed log are acknowledged without step 3 (`relaxed`), and `flush_timer` syncs the
log a little later. The system is asked early to write back bytes that a later sync would have to
write.
"""
