"""Updates tables to the newest version of the commit log, and compares them with it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import PublishError
from kgw.pipeline.archive.findings import AuditProblem
from kgw.pipeline.archive.tables.changes import Difference, TableState, difference, fold
from kgw.pipeline.archive.tables.registered import registered
from kgw.pipeline.errors import PipelineError
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.archive.commit_log import CoverageSnapshot
    from kgw.pipeline.archive.tables.changes import TableChange
    from kgw.pipeline.archive.tables.registered import TableSettings


class Table(Protocol):
    """A published table. Methods may raise any exception of the table's library."""

    def make(self) -> None:
        """Make the table if it does not exist."""

    def read(self) -> TableState | None:
        """Return the present content of the table; None if it does not exist."""

    def commit(self, change: TableChange) -> bool:
        """Apply a change in one commit, on top of the content that `read` returned last.

        Return False, and change nothing, if another program has committed since.
        """

    def close(self) -> None:
        """Release the resources of the table."""

    @property
    def remedy(self) -> str:
        """Tells the user how to remove the table, so that the next run creates it again."""


def publish(generation: Path, topic_id: UUID) -> dict[str, int]:
    """Update all tables of an archive to the newest version of its commit log.

    Call it after each commit. Tables at that version are left alone. Returns the new versions by
    kind of table. If one table fails, the others are still updated. Raises PublishError,
    ArchiveError.
    """
    versions, failures = {}, []
    for settings in registered(generation):
        try:
            versions[settings.kind] = _publish(generation, topic_id, settings)
        except PublishError as error:
            failures.append(error)
    if failures:
        raise PublishError("; ".join(map(str, failures)), versions) from failures[0]
    return versions


def check(generation: Path, topic_id: UUID) -> Iterator[Difference]:
    """Yield the differences between an archive's tables and its commit log."""
    try:
        tables = registered(generation)
    except PipelineError as error:
        yield Difference(AuditProblem.DAMAGED_TABLE, str(error))
        return
    log = CommitLog(generation, topic_id)
    newest_before = log.read().version
    for settings in tables:
        try:
            with _opened(generation, topic_id, settings) as table:
                state = table.read()
                found = _compare(log, log.read(), state or TableState(0, frozenset()))[1]
        except PipelineError as error:
            yield Difference(AuditProblem.DAMAGED_TABLE, str(error))
            continue
        if found is not None:
            yield found._replace(text=f"{settings.kind}: {found.text}")
        elif (version := state.version if state else 0) < newest_before:
            yield Difference(
                AuditProblem.TABLE_BEHIND,
                f"{settings.kind}: it has come to version {version}, the commit log to "
                f"{newest_before}",
            )


def _publish(generation: Path, topic_id: UUID, settings: TableSettings) -> int:
    with _opened(generation, topic_id, settings) as table:
        log = CommitLog(generation, topic_id)
        if log.read().version == 0:
            return 0
        while True:
            state = table.read()
            if state is None:
                table.make()
                continue
            # Read the log after the table, so that the log's version is not older than the table's.
            newest = log.read()
            change, found = _compare(log, newest, state)
            if found is not None:
                raise PublishError(
                    f"the {settings.kind} table of {generation} is not what was published: "
                    f"{found.text}; {table.remedy}, and `kgw pipeline publish` makes it anew"
                )
            if change is None or table.commit(change):
                return newest.version


def _compare(
    log: CommitLog, newest: CoverageSnapshot, state: TableState
) -> tuple[TableChange | None, Difference | None]:
    """Return the changes that a table still needs, and how it differs from the commit log."""
    entries = list(log.entries(state.version + 1, newest.version))
    change = fold(entries, state.version + 1) if entries else None
    return change, difference(state, newest.version, newest.coverage.files(), change)


@contextmanager
def _opened(generation: Path, topic_id: UUID, settings: TableSettings) -> Iterator[Table]:
    """Open a table; any exception of its library becomes a PublishError."""
    where = f"the {settings.kind} table of {generation} cannot be used"
    remedy = ""
    try:
        with closing(_open(generation.resolve(), topic_id, settings)) as table:
            remedy = f"; or {table.remedy} before that, to have it made anew"
            yield table
    except PipelineError:
        raise
    except ImportError as error:
        raise PublishError(
            f"{where}: {error}. What is archived stands; {install_command(settings.kind)}, then "
            "`kgw pipeline publish`"
        ) from None
    except Exception as error:
        # The exceptions of these libraries have no common base class.
        told = next(iter(str(error).splitlines()), "")
        raise PublishError(
            f"{where}: {type(error).__name__}: {told}. What is archived stands; mend that, then "
            f"`kgw pipeline publish`{remedy}"
        ) from error


def _open(generation: Path, topic_id: UUID, settings: TableSettings) -> Table:
    if settings.kind == "delta":
        from kgw.pipeline.archive.tables.delta import Delta

        return Delta(generation, topic_id)
    from kgw.pipeline.archive.tables.iceberg import Iceberg

    return Iceberg(generation, topic_id, settings.catalog)
