"""The keys that have an owner: partitions, groups and transactional ids."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from kgw.types import PartitionKey


class CoordinatorType(IntEnum):
    """The key types of FindCoordinator, with its numbers."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """A group or a transactional id."""

    type: CoordinatorType
    key: str


Owned: TypeAlias = PartitionKey | CoordinatorKey
"""A partition, whose owner is its leader, or a group or id, whose owner is its coordinator."""
