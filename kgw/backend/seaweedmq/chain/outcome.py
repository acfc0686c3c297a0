"""Tells from the present state of an entry whether a change without an answer was made.

Each change of an entry expects its marks (identity, epoch, changes) and leaves greater ones: a
change by its writer adds one to `changes`, a take-over raises the epoch. So the marks that are
found show whether the change was made, can still be made by a request on its way, or never will be,
however late that request arrives.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.chain.marks import Marks


class ChangeOutcome(Enum):
    """The fate of a change, as the entry shows it."""

    DONE = auto()
    OPEN = auto()
    """The entry is as it was before: the request may still arrive."""
    OVERTAKEN = auto()
    """A writer with a lower epoch came first. This change will never be made; a change that expects
    the present entry may be."""
    TAKEN_OVER = auto()
    """A writer with a higher epoch, or another writer with this one, has changed the entry: the
    filer takes no request of ours any more. Only the content shows whether this change was made
    before."""
    GONE = auto()
    """The entry does not exist any more."""
    DAMAGED = auto()
    """The marks were made by no writer that keeps to the rules, or are older than those before the
    change."""


def judge(found: Marks | None, before: Marks | None, after: Marks) -> ChangeOutcome:
    """Return the fate of a change.

    `found` are the present marks of the entry, None when it is not there; `before` the marks that
    the change expects, None when it makes the entry; `after` the marks that the change leaves.
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
        # Under an epoch one writer alone changes an entry, one change at a time.
        return ChangeOutcome.DAMAGED if found.writer == after.writer else ChangeOutcome.TAKEN_OVER
    if before is None or (found.epoch, found.changes) > (before.epoch, before.changes):
        return ChangeOutcome.OVERTAKEN
    return ChangeOutcome.DAMAGED
