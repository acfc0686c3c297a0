"""What became of a change whose answer nobody knows: read from what is there now.

Each change of an entry expects its marks (identity, epoch, changes) and leaves greater ones: of its
writer's changes one more, at a take-over a higher epoch. So what is found says whether the change
was made, can still be made by a request that is on its way, or never will be, however late that
request arrives.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.chain.marks import Marks


class Verdict(Enum):
    """What a look at the entry says about a change of it."""

    DONE = auto()
    OPEN = auto()
    """The entry is as it was before: the request may still arrive."""
    OVERTAKEN = auto()
    """A writer with a lower epoch came first. This change will never be made; one that expects
    what is there now may be."""
    TAKEN_OVER = auto()
    """A writer with a higher epoch, or another with this one, has changed the entry: no request
    of ours is taken any more. Whether this one came before it, the content says."""
    GONE = auto()
    """There is no such entry any more."""
    DAMAGED = auto()
    """What is there is nobody's who keeps to the rules, or older than what was there before."""


def judge(found: Marks | None, before: Marks | None, after: Marks) -> Verdict:
    """Say what became of a change.

    `found` is what the entry has now, None when it is not there; `before` what the change expects,
    None when it makes the entry; `after` what the entry has once it is made.
    """
    if found == after:
        return Verdict.DONE
    if found == before:
        return Verdict.OPEN
    if found is None:
        return Verdict.GONE
    if found.identity != after.identity:
        return Verdict.DAMAGED
    if found.epoch > after.epoch:
        return Verdict.TAKEN_OVER
    if found.epoch == after.epoch:
        # Nobody but its writer changes an entry under an epoch, and it makes one change at a time.
        return Verdict.DAMAGED if found.writer == after.writer else Verdict.TAKEN_OVER
    if before is None or (found.epoch, found.changes) > (before.epoch, before.changes):
        return Verdict.OVERTAKEN
    return Verdict.DAMAGED
