"""Kinds of rows that are of groups: a start that finds none of them does without groups' code."""

from __future__ import annotations

from typing import Final

CLASSIC_GROUP: Final = "classic-group"
GROUP_OFFSETS: Final = "group-offsets"
OFFSET_BLOCK: Final = "group-offset-block"

GROUP_KINDS: Final = frozenset({CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK})
