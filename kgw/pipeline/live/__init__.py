"""Level 4 of an audit: compares a topic with the responses that its server gave before.

`journal` reads which records were acknowledged, `ends` the earlier first and end offsets of
partitions; `comparing` compares records, and `audit` asks the server.
"""
