"""Topics as tables of Spark SQL: archived records, followed by later records from the log.

`snapshot` fixes the offsets of a table, `tail` reads offsets that are not archived, `columns` and
`decoding` make the columns, and `tables` hides system columns that a query does not name.
"""
