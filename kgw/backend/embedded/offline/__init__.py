"""Commands for a data directory that no server uses.

`opening` locks the directory for a command. `check` tests every invariant and returns the
violations; `derived_check` compares the files beside a segment with the segment and reads the
records. `dump` prints a segment batch by batch, `adopt` recreates lost rows of topics, and
`state_copy` copies the state into another database.
"""
