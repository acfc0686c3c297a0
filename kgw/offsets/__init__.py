"""Offsets of records, and offsets that groups commit.

Offsets of records: `manager` assigns them, `recovery` and `storage` find the next one after a stop,
and readers seek with `seeker`, `where`, `ranges`, `reader` and `lag`.

Committed offsets have one form from the request to the store, `topic_offsets.OffsetChanges`: for
each topic single offsets, a `block` of many, or None, which deletes all of them. `TopicOffsets`
applies such a change and returns which `rows` it touches. A `table` holds the committed offsets of
a group, and `pending` the offsets in transactions that have not ended.
"""
