"""Tables brought to where the commit log is, and compared with it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import PublishError
from kgw.pipeline.archive.findings import Problem
from kgw.pipeline.archive.tables.changes import Difference, State, difference, fold
from kgw.pipeline.archive.tables.registered import registered
from kgw.pipeline.errors import PipelineError
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from kgw.pipeline.archive.commit_log import Snapshot
    from kgw.pipeline.archive.tables.changes import Change
    from kgw.pipeline.archive.tables.registered import TableSettings


class Table(Protocol):
    """A published table. Methods raise whatever the library does."""

    def make(self) -> None:
        """Make the table, where it is not there."""

    def read(self) -> State | None:
        """Return what the table says now; None where it is not there."""

    def commit(self, change: Change) -> bool:
        """Do a change in one commit, onto what `read` has returned last.

        False when another has committed since, and nothing was done.
        """

    def close(self) -> None:
        """Let go of what it holds."""

    @property
    def remedy(self) -> str:
        """How the table is removed, so that the next run makes it anew."""


def publish(generation: Path, topic_id: UUID) -> dict[str, int]:
    """Bring all tables of an archive to the newest version of its commit log.

    Call it after each commit; what was published before is left alone. Returns the version by
    kind of table. One that fails keeps none of the others back. Raises PublishError, ArchiveError.
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
    """Yield how the tables of an archive are not where its commit log is."""
    try:
        tables = registered(generation)
    except PipelineError as error:
        yield Difference(Problem.DAMAGED_TABLE, str(error))
        return
    log = CommitLog(generation, topic_id)
    newest_before = log.read().version
    for settings in tables:
        try:
            with _opened(generation, topic_id, settings) as table:
                state = table.read()
                found = _compare(log, log.read(), state or State(0, frozenset()))[1]
        except PipelineError as error:
            yield Difference(Problem.DAMAGED_TABLE, str(error))
            continue
        if found is not None:
            yield found._replace(text=f"{settings.kind}: {found.text}")
        elif (version := state.version if state else 0) < newest_before:
            yield Difference(
                Problem.TABLE_BEHIND,
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
            # After the table, so that the log is not behind it.
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
    log: CommitLog, newest: Snapshot, state: State
) -> tuple[Change | None, Difference | None]:
    """Return what a table has to do yet, and how it is not what it should be."""
    entries = log.entries(state.version + 1, newest.version)
    change = fold(entries, state.version + 1) if entries else None
    return change, difference(state, newest.version, newest.coverage.files(), change)


@contextmanager
def _opened(generation: Path, topic_id: UUID, settings: TableSettings) -> Iterator[Table]:
    """Give a table; whatever its library raises becomes a PublishError."""
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
        # The errors of these libraries have no common root.
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
