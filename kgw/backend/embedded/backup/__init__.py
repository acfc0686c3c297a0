"""Backups of a data directory: makes them while it is served, verifies and restores them.

A backup contains the directory as a kill at one instant would have left it. The flusher reports the
length of each log while no transaction of the state database runs. So transaction states match
their markers, and committed offsets match the records. Then each file gets a hard link in the
directory's `backup`, which takes milliseconds. Until that is done, no segment is removed or
replaced. A separate process makes the backup and reads the files through these links.

See docs/decisions/0154-backups.md.
"""
