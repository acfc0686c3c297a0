"""The rules for the removal, compaction and recompression of records. No I/O."""
