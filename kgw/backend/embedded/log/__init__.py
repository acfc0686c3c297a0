"""One partition on the disk.

`segmented_log` is the partition: a list of segments, the newest of which is written. A `segment` is
a file of batches and, beside it, a `side` file with one checked entry a batch, by which batches are
found. `indexes` and `index_files` write Kafka's own indexes for Kafka's tools. What the records do
not say (where the log starts, its epochs) is in `log_state`.

What all logs of a directory share is in `data_directory`. Beside the logs lie the `journal`, which
can make many small appends durable with one sync, the `snapshots` of derived state, and what
recovery has cut off (`quarantine`). Directories come with `new_directories` and go with `removals`;
`swap` puts a compacted segment in place of old ones.
"""
