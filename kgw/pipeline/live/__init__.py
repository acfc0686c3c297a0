"""Level 4 of an audit: a topic beside what its server has said of it before.

`journal` reads what was acknowledged, `ends` where partitions began and ended; `comparing` decides,
and `audit` asks the server.
"""
