"""Tools that an operator runs on a namespace of a SeaweedFS.

`opening` holds a namespace that no gateway serves; `views` reads partitions, and changes nothing.
`check` reads every file and reports faults; `adopt` restores lost rows of topics; `log_place` reads
and writes logs that have their offsets already.
"""
