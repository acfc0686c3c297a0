"""Plans a migration in units: they store entries and records in files, and match each partition.

The rules are those of `kgw.migrate`. `columns` has the files between the units, `units` the work of
each unit.
"""
