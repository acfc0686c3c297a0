"""An archive: the records of a topic in data files, and a commit log that names these files.

The modules work on files, without Spark: `names` builds the paths, `coverage` checks each commit,
and `commit_log` stores the only record of progress. A file that no entry of the log names is an
orphan: it is never read.
"""
