"""Topics that SeaweedMQ's broker leads, and others publish to, served to Kafka clients.

Records come from the log files that the broker writes, through the filer; the broker itself is
asked only if that is allowed (`kgw.seaweedmq.acks`, `kgw.seaweedmq.native.write`). In the order in
which one builds on the other:

1. `names`: patterns, topics as their `topic.conf` says, ids. Pure.
2. `entries`: SMQ's log entries as record batches, with the offsets that they have. Pure.
3. `following`: adds a window of the log to the known end; detects offsets that repeat. Pure.
4. `files`: the log files of a partition, in the order of their offsets.
5. `messages` and `broker`: the broker over gRPC.
6. `publishing`: appends, through a publish stream of the broker's.
7. `partition_log`: one partition.
8. `topics`: which topics there are, found anew from time to time.

`foreign_writes` looks into the directories of topics that kgw leads, for files of the broker and of
others.
"""
