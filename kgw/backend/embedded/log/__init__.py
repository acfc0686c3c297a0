"""One partition on the disk.

`segmented_log` is a partition's list of segments; appends go to the newest segment. A `segment` is
a file of batches and its `side` file, which has an entry for each batch with its position and
checksums. `indexes` and `index_files` write Kafka's indexes for Kafka's tools. `log_state` stores
the log start and the epochs, which the records do not contain.

`data_directory` has the objects that all logs of a directory share. The `journal` can make many
small appends durable with one sync; `snapshots` stores derived state; `quarantine` stores the bytes
that recovery cut off. `new_directories` creates directories of partitions and `removals` deletes
them; `swap` replaces old segments by a compacted one.
"""
