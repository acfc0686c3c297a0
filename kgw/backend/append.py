"""The result of an append to a log, and the completion that callers wait for."""

from __future__ import annotations

from typing import NamedTuple

from kgw.completion import Completion


class AppendResult(NamedTuple):
    """Offsets and epoch of an append, valid once the append has succeeded."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Append(Completion[AppendResult]):
    """An append of batches to a log. The callbacks of this completion must not append."""

    __slots__ = ()


def refused_append(error: Exception) -> Append:
    """Return an append that has failed with this error."""
    append = Append()
    append.error = error
    append.is_done = True
    return append
