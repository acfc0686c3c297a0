"""Retention, compaction and recompression, which handle one partition after the other."""
