"""From an append to bytes that are durable, and the answer that says so.

1. `flusher` has `write_path` give an append its offsets and queue it. At the end of the event
   loop's turn `flusher` wakes the thread that writes.
2. That thread takes a group from the queue. `write_path` writes it into segments, if the disk has
   room.
3. The group is synced: segment by segment (`segment_syncs`), or in the journal, with the segments
   synced later.
4. In the event loop the high watermark moves and the appends succeed, group after group.

A relaxed log is answered without step 3 (`relaxed`), and `flush_timer` has it synced a little
later. The system is asked to begin with what a later sync would have to write.
"""
