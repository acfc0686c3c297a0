"""A SeaweedFS underneath: SMQ's own files, written through the filer, with Kafka's promises.

The gateway keeps nothing on its own disk. In the order in which one builds on the other:

1. `filer`: the seam. Entries that are changed under a condition, and chunks that hold bytes.
2. `channel`: the filer and the volume servers, reached over gRPC and HTTP.
3. `chain`: files that one writer extends, and that another takes over for good.
4. `entries`: the content of files, SMQ's log entries, as batches, and batches as entries. Pure.
5. `state`: the small state, in a chain of its own.
6. `topics`: where partitions are, by SMQ's names; `address`: where SeaweedFS is.
7. `partition_log`: a partition on a chain, with an `append_queue`. `chunks` fetches and keeps data
   for readers; `log` reads one partition's files and changes them, and `compact` writes them anew.
8. `native`: topics that SMQ's own broker leads.
9. `backend`: the interface to the gateway. `watch` tests SeaweedFS at every start, and checks it
   from
   then on.
10. `lease`: which gateway serves a namespace, and until when.
"""
