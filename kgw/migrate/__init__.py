"""Moves groups from an old offset ledger to Kafka's committed offsets, as a Kafka client.

The old Kafka gateway of SeaweedFS kept a ledger with an entry for each record: its old Kafka
offset, time and size. Groups committed these old offsets. `sources` reads entries and positions,
and `ledger` decodes them and the names of partitions and groups. For each partition, `mapping`
matches the entries with kgw's records (`native`) and computes the groups' new positions. `plan`
writes the result to a file (`sealed_file`). `moves` commits the offsets of a plan or rolls them
back; `verification` compares the server with a plan.
"""
