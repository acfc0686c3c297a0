"""Level 4 of an audit: checks that a topic still has the records that its server acknowledged.

It also checks that its offsets did not move back. `journal` reads the acknowledged records; `ends`
compares the earlier bounds of partitions, and `comparing` the records; `audit` fetches from the
server.
"""
