"""Serves topics of SeaweedMQ's broker to Kafka clients.

Records are read from the log files that the broker writes, through the filer. The broker itself is
called only if that is allowed (`kgw.seaweedmq.acks`, `kgw.seaweedmq.native.write`). Each module
uses those before it:

1. `names`: patterns of topics, topics from their `topic.conf`, topic ids. Pure.
2. `entries`: converts SMQ's log entries to record batches with the same offsets. Pure.
3. `following`: tracks the known end of the log; detects repeated offsets. Pure.
4. `files`: the log files of a partition, in the order of their offsets.
5. `messages` and `broker`: call the broker over gRPC.
6. `publishing`: appends through a publish stream of the broker.
7. `partition_log`: one partition.
8. `topics`: the present topics, which are listed from time to time.

`foreign_writes` finds files of the broker and of other programs in directories of kgw's topics.
"""
