"""From what a crash has left on the disk to a log that can be written.

After an unclean stop `journal_replay` first writes again what the journal holds. Then `recovery`
opens log after log: it reads segments batch by batch (`scan`), keeps whole batches, cuts a torn
tail and mends side files (`repair`), and settles the offset at which the log goes on. Every step
may be interrupted and repeated.

`rebuilding` makes a damaged side file anew while the log is in use.
"""
