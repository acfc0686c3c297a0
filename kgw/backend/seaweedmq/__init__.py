"""Stores records in SeaweedMQ's (SMQ's) files in a SeaweedFS, with Kafka's guarantees.

The gateway keeps nothing on its own disk. Each module uses those before it:

1. `filer`: the interface to SeaweedFS: conditional updates of entries, and chunks of bytes.
2. `channel`: calls the filer and the volume servers over gRPC and HTTP.
3. `chain`: a list of files with one writer at a time; a new writer excludes the old one.
4. `entries`: converts batches to SMQ's log entries, and log entries to batches. Pure.
5. `state`: the state store, in a separate chain.
6. `topics`: the directories of topics and partitions; `address`: the address of SeaweedFS.
7. `partition_log`: a partition's log, with an `append_queue`. `chunks` fetches and caches chunks
   for readers. `log` reads and changes a partition's files, and `compact` rewrites them.
8. `native`: topics that SMQ's own broker leads.
9. `backend`: the interface to the gateway. `watch` tests SeaweedFS at every start and keeps
   checking it.
10. `lease`: which gateway serves a namespace, and until when.
"""
