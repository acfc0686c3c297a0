"""Backups of a data directory: taken while it is served, checked, and restored.

A backup is the directory as a kill at one instant would have left it: no commit of the state runs
while the flusher says how long each log is, so that a transaction's state and its markers, and a
committed offset and the record before it, belong together. From then on removals and exchanges of
segments wait until each file has a second name in the directory's `backup`, which takes
milliseconds; all else is done by the process that makes the backup, from those names.

See docs/decisions/0154-backups.md.
"""
