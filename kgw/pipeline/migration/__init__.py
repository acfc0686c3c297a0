"""Plans a migration in units: some store entries and records, others match one partition each.

The rules are those of `kgw.migrate`. `columns` reads and writes these files, and `units` does the
work of each unit.
"""
