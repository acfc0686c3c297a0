"""A partition's write and read path, and the topics that partitions belong to.

`partition` is one partition, and readers see it through a `view`. `append` checks a batch before
it is stored; `read` has several partitions read for one Fetch. `topics` has the catalog. `maintain`
removes records and writes them anew, by `rules`.
"""
