"""Reads, writes and syncs files. The modules here do not know logs.

`fs` defines the few file operations that the backend uses, and implements them; tests replace it by
a simulated disk. `sync_batch` lets the kernel sync many files at the same time. `durability` turns
a failed sync into an error after which the sync must not be retried. `pool` keeps a bounded number
of files open and makes sure that only one thread syncs a file at a time. `page_cache` finds out
which parts of a file are in memory. `read_buffers` provides the memory that all reads share. `lock`
prevents a second process from using the directory.
"""
