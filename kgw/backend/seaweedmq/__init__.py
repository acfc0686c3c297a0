"""A SeaweedFS underneath: SMQ's own files, written through the filer, with Kafka's promises.

The gateway keeps nothing on its own disk. In the order in which one builds on the other:

1. `filer`: the seam. Entries that are changed under a condition, and chunks that hold bytes.
2. `channel`: the filer and the volume servers, reached over gRPC and HTTP.
3. `chain`: files that one writer extends, and that another takes over for good.
4. `entries`: what stands in the files, SMQ's log entries; `layouts` and `record_entries` make them
   of batches, and batches of them. Pure.
5. `state.store`: the small state, in a chain of its own.
6. `partition_log`: a partition on a chain. `chunks` and `reading` find and keep what is read,
   `log_files` and `rewriting` change what is there, `snapshots` stand beside it.
7. `topic_conf` and `topics`: where partitions are, by SMQ's names; `address`: where SeaweedFS is.
8. `native`: topics that SMQ's own broker leads; `strangers`: what it does in those of kgw.
9. `backend`: what the gateway sees. `fence` is tested at every start.
10. `lease`: which gateway serves a namespace, and until when.
"""
