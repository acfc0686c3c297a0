"""Stores segments on a local disk in Kafka's file format, and small state in a database.

Read first `options` (the settings), `failures` (the ways in which a disk can fail) and `layout`
(the names and the small files of a data directory): all other modules use them. Then the
subpackages, each of which builds on those before it:

1. `files`: reads, writes and syncs files, and knows nothing of logs.
2. `log`: one partition on the disk: its segments, side files and small state.
3. `read`: finds the batches at an offset and verifies them.
4. `recover`: makes a log writable again after a crash.
5. `write`: makes appended batches durable and acknowledges them.
6. `compact`: keeps the newest record of each key.

`store` uses these subpackages for all logs of a data directory, without threads. `trimming` moves
the log starts and removes files that are not needed any more. `backend` and `partition_log`
implement the backend's interface in the event loop, with `opening` for the start, `creating` for
new logs and `disk_watch` for the state of the disk; `threads` runs the work that must not block the
loop, and `shell` lists the methods of the backend that logs call. `offline` has the commands for a
stopped directory: check, dump, adopt, copy.
"""
