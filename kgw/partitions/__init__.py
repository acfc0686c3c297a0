"""A partition's write and read path, and the topics that partitions belong to.

`partition` is one partition. Batches enter it through its `admission`, with the checks of `append`,
and readers see it through a `view`; `read` has several partitions read for one Fetch. `topics` has
the catalog, and the manager that changes topics. `maintain` removes records and writes them anew,
by `rules`.
"""
