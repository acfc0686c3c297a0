"""The seam to small state that must survive: topics, configurations, ids, groups, checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kgw.errors import CorruptionError, ErrorCode, KgwError, StorageError
from kgw.problems import STATE, STATE_ROOM, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from kgw.clock import Clock
    from kgw.state.history import LagHistory

CHANGES_KEPT: Final = 10_000
"""A watcher that is further behind reads everything anew."""
CHANGES_PER_READ: Final = 1_000


RowKey: TypeAlias = tuple[str, str]
"""Kind and key."""


class Row(NamedTuple):
    """A stored value. `version` starts at 1 and rises by one with every write of its key."""

    value: bytes
    version: int


class Change(NamedTuple):
    """One write of a set: `value` None deletes.

    With `expected_version` the set is refused unless the key stands at it (0: must not exist).
    """

    kind: str
    key: str
    value: bytes | None
    expected_version: int | None = None


class ConflictError(KgwError):
    """A compare-and-set met another version than the one expected. Nothing was written."""

    def __init__(self, change: Change, version: int) -> None:
        super().__init__(
            f"{change.kind} {change.key!r} stands at version {version}, "
            f"not {change.expected_version}"
        )
        self.change = change
        self.version = version
        """The version that the key stands at; 0 when it does not exist."""


class DamagedStateError(CorruptionError):
    """The state store is damaged. Here is nothing that a client could seek past."""

    code = StorageError.code


class StateTakenOverError(StorageError):
    """Another process writes the state now.

    What was asked may have been stored at most before that; nothing will be from here.
    """

    # For changes of topics and settings. Coordinators say NOT_COORDINATOR: clients look for both.
    code = ErrorCode.NOT_CONTROLLER


class DamagedRowsError(DamagedStateError):
    """Rows of a kind fail their checksum; the others are at hand for who can go on with them."""

    def __init__(self, kind: str, intact: dict[str, Row], damaged: Sequence[str]) -> None:
        super().__init__(f"{len(damaged)} damaged {kind} rows: {', '.join(map(repr, damaged))}")
        self.kind = kind
        self.intact = intact
        self.damaged = tuple(damaged)


class WatchedChange(NamedTuple):
    """What a commit has made of a row of one of `WATCHED_KINDS`."""

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
        """Why nothing is written any more until the store is opened again; None while all is well.

        What the write was that failed may be stored, or not.
        """
        return None

    @property
    def room_failure(self) -> str | None:
        """Why the last commit was refused for want of room; None once one is stored."""
        return None

    @property
    def found(self) -> tuple[Problem, ...]:
        """Why nothing is written any more, or was not a moment ago."""
        both = (STATE, self.failure), (STATE_ROOM, self.room_failure)
        return tuple(Problem(reason, text) for reason, text in both if text is not None)

    @property
    def problems(self) -> tuple[str, ...]:
        """What opening has found wrong without refusing, a sentence each."""
        return ()

    @abstractmethod
    async def open(self) -> None:
        """Make the store usable. Raises DataDirectoryError when it is broken or too new."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what was submitted and let go. Closing twice is harmless."""

    async def restore(self) -> None:  # noqa: B027 - most have nothing to put back
        """Put back what a storage that went back to an older state has lost of the last changes.

        Most have none that does. Raises StorageError when it is not known whether it has.
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

        Changes count in their order, so that a key may occur twice. Calls that wait at the same
        time share one commit, and what is wrong with one of them does not fail the others.
        Raises ConflictError, DiskFullError, StorageError.
        """

    @abstractmethod
    async def newest_change(self) -> int:
        """Return the version that `watch` goes on from, above zero. Raises StorageError."""

    @abstractmethod
    async def changes_since(self, version: int) -> list[WatchedChange]:
        """Return the next changes after a version, in order, at most `CHANGES_PER_READ`.

        Raises ChangesLostError, StorageError.
        """

    async def watch(
        self, since: int, clock: Clock, *, interval_s: float = 1.0
    ) -> AsyncGenerator[WatchedChange]:
        """Yield every change of `WATCHED_KINDS` after a version, in order and without a gap.

        For readers that keep what another process writes: topics with their settings, the cluster
        and its settings. Other kinds are not watched: committed offsets and checkpoints belong to
        the process that writes them, and a commit of theirs costs nothing for it.

        A reader asks for `newest_change`, loads what it wants, and watches from that version: it
        may be told of a change that it has loaded already, and never misses one. Versions outlive
        the process, and mean nothing in another store. Where several writes of a row share a
        commit, the last one is the change.

        Looks for changes every `interval_s` once there are none. Ends with ChangesLostError when
        `since` is too old, or no version of this store; or with StorageError.
        """
        while True:
            changes = await self.changes_since(since)
            for change in changes:
                yield change
                since = change.version
            if not changes:
                await clock.sleep_until(clock.monotonic_s() + interval_s)
