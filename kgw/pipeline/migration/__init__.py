"""Planning a migration in parts: what is read goes to files, a partition is matched by itself.

The rules are those of `kgw.migrate`. `columns` are the files between the parts, `units` the parts.
"""
