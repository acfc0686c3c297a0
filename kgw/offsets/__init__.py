"""Offsets of records, and offsets that groups commit.

Offsets of records: `manager` assigns them, `recovery` and `storage` find the next offset after a
stop; `seeker`, `where`, `ranges`, `reader` and `lag` serve readers.

Committed offsets have one form from the request to the store, `topic_offsets.OffsetChanges`: for
each topic single offsets, a `block` of many, or None, which deletes all of them. `TopicOffsets`
applies such a change and returns the `rows` that change. A `table` holds the committed offsets of a
group, and `pending` the offsets in transactions that have not ended.
"""
