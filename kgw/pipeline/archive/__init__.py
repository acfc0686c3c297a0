"""The records of a topic in files, and the log of commits that names these files.

Functions over files, without Spark: `names` has the layout, `coverage` the rules, `commit_log` the
only record of progress. A file that no entry of the log names is an orphan: it is never read.
"""
