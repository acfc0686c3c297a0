"""Topics as tables of Spark's SQL: what an archive has, and what came since from the topic.

`snapshot` fixes which offsets a table has, `tail` reads those that are not archived, `columns` and
`decoding` make the columns, and `tables` hides those that nobody asked for.
"""
