"""A partition's write and read path, and the topics that partitions belong to.

`partition` is one partition. Batches enter it through its `admission`, with the checks in `append`,
and readers see it through a `view`; `read` reads several partitions for one Fetch. `topics` has the
catalog, and the manager that changes topics. `maintain` removes and rewrites records according to
`rules`.
"""
