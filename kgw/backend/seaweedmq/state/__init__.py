"""The small state on the filer: `store` and its parts.

1. `items`: the content of entries in the state's chain and in its snapshots. Pure.
2. `samples` and `contents`: the state in memory, as the items make it. Pure.
3. `snapshots`: files from which an open reads commits that the chain has dropped.
4. `offset_mirror`: copies of committed offsets, in the files that SMQ's tools read.
5. `store`: all of it together, behind a chain of commits.
6. `placed_state`: the state of a namespace in a database server instead.
"""
