"""The states of a transactional id and what moves it from one to another, as a table.

What is not in the table cannot happen: `next_state` raises.
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """Kafka's states, by the names that clients are told."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and no transaction yet."""

    ONGOING = "Ongoing"
    """Partitions or groups are in a transaction."""

    PREPARE_COMMIT = "PrepareCommit"
    """It is decided, for ever: markers are on their way."""

    PREPARE_ABORT = "PrepareAbort"
    """It is decided, for ever: markers are on their way."""

    COMPLETE_COMMIT = "CompleteCommit"
    """Every marker is written: the next transaction may begin."""

    COMPLETE_ABORT = "CompleteAbort"
    """Every marker is written: the next transaction may begin."""

    DEAD = "Dead"
    """It was idle for long, and its removal is being stored."""


class TransactionEvent(Enum):
    """What moves a transactional id to another state."""

    INITIALISED = "a producer asks for its id and epoch"
    ADDED = "a partition or a group is added"
    COMMITTED = "the producer commits"
    ABORTED = "the producer aborts, it is fenced, or its time is over"
    ABORTED_EMPTY = "the producer aborts with nothing in the transaction"
    MARKED = "every marker is written"
    EXPIRED = "it has been idle for long"


_S = TransactionState
_E = TransactionEvent

_IDLE = {
    _E.INITIALISED: _S.EMPTY,
    _E.ADDED: _S.ONGOING,
    _E.ABORTED_EMPTY: _S.COMPLETE_ABORT,
    _E.EXPIRED: _S.DEAD,
}

TRANSITIONS: dict[TransactionState, dict[TransactionEvent, TransactionState]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: {
        _E.ADDED: _S.ONGOING,
        _E.COMMITTED: _S.PREPARE_COMMIT,
        _E.ABORTED: _S.PREPARE_ABORT,
    },
    _S.PREPARE_COMMIT: {_E.MARKED: _S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_E.MARKED: _S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: _IDLE,
    _S.COMPLETE_ABORT: _IDLE,
    _S.DEAD: {},
}

DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The outcome stands, and markers have to be written."""
OPEN = DECIDED | {TransactionState.ONGOING}
"""A transaction has begun, and is not over."""


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return where an event leads. Raises ValueError for an event that cannot happen in a state."""
    target = TRANSITIONS[state].get(event)
    if target is None:
        raise ValueError(f"a transactional id that is {state.value} cannot see: {event.value}")
    return target
