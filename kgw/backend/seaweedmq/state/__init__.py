"""The small state on the filer: what `store` is made of.

1. `items`: what stands in the entries of the state's chain and of its snapshots. Pure.
2. `samples` and `contents`: what the items add up to, in memory. Pure.
3. `snapshots`: files from which an open reads what the chain no longer holds.
4. `offset_mirror`: committed offsets, written once more where SMQ's tools look for them.
"""
