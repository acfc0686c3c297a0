"""Backups of a data directory: makes them while it is served, verifies and restores them.

A backup contains the directory as a kill at one instant would have left it. While the flusher
reports the length of each log, no transaction of the state database runs: so the state of a
transaction and its markers, and a committed offset and the record before it, match each other. From
then on segments are not removed or replaced until each file has a hard link in the directory's
`backup`, which takes milliseconds. The process that makes the backup does everything else, and
reads the files through those links.

See docs/decisions/0154-backups.md.
"""
