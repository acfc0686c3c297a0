"""Tools that an operator runs on a namespace of a SeaweedFS.

`opening` locks a namespace that no gateway serves. `views` reads partitions without changing them.
`check` reads every file and reports problems. `adopt` restores lost rows of topics. `log_place`
reads and writes logs for `kgw log copy`.
"""
