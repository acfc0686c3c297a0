"""The kinds of rows that more than one module knows."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "topic"
TOPIC_CREATION: Final = "topic-creation"
TOPIC_DELETION: Final = "topic-deletion"
FOREIGN_TOPIC: Final = "foreign-topic"
"""Topics that the backend has ever listed as foreign: the key is the id's text, the value the name.
A start keeps the offsets that groups have committed in them, even if it does not find the topic."""

CLUSTER: Final = "cluster"
"""It has one row, whose key is the same word."""
BROKER_CONFIG: Final = "broker-config"
"""It has one row, whose key is `CLUSTER`."""

CLASSIC_GROUP: Final = "classic-group"
GROUP_OFFSETS: Final = "group-offsets"
OFFSET_BLOCK: Final = "group-offset-block"
PENDING_OFFSETS: Final = "group-pending-offsets"
"""Offsets in transactions that have not ended."""

BINDING_KIND: Final = "data-directory"
"""Rows about the store itself, which are not copied to another store."""
COPYING_KEY: Final = "copying"
"""A row of `BINDING_KIND`: a copy into the store was begun and is not complete."""

GROUP_KINDS: Final = frozenset({CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS})
"""If there are no rows of these kinds at a start, the code for groups is not imported."""

SCRAM_CREDENTIAL: Final = "scram-credential"
"""A credential, which checks a password. The key is the mechanism, a slash, and the user."""

ACCESS_RULE: Final = "access-rule"
"""The value is the rule, the key a digest of it."""
UNKNOWN_USERS: Final = "unknown-users"
"""It has one row, whose key is `CLUSTER`: a secret, from which the salts of unknown users come."""

DELEGATION_TOKEN: Final = "delegation-token"  # noqa: S105 - a kind, not a secret
"""The value is the token without its HMAC, the key the token's id."""

TRANSACTION: Final = "transaction"
"""Transactional ids. If there are none at a start, the code of transactions is not imported."""

WATCHED_KINDS: Final = frozenset({TOPIC, CLUSTER, BROKER_CONFIG, ACCESS_RULE, DELEGATION_TOKEN})
"""The kinds of `StateStore.changes_since`. Each change of them is stored twice, so kinds with many
writes should not be among them, nor kinds with secrets: a change stays when its row is gone."""
