"""What people run on a directory that no gateway uses.

`opening` holds the directory meanwhile. `check` walks every invariant and returns what does not
hold; `derived_check` compares what lies beside a segment, and reads the records. `dump` shows a
segment batch by batch, `adopt` brings topics back whose rows are lost, and `state_copy` moves the
state into another database.
"""
