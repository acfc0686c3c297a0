"""A topic's records in files, and the log of commits that says which files they are.

Functions over files, without Spark: `names` has the layout, `coverage` the rules, `commit_log`
the only truth about progress. A file that no entry of the log names is an orphan: never read.
"""
