"""The interface to small stored state: topics, configurations, ids, groups, checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from kgw.errors import CorruptionError, ErrorCode, KgwError, StorageError
from kgw.problems import STATE, STATE_ROOM, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.state.history import LagHistory

CHANGES_KEPT: Final = 10_000
"""How many watched changes a store keeps.

A watcher that is further behind must load all rows again.
"""
CHANGES_PER_READ: Final = 1_000


RowKey: TypeAlias = tuple[str, str]
"""Kind and key."""


class Row(NamedTuple):
    """A stored value. `version` starts at 1 and rises by one with every write of its key."""

    value: bytes
    version: int


class Change(NamedTuple):
    """One write in a set of changes; `value` None deletes the row.

    If `expected_version` is given, the set is refused unless the row has this version (0: it must
    not exist).
    """

    kind: str
    key: str
    value: bytes | None
    expected_version: int | None = None


class ConflictError(KgwError):
    """A row does not have the expected version. No change of the set was written."""

    def __init__(self, change: Change, version: int) -> None:
        super().__init__(
            f"{change.kind} {change.key!r} stands at version {version}, "
            f"not {change.expected_version}"
        )
        self.change = change
        self.version = version
        """The key's current version; 0 if it does not exist."""


class DamagedStateError(CorruptionError):
    """The state store is damaged. Clients cannot skip this damage, unlike damage in a log."""

    code = StorageError.code


class StateTakenOverError(StorageError):
    """Another process writes the state now.

    The failed changes may have been stored before that, and this process can store no further ones.
    """

    # The code for changes of topics and settings. Coordinators use NOT_COORDINATOR, as clients look
    # for either.
    code = ErrorCode.NOT_CONTROLLER


class DamagedRowsError(DamagedStateError):
    """Rows of a kind fail their checksum; `intact` has the others, if the caller can use them."""

    def __init__(
        self,
        kind: str,
        intact: dict[str, Row],
        damaged: Sequence[str],
        values: Mapping[str, object] | None = None,
    ) -> None:
        """`values` has the values of the damaged rows that the store can still read."""
        super().__init__(f"{len(damaged)} damaged {kind} rows: {', '.join(map(repr, damaged))}")
        self.kind = kind
        self.intact = intact
        self.damaged = tuple(damaged)
        self.values = values or {}


class WatchedChange(NamedTuple):
    """The new value of a row of one of `WATCHED_KINDS` after a commit."""

    version: int
    """The version of the store, not of the row. It rises by one with each change."""
    kind: str
    key: str
    value: bytes | None
    """None if the row was deleted."""


class ChangesLostError(KgwError):
    """The store no longer has every change since a version: load the rows again."""

    def __init__(self, store: str, since: int, reason: str) -> None:
        super().__init__(
            f"{store}: {reason}; read everything anew instead of going on from {since}"
        )
        self.since = since


class StateStore(ABC):
    """Rows by (kind, key). Values are opaque bytes, JSON by custom.

    A key is any text of any length that UTF-8 can encode; a kind is a short ASCII word.
    """

    @property
    def failure(self) -> str | None:
        """Why the store cannot write, temporarily or until it is opened again; None if it can.

        The failed write may be stored or not.
        """
        return None

    @property
    def room_failure(self) -> str | None:
        """Why the last commit was refused for lack of disk space; None if it succeeded."""
        return None

    @property
    def found(self) -> tuple[Problem, ...]:
        """`failure` and `room_failure` as problems, unless they are None."""
        both = (STATE, self.failure), (STATE_ROOM, self.room_failure)
        return tuple(Problem(reason, text) for reason, text in both if text is not None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Damage that `open` found without raising an error, one sentence each."""
        return ()

    @abstractmethod
    async def open(self) -> None:
        """Make the store usable. Raises DataDirectoryError if it is damaged or from a newer kgw."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish the submitted changes and close the store. Closing it twice is harmless."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def restore(self) -> None:  # noqa: B027 - most have nothing to put back
        """Write the last changes again if the storage has returned to an older state.

        Most stores do nothing, as their storage does not return to an older state. Raises
        StorageError if it is unknown whether changes are lost.
        """

    @property
    @abstractmethod
    def lag_history(self) -> LagHistory:
        """Samples of groups' positions, kept beside the rows."""

    @abstractmethod
    async def kinds(self) -> list[str]:
        """Return the kinds that have rows, sorted. Raises StorageError."""

    @abstractmethod
    async def load(self, kind: str) -> dict[str, Row]:
        """Return every row of a kind.

        Raises DamagedRowsError, which carries the intact ones, when a row's checksum fails.
        """

    @abstractmethod
    async def apply(self, changes: Sequence[Change]) -> None:
        """Write all of the changes or none. They are durable on return.

        Changes are applied in their order, and a key may occur twice. Calls that wait at the same
        time share one commit; a conflict in one of them does not affect the others. Raises
        ConflictError, DiskFullError, StorageError.
        """

    @abstractmethod
    async def newest_change(self) -> int:
        """Return the version of the newest watched change, at least 1. Raises StorageError."""

    @abstractmethod
    async def changes_since(self, version: int) -> list[WatchedChange]:
        """Return the next changes of `WATCHED_KINDS` after a version, at most `CHANGES_PER_READ`.

        They are in order and without a gap; if several writes of a row share a commit, only the
        last one is among them. For nodes that follow another node's rows: topics with their
        settings, the cluster and its settings. Commits of other kinds are not slowed down.

        Get `newest_change`, load the rows, and continue from that version: the result may contain a
        change that was loaded already, but misses none. Versions stay valid after the process ends,
        but not in another store. Raises ChangesLostError if `version` is too old or not a version
        of this store, and StorageError.
        """
