"""Keeping the newest record of each key.

`run` is one run over one log, in the event loop. It plans what is to be compacted and starts a
`process` for it. That reads sealed segments and writes new ones beside them (`compaction`). The run
has each new segment put in place (`log.swap`). If the process fails, `ending` says how it ended.
"""
