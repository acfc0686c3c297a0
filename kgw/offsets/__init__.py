"""Offsets: those that records are given, and those that groups commit.

Native offsets: who assigns them (`manager`), where to go on after a stop (`recovery`,
`storage`), and how readers find their place (`seeker`, `where`, `ranges`, `reader`, `lag`).

Committed offsets have one form from the request to the store, `topic_offsets.OffsetChanges`: by
topic, single offsets, a `block` of many, or None for all that there is. `TopicOffsets` takes such a
change over and says which `rows` it touches; a `table` is what a group has committed, and `pending`
what transactions are to commit that have not ended.
"""
