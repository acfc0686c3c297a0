"""A partition's write and read path, and the topics that partitions belong to."""
