"""The base of all state stores over SQL: shared commits, versions, checksums, errors.

A subclass opens its one connection; see docs/decisions/0011-state-in-sqlite.md and
0055-state-on-a-server.md.
"""

from __future__ import annotations

from abc import abstractmethod
from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.errors import DiskFullError, StorageError
from kgw.state.base import (
    CHANGES_KEPT,
    CHANGES_PER_READ,
    ChangesLostError,
    ConflictError,
    DamagedRowsError,
    Row,
    RowKey,
    StateStore,
    StateTakenOverError,
    WatchedChange,
)
from kgw.state.kinds import WATCHED_KINDS
from kgw.state.sql import schema
from kgw.state.table import decide
from kgw.state.write_queue import CommitQueue

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Sequence

    from kgw.state.base import Change
    from kgw.state.history import LagHistory
    from kgw.state.sql.schema import Batch

GROUP_CHANGES: Final = 10_000
"""The most changes in a shared commit; a single set may have more."""
CHANGES_PER_DELETION: Final = 1_000
"""Old watched changes are deleted after this number of new ones, not in every commit."""

_Rows = dict[RowKey, Row | None]
"""The new rows of a commit; None for a deleted row."""


class Waiting(NamedTuple):
    """A set of changes that waits for a commit."""

    changes: Sequence[Change]
    batches: Sequence[Batch]
    done: Future[None]

    @property
    def size(self) -> int:
        return len(self.changes) + sum(len(rows) for _, rows in self.batches)


class SqlStateStore(StateStore):
    """Rows in a database, over one connection that only this store uses.

    If an error leaves it unknown whether a commit is stored, the store refuses writes until it is
    opened again.
    """

    versions_kept = 0
    """How many row versions are cached between commits, to save queries.

    If there are more, the cache is cleared before the next commit. 10,000 take about 3 MB.
    """

    def __init__(self, name: str, dialect: schema.Dialect) -> None:
        """`name` is the store's name in messages."""
        self._name = name
        self._dialect = dialect
        self._is_open = False
        self._queue: CommitQueue[Waiting] = CommitQueue(self._commit, at_once=GROUP_CHANGES)
        self._failure: str | None = None
        self._room_failure: str | None = None
        self._is_taken_over = False
        """Whether the failure is that another gateway now writes the state."""
        self._closing = False
        self._versions: dict[RowKey, int] = {}
        self._newest_change: int | None = None
        """Unknown until the first watched change is written, and after an error."""
        self._lag_history: LagHistory | None = None

    # --- methods of each database -----------------------------------------------------------------

    @abstractmethod
    async def _connect(self) -> None:
        """Connect and bring the schema up to date. Raises DataDirectoryError."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def _fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query. Raises StorageError."""

    @abstractmethod
    async def _transact(self, batches: Sequence[Batch]) -> None:
        """Run all statements in one transaction, durably. Raises StorageError.

        After DiskFullError nothing is stored and the store continues; after another StorageError it
        refuses writes.
        """

    # --- the store --------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return self._failure

    @property
    def room_failure(self) -> str | None:
        return self._room_failure

    @property
    def lag_history(self) -> LagHistory:
        if self._lag_history is None:
            # Imported here to keep start-up fast.
            from kgw.state.sql.lag_history import SqlLagHistory

            self._lag_history = SqlLagHistory(self, self._dialect)
        return self._lag_history

    async def open(self) -> None:
        self._failure, self._is_taken_over = None, False
        self._closing = False
        self._forget()
        await self._connect()
        self._is_open = True

    async def aclose(self) -> None:
        self._closing = True
        await self._queue.aclose()
        if self._is_open:
            self._is_open = False
            await self._disconnect()

    async def kinds(self) -> list[str]:
        self._check_open()
        return [kind for (kind,) in await self._fetch(self._dialect.select_kinds, ())]

    async def load(self, kind: str) -> dict[str, Row]:
        self._check_open()
        return self._intact(kind, await self._fetch(self._dialect.select_kind, (kind,)))

    def _intact(self, kind: str, stored: Sequence[Sequence[Any]]) -> dict[str, Row]:
        """Return the rows of a kind by their keys. Raises DamagedRowsError."""
        read_text = self._dialect.read_text
        rows: dict[str, Row] = {}
        damaged: list[str] = []
        values: dict[str, object] = {}
        for stored_key, value, version, checksum in stored:
            key = read_text(stored_key)
            if key is not None and _is_intact(kind, key, value, version, checksum):
                rows[key] = Row(value, version)
            else:
                damaged.append(str(stored_key) if key is None else key)
                values[damaged[-1]] = value
        if damaged:
            raise DamagedRowsError(kind, rows, damaged, values)
        return rows

    async def apply(self, changes: Sequence[Change]) -> None:
        if changes:
            self._check_changes(changes)
            await self.submit(changes, ())
        else:
            self._check_open()

    def submit(self, changes: Sequence[Change], batches: Sequence[Batch]) -> Awaitable[None]:
        """Commit changes and statements, together with other waiting ones."""
        self._check_open()
        if self._closing:
            raise StorageError(f"{self._name} is closing")
        self._check_failure()
        waiting = Waiting(changes, batches, get_running_loop().create_future())
        self._queue.submit(waiting)
        return waiting.done

    async def fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query. Raises StorageError."""
        self._check_open()
        return await self._fetch(statement, parameters)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError(f"{self._name} is not open")

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise (StateTakenOverError if self._is_taken_over else StorageError)(self._failure)

    def _fail(self, error: StorageError) -> None:
        """Refuse writes from now on. The first error stays the reason."""
        if self._failure is None:
            self._failure = str(error)
            self._is_taken_over = isinstance(error, StateTakenOverError)

    def _check_changes(self, changes: Sequence[Change]) -> None:
        """Raise StorageError for a set that the database cannot store, before a shared commit."""

    async def _commit(self, group: list[Waiting]) -> dict[int, ConflictError]:
        """Write the sets without a conflict, and return the conflicts, for a `CommitQueue`.

        Raises StorageError, as `_transact`.
        """
        self._check_failure()
        if len(group) > 1:
            count = 0
            for index, waiting in enumerate(group):
                count += waiting.size
                if count > GROUP_CHANGES and index > 0:
                    del group[index:]
                    break
        if len(self._versions) > self.versions_kept:
            self._versions.clear()
        try:
            await self._ask_versions(group)
            conflicts, rows, batches = self._stage(group)
            batches = [
                *self._row_batches(rows),
                *await self._change_batches(rows),
                *batches,
            ]
            if batches:
                await self._transact(batches)
        except BaseException as error:
            # The cached versions may belong to rows that are not stored.
            self._forget()
            if isinstance(error, DiskFullError):
                self._room_failure = str(error)
            elif isinstance(error, StorageError):
                # Only the next `open` finds out whether a failed write or sync stored the rows.
                self._fail(error)
            raise
        self._room_failure = None
        return conflicts

    def _forget(self) -> None:
        self._versions.clear()
        self._newest_change = None

    async def _ask_versions(self, group: Sequence[Waiting]) -> None:
        """Query the versions of the rows that a group writes, unless they are cached."""
        unknown: dict[RowKey, None] = {}
        for waiting in group:
            for change in waiting.changes:
                if (change.kind, change.key) not in self._versions:
                    unknown[change.kind, change.key] = None
        row_keys = list(unknown)
        for start in range(0, len(row_keys), schema.VERSIONS_PER_SELECT):
            query = self._dialect.select_versions(
                row_keys[start : start + schema.VERSIONS_PER_SELECT]
            )
            for kind, stored_key, version in await self._fetch(*query):
                key = self._dialect.read_text(stored_key)
                if key is not None:
                    self._versions[kind, key] = version

    def _stage(
        self, group: Sequence[Waiting]
    ) -> tuple[dict[int, ConflictError], _Rows, list[Batch]]:
        """Return the conflicts by number of the set, and the rows and batches of the other sets.

        The cached versions become the versions after the commit.
        """
        conflicts: dict[int, ConflictError] = {}
        rows: _Rows = {}
        batches: list[Batch] = []
        for index, waiting in enumerate(group):
            try:
                decided = decide(waiting.changes, self._versions.get)
            except ConflictError as error:
                conflicts[index] = error
            else:
                rows.update(decided)
                for row_key, row in decided.items():
                    self._versions[row_key] = 0 if row is None else row.version
                batches += waiting.batches
        return conflicts, rows, batches

    def _row_batches(self, rows: _Rows) -> list[Batch]:
        dialect = self._dialect
        kept, gone = [], []
        for (kind, key), row in rows.items():
            place = dialect.entry_place(kind, key)
            if row is None:
                gone.append(place)
            else:
                kept.append((*place, *row, schema.row_checksum(kind, key, *row)))
        batches: list[Batch] = [(dialect.upsert_entry, kept)] if kept else []
        if gone:
            batches += dialect.deletions(gone)
        return batches

    async def _change_batches(self, rows: _Rows) -> list[Batch]:
        """Return the statements that store the changes of watched kinds for `changes_since`."""
        watched = [
            (kind, key, None if row is None else row.value)
            for (kind, key), row in rows.items()
            if kind in WATCHED_KINDS
        ]
        if not watched:
            return []
        dialect = self._dialect
        before = self._newest_change
        if before is None:
            before = await self.newest_change()
        changes = [
            (
                version,
                kind,
                dialect.text(key),
                value,
                schema.change_checksum(version, kind, key, value),
            )
            for version, (kind, key, value) in enumerate(watched, before + 1)
        ]
        self._newest_change = newest = before + len(changes)
        batches: list[Batch] = [(dialect.insert_change, changes)]
        if newest // CHANGES_PER_DELETION > before // CHANGES_PER_DELETION:
            batches.append((dialect.delete_changes, [(newest - CHANGES_KEPT,)]))
        return batches

    # --- watching ---------------------------------------------------------------------------------

    async def newest_change(self) -> int:
        ((version,),) = await self.fetch(self._dialect.select_newest_change, ())
        return int(version)

    async def changes_since(self, version: int) -> list[WatchedChange]:
        rows = await self.fetch(self._dialect.select_changes, (version, CHANGES_PER_READ + 1))
        if not rows or rows[0][0] != version:
            raise ChangesLostError(self._name, version, "it does not keep what changed since")
        changes = []
        for expected, (found, kind, stored_key, value, checksum) in enumerate(
            rows[1:], version + 1
        ):
            key = self._dialect.read_text(stored_key)
            if not (
                found == expected
                and isinstance(kind, str)
                and key is not None
                and (value is None or isinstance(value, bytes))
                and schema.change_checksum(found, kind, key, value) == checksum
            ):
                raise ChangesLostError(self._name, version, f"change {expected} is damaged")
            changes.append(WatchedChange(found, kind, key, value))
        return changes


def _is_intact(kind: str, key: str, value: object, version: object, checksum: object) -> bool:
    """Return whether a row is undamaged. A flipped bit may even change a column's type."""
    if not (isinstance(value, bytes) and isinstance(version, int)):
        return False
    return schema.row_checksum(kind, key, value, version) == checksum
