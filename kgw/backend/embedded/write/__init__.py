"""Makes appended batches durable and acknowledges them.

1. `flusher` lets `write_path` assign an append's offsets and queue it. At the end of the event
   loop's iteration it wakes the thread that writes.
2. This thread takes a group of appends from the queue. If the disk has enough space, `write_path`
   writes the batches into segments.
3. The group is synced, either segment by segment (`segment_syncs`) or in the journal. Segments of a
   group in the journal are synced later.
4. In the event loop, the high watermark moves and the group's appends succeed.

Appends to a relaxed log are acknowledged before step 3 (`relaxed`), and `flush_timer` syncs the log
a little later. The system is asked early to write back bytes, so that a later sync has less to
write.
"""
