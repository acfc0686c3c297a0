"""What a step of a group's machine wants done: values, in order, for the shell to carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kgw.groups.requests import JoinResult, SyncResult
    from kgw.groups.rows import GroupRow
    from kgw.groups.trace import Round


class Answer(NamedTuple):
    """Answer the request whose waiter was handed in with it.

    Not before everything that was to be persisted until then is durable.
    """

    waiter: object
    result: JoinResult | SyncResult


class Persist(NamedTuple):
    """Store the group as it is now. Later answers wait for it."""

    row: GroupRow


class RoundFormed(NamedTuple):
    """A generation has formed; its answers follow. For the clock of coordinator time."""

    round: Round


class RoundAssigned(NamedTuple):
    """A generation has its assignment; its answers follow."""

    round: Round


Effect: TypeAlias = Answer | Persist | RoundFormed | RoundAssigned
