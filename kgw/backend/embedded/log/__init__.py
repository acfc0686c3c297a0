"""One partition on the disk.

`segmented_log` is the partition: a list of segments, of which the newest is written to. A `segment`
is a file of batches and its `side` file: one entry with checksums for each batch, which is used to
find the batch. `indexes` and `index_files` write Kafka's indexes for Kafka's tools. `log_state`
stores facts that the records do not contain: where the log starts, and its epochs.

`data_directory` has the objects that all logs of a directory share. The `journal` can make many
small appends durable with one sync; `snapshots` stores derived state; `quarantine` stores the bytes
that recovery cut off. `new_directories` creates directories of partitions and `removals` deletes
them; `swap` replaces old segments by a compacted one.
"""
