"""Writing closed segments anew: the newest record of each key, or all records in zstd.

`run` is one run over one log, in the event loop. It plans what is to be rewritten and starts a
`process` for it. That reads sealed segments and writes new ones beside them (`rewriting`), by the
rules of `compaction` or of `recompression`. The run has each new segment put in place (`log.swap`).
If the process fails, `ending` says how it ended.
"""
