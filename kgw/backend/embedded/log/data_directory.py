"""What all logs of a data directory share: its files, its options and what is wrong with it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError, refusal_reason, storage_error
from kgw.backend.embedded.files.pool import FilePool
from kgw.backend.embedded.log.quarantine import Quarantine
from kgw.clock import SystemClock
from kgw.errors import StorageError
from kgw.problems import DISK, STORAGE, Refusals, Reports, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.problems import Problem, Reason
    from kgw.types import PartitionKey


class DataDirectory:
    """Shared by everything that reads or writes below one root."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        options: EmbeddedOptions,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.fs = fs
        self.root = root
        self.options = options
        self.wall_ms = wall_ms or SystemClock().wall_ms
        """The time, for when a segment was begun."""
        self.pool = FilePool(fs, options.open_files)
        self.announce: Callable[[str], None] = _keep_quiet
        """Told of each problem once, as it is found, by whichever thread finds it."""
        self.remark: Callable[[str], None] = _keep_quiet
        """Told of what is in order, but not usual."""
        self.quarantine = Quarantine(
            fs,
            f"{root}/{layout.QUARANTINE_DIRECTORY}",
            options.quarantine_bytes,
            self.report,
            self.note,
        )
        self.failure: StorageError | None = None
        """Why nothing is written any more: a sync failed, once and for all."""
        self.when_failed: Callable[[], None] = _do_nothing
        """Told once, when `failure` has been set."""
        self.refusals = Refusals(SystemClock().monotonic_s)
        """What the disk has refused lately."""
        self._reports = Reports()

    def partition_path(self, key: PartitionKey) -> str:
        """Return the directory of a partition."""
        return f"{self.root}/{layout.PARTITIONS_DIRECTORY}/{key}"

    @property
    def found(self) -> list[Problem]:
        """What was reported and is not over: of each reason the first, and how many more."""
        return self._reports.problems

    @property
    def problems(self) -> list[str]:
        """The sentences of what was found."""
        return texts(self.found)

    def report(
        self,
        problem: str,
        reason: Reason = STORAGE,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Announce a sentence that an operator should know, once, and keep it for `health`.

        There it is told until it `is_over`, which may be asked in any thread.
        """
        if self._reports.add(reason, problem, is_over):
            self.announce(problem)

    def refuse(self, what: str, error: Exception) -> None:
        """Note that something is refused because a call has failed, and the next one may not."""
        self.refusals.note(refusal_reason(error), what)

    def note(self, sentence: str) -> None:
        """Have something said in the log that is no problem."""
        self.remark(sentence)

    def fail(self, error: Exception) -> None:
        """Write nothing any more, until the next start: a sync has failed."""
        if self.failure is None:
            self.failure = StorageError(f"the data directory has failed: {error}")
            self.report(str(self.failure), DISK)
            self.when_failed()

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Let something be written; StorageError says that one cannot, and what.

        After a failed sync nothing is written any more.
        """
        try:
            yield
        except OSError as error:
            raise storage_error(error, f"cannot {what}") from error
        except SyncFailedError as error:
            self.fail(error)
            raise StorageError(str(error)) from error

    def check_writable(self) -> None:
        """Raise StorageError when nothing is written any more."""
        if self.failure is not None:
            raise self.failure


def _keep_quiet(_problem: str) -> None:
    """Do without a log."""


def _do_nothing() -> None:
    """There is nobody to be told."""
