"""What becomes of an append."""

from __future__ import annotations

from typing import NamedTuple

from kgw.completion import Completion


class AppendResult(NamedTuple):
    """Where an append landed. It exists only once the topic's durability is kept."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Append(Completion[AppendResult]):
    """Batches on their way into a log. Callbacks never append."""

    __slots__ = ()


def refused_append(error: Exception) -> Append:
    """Return an append that was not taken."""
    append = Append()
    append.error = error
    append.is_done = True
    return append
