"""Log files that are written anew: joined, compacted, or put into zstd."""
