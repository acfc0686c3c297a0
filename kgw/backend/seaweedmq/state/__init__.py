"""The state store on the filer.

1. `items`: the content of entries in the state's chain and in its snapshots. Pure.
2. `samples` and `contents`: the state in memory, made from items. Pure.
3. `snapshots`: files with the state, which replace commits that the chain has dropped.
4. `offset_mirror`: copies of committed offsets, in the files that SMQ's tools read.
5. `store`: the state store, which appends commits to a chain.
6. `placed_state`: the state of a namespace in a database server instead.
"""
