"""Moving groups from the offset ledger of the old scheme to native offsets, as a client does.

SeaweedFS's old gateway kept a ledger: an entry for each record, with its Kafka offset, its time and
its size. Groups stored such offsets as their positions. `sources` reads both; `ledger` knows their
forms, and what partitions and groups were called. For each partition `mapping` matches the entries
with the records that the gateway has (`native`), and says where a group goes on. `plan` puts all of
that into a file (`sealed_file`). `moves` commits the offsets of a plan, or takes them back;
`verification` compares the gateway with a plan.
"""
