"""Topics as tables of Spark SQL: the archived records, and the later ones from the log.

`snapshot` fixes which offsets a table has, `tail` reads those that are not archived, `columns` and
`decoding` make the columns, and `tables` hides system columns that a query does not name.
"""
