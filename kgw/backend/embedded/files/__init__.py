"""Reading, writing and syncing files. Nothing here knows what a log is.

`fs` names the few operations that the backend uses and carries them out; tests put a simulated disk
in their place. The kernel syncs many files side by side (`sync_batch`).
`durability` turns a sync that fails into an error that nobody may answer by trying again. `pool`
keeps a bounded number of files open and has each synced by one thread at a time. `page_cache` tells
what of a file is in memory. `read_buffers` is the memory that reads share. `lock` keeps a second
process out.
"""
