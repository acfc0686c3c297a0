"""Keeping the newest record of each key.

`run` is one run over one log, in the event loop. It plans what is to be cleaned and starts a
`process` for it. That reads sealed segments and writes new ones beside them (`cleaning`). The run
then has each new segment put in place (`log.swap`), and says how the process ended (`ending`) if it
did not come to its end.
"""
