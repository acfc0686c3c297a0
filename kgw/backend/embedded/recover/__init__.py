"""Makes logs writable again after a crash.

After an unclean stop `journal_replay` first writes the bytes in the journal to the segments again.
Then `recovery` opens each log. It reads segments batch by batch (`scan`), keeps whole batches, cuts
off a torn tail, repairs side files (`repair`), and decides at which offset the log continues. Each
step may be interrupted and repeated.

`rebuilding` rebuilds a damaged side file while the log is in use.
"""
