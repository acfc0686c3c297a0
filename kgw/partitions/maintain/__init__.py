"""Retention, compaction and recompression, one partition after the other."""
