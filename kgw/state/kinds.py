"""The kinds of rows that more than one module knows."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "topic"
TOPIC_CREATION: Final = "topic-creation"
TOPIC_DELETION: Final = "topic-deletion"

CLUSTER: Final = "cluster"
"""It has one row, whose key is the same word."""
BROKER_CONFIG: Final = "broker-config"
"""It has one row, whose key is `CLUSTER`."""

CLASSIC_GROUP: Final = "classic-group"
GROUP_OFFSETS: Final = "group-offsets"
OFFSET_BLOCK: Final = "group-offset-block"
PENDING_OFFSETS: Final = "group-pending-offsets"
"""Of transactions that have not ended."""

BINDING_KIND: Final = "data-directory"
"""Rows that are the store's own, and not copied to another."""
COPYING_KEY: Final = "copying"
"""A row of `BINDING_KIND`: a copy into the store was begun and is not complete."""

GROUP_KINDS: Final = frozenset({CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS})
"""A start that finds none of them does without groups' code."""

TRANSACTION: Final = "transaction"
"""Transactional ids. A start that finds none does without the code of transactions."""

WATCHED_KINDS: Final = frozenset({TOPIC, CLUSTER, BROKER_CONFIG})
"""What `StateStore.watch` tells of. Each change is stored twice: not for what is written often."""
