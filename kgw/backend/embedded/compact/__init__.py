"""Rewrites closed segments: by compaction, or by compressing all their records with zstd.

`run` controls one run over one log, in the event loop. It chooses the segments to rewrite and
starts a `process`, which reads them and writes new segments (`rewriting`) by the rules of
`compaction` or `recompression`. The run then replaces the old segments by the new ones
(`log.swap`). If the process fails, `process_exit` explains why.
"""
