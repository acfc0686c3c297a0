"""Moves groups from the offset ledger of the old scheme to native offsets, as a Kafka client.

SeaweedFS's old gateway kept a ledger: an entry for each record, with its Kafka offset, its time and
its size. Groups committed such offsets. `sources` reads both; `ledger` decodes them, and the names
of partitions and groups. For each partition `mapping` matches the entries with the gateway's
records (`native`), and computes the new positions of groups. `plan` writes the result to a file
(`sealed_file`). `moves` commits the offsets of a plan, or rolls them back; `verification` compares
the gateway with a plan.
"""
