"""Finds out from the present state of an entry whether an unanswered change was made.

Each change of an entry expects its marks (identity, epoch, changes) and sets greater ones. A change
by the writer adds one to `changes`, a take-over raises the epoch. So the present marks show whether
the change was made, may still be made by a late request, or will never be made.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.chain.marks import Marks


class ChangeOutcome(Enum):
    """The outcome of a change, according to the entry."""

    DONE = auto()
    OPEN = auto()
    """The entry is unchanged, so the request may still arrive."""
    OVERTAKEN = auto()
    """A writer with a lower epoch has changed the entry, so this change will never be made. But a
    change that expects the present entry may succeed."""
    TAKEN_OVER = auto()
    """A writer with a higher epoch, or another writer with the same epoch, has changed the entry.
    The filer refuses our requests from now on. Only the content shows whether this change was made
    before."""
    GONE = auto()
    """The entry does not exist any more."""
    DAMAGED = auto()
    """No correct writer has made these marks, or they are older than before the change."""


def judge(found: Marks | None, before: Marks | None, after: Marks) -> ChangeOutcome:
    """Return the outcome of a change.

    `found` are the entry's present marks, None if it does not exist. `before` are the marks that
    the change expects, None if it makes the entry. `after` are the marks that it sets.
    """
    if found == after:
        return ChangeOutcome.DONE
    if found == before:
        return ChangeOutcome.OPEN
    if found is None:
        return ChangeOutcome.GONE
    if found.identity != after.identity:
        return ChangeOutcome.DAMAGED
    if found.epoch > after.epoch:
        return ChangeOutcome.TAKEN_OVER
    if found.epoch == after.epoch:
        # Only one writer changes an entry under an epoch, one change at a time.
        return ChangeOutcome.DAMAGED if found.writer == after.writer else ChangeOutcome.TAKEN_OVER
    if before is None or (found.epoch, found.changes) > (before.epoch, before.changes):
        return ChangeOutcome.OVERTAKEN
    return ChangeOutcome.DAMAGED
