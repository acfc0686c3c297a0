"""The states of a transactional id, and a table of the transitions between them.

`next_state` raises for a transition that is not in the table.
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """Kafka's states, with the names that clients get."""

    EMPTY = "Empty"
    """The producer has its id and epoch, but has begun no transaction."""

    ONGOING = "Ongoing"
    """A transaction is open, with partitions or groups in it."""

    PREPARE_COMMIT = "PrepareCommit"
    """The commit is decided and final; its markers are being written."""

    PREPARE_ABORT = "PrepareAbort"
    """The abort is decided and final; its markers are being written."""

    COMPLETE_COMMIT = "CompleteCommit"
    """All commit markers are written; the next transaction may begin."""

    COMPLETE_ABORT = "CompleteAbort"
    """All abort markers are written; the next transaction may begin."""

    DEAD = "Dead"
    """The transactional id was idle for long, and its removal is being stored."""


class TransactionEvent(Enum):
    """The events that move a transactional id to another state."""

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
"""The states in which the outcome is final and markers have to be written."""
OPEN = DECIDED | {TransactionState.ONGOING}
"""The states in which a transaction has begun and not all its markers are written."""


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return the state after an event.

    Raises ValueError if the event is impossible in this state.
    """
    target = TRANSITIONS[state].get(event)
    if target is None:
        raise ValueError(f"a transactional id that is {state.value} cannot see: {event.value}")
    return target
