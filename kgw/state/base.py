"""The seam to small state that must survive: topics, configurations, ids, groups, checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from kgw.errors import CorruptionError, ErrorCode, KgwError, StorageError
from kgw.problems import STATE, STATE_ROOM, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.state.history import LagHistory

CHANGES_KEPT: Final = 10_000
"""Watched changes that a store keeps. A watcher that is further behind must load all rows again."""
CHANGES_PER_READ: Final = 1_000


RowKey: TypeAlias = tuple[str, str]
"""Kind and key."""


class Row(NamedTuple):
    """A stored value. `version` starts at 1 and rises by one with every write of its key."""

    value: bytes
    version: int


class Change(NamedTuple):
    """One write of a set: `value` None deletes.

    The set is refused unless the key has the `expected_version`, if given (0: must not exist).
    """

    kind: str
    key: str
    value: bytes | None
    expected_version: int | None = None


class ConflictError(KgwError):
    """A row has another version than the expected one. Nothing of the set was written."""

    def __init__(self, change: Change, version: int) -> None:
        super().__init__(
            f"{change.kind} {change.key!r} stands at version {version}, "
            f"not {change.expected_version}"
        )
        self.change = change
        self.version = version
        """The key's current version; 0 if it does not exist."""


class DamagedStateError(CorruptionError):
    """The state store is damaged. Clients cannot seek past it, unlike damage in a log."""

    code = StorageError.code


class StateTakenOverError(StorageError):
    """Another process writes the state now.

    The failed changes may have been stored before that. This process can store no others.
    """

    # For changes of topics and settings. Coordinators say NOT_COORDINATOR: clients look for both.
    code = ErrorCode.NOT_CONTROLLER


class DamagedRowsError(DamagedStateError):
    """Rows of a kind fail their checksum; `intact` has the others, if the caller can use them."""

    def __init__(self, kind: str, intact: dict[str, Row], damaged: Sequence[str]) -> None:
        super().__init__(f"{len(damaged)} damaged {kind} rows: {', '.join(map(repr, damaged))}")
        self.kind = kind
        self.intact = intact
        self.damaged = tuple(damaged)


class WatchedChange(NamedTuple):
    """The new value of a row of one of `WATCHED_KINDS` after a commit."""

    version: int
    """The store's, not the row's. It rises by one with each change."""
    kind: str
    key: str
    value: bytes | None
    """None: it was deleted."""


class ChangesLostError(KgwError):
    """The store no longer knows every change since a version: read the rows anew."""

    def __init__(self, store: str, since: int, reason: str) -> None:
        super().__init__(
            f"{store}: {reason}; read everything anew instead of going on from {since}"
        )
        self.since = since


class StateStore(ABC):
    """Rows by (kind, key). Values are opaque bytes, JSON by custom.

    A key is any text that UTF-8 can express, however long; a kind is a short ASCII word of ours.
    """

    @property
    def failure(self) -> str | None:
        """Why the store cannot write, for now or until it is opened again; None if it can.

        The write that failed may be stored or not.
        """
        return None

    @property
    def room_failure(self) -> str | None:
        """Why the last commit was refused for lack of disk space; None once a commit succeeds."""
        return None

    @property
    def found(self) -> tuple[Problem, ...]:
        """`failure` and `room_failure` as problems, as far as they are not None."""
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
        """Write the last changes again if the storage went back to an older state and lost them.

        Most stores do nothing: their storage does not go back. Raises StorageError if it is unknown
        whether changes are lost.
        """

    @property
    @abstractmethod
    def lag_history(self) -> LagHistory:
        """Samples of groups' positions, kept beside the rows."""

    @abstractmethod
    async def kinds(self) -> list[str]:
        """Return the kinds that have rows, in order. Raises StorageError."""

    @abstractmethod
    async def load(self, kind: str) -> dict[str, Row]:
        """Return every row of a kind.

        Raises DamagedRowsError, which carries the intact ones, when a row's checksum fails.
        """

    @abstractmethod
    async def apply(self, changes: Sequence[Change]) -> None:
        """Write all of the changes or none; durable on return.

        Changes are applied in their order, and a key may occur twice. Calls that wait at the same
        time share one commit, but a conflict in one of them does not fail the others.
        Raises ConflictError, DiskFullError, StorageError.
        """

    @abstractmethod
    async def newest_change(self) -> int:
        """Return the version of the newest watched change, at least 1. Raises StorageError."""

    @abstractmethod
    async def changes_since(self, version: int) -> list[WatchedChange]:
        """Return the next changes of `WATCHED_KINDS` after a version, at most `CHANGES_PER_READ`.

        They are in order and without a gap; if several writes of a row share a commit, only the
        last one is among them. For nodes that follow another node's rows: topics with their
        settings, the cluster and its settings. Commits of other kinds do not pay for it.

        Get `newest_change`, load the rows, and go on from that version: this may return a change
        that was loaded already, but misses none. Versions stay valid after the process ends, but
        not in another store. Raises ChangesLostError if `version` is too old or no version of this
        store, and StorageError.
        """
