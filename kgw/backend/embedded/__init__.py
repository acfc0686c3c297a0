"""Segments on a local disk in Kafka's own layout, and a database for small state beside them.

Look first at what all share: `options` (what can be set), `failures` (how a disk can fail) and
`layout` (the names and the small files of a data directory). Then the rooms, in the order in which
one builds on the other:

1. `files`: reading, writing and syncing files, and nothing else.
2. `log`: one partition on the disk: its segments, side files and small state.
3. `read`: from an offset to verified batches.
4. `recover`: from what a crash has left to a log that can be written.
5. `write`: from an append to bytes that are durable, and its answer.
6. `compact`: keeping the newest record of each key.

`store` puts them together, as plain code without threads: all logs of a data directory. `backend`
and `partition_log` are what the gateway sees, in the event loop; `threads` are the ways from there
to the disk and back, and `shell` is what else logs ask of the backend that has opened them.
`offline` is what people run on a stopped directory: check, dump, adopt, copy.
"""
