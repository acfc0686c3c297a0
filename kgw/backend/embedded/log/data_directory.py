"""The objects that all logs of a data directory share: its files, options and problems."""

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
    """Shared by all code that reads or writes below one root directory."""

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
        """Returns the wall time in ms; stored as the creation time of a segment."""
        self.pool = FilePool(fs, options.open_files)
        self.announce: Callable[[str], None] = _keep_quiet
        """Called once with each problem, in the thread that finds it."""
        self.remark: Callable[[str], None] = _keep_quiet
        """Called with a sentence about each unusual event that is no problem."""
        self.quarantine = Quarantine(
            fs,
            f"{root}/{layout.QUARANTINE_DIRECTORY}",
            options.quarantine_bytes,
            self.report,
            self.note,
        )
        self.failure: StorageError | None = None
        """The error of a failed sync, after which nothing can be written until the next start. None
        before."""
        self.when_failed: Callable[[], None] = _do_nothing
        """Called once, after `failure` has been set."""
        self.refusals = Refusals(SystemClock().monotonic_s)
        """Calls that the disk refused recently."""
        self._reports = Reports()

    def partition_path(self, key: PartitionKey) -> str:
        """Return the path of a partition's directory."""
        return f"{self.root}/{layout.PARTITIONS_DIRECTORY}/{key}"

    @property
    def found(self) -> list[Problem]:
        """The first lasting problem for each reason, with the number of further ones."""
        return self._reports.problems

    @property
    def problems(self) -> list[str]:
        """The reported problems as text."""
        return texts(self.found)

    def report(
        self,
        problem: str,
        reason: Reason = STORAGE,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Announce a problem to the operator once, and keep it for `health`.

        The problem remains in `health` until `is_over` returns True. `is_over` may be called in any
        thread.
        """
        if self._reports.add(reason, problem, is_over):
            self.announce(problem)

    def refuse(self, what: str, error: Exception) -> None:
        """Record that an operation was refused because a call failed; later calls may succeed."""
        self.refusals.note(refusal_reason(error), what)

    def note(self, sentence: str) -> None:
        """Log an event that is no problem."""
        self.remark(sentence)

    def fail(self, error: Exception) -> None:
        """Refuse all writes until the next start, because a sync has failed."""
        if self.failure is None:
            self.failure = StorageError(f"the data directory has failed: {error}")
            self.report(str(self.failure), DISK)
            self.when_failed()

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Turn errors of the disk into StorageError, with a message that `what` is impossible.

        After a failed sync, all later writes are refused.
        """
        try:
            yield
        except OSError as error:
            raise storage_error(error, f"cannot {what}") from error
        except SyncFailedError as error:
            self.fail(error)
            raise StorageError(str(error)) from error

    def check_writable(self) -> None:
        """Raise StorageError if an earlier failure forbids all writes."""
        if self.failure is not None:
            raise self.failure


def _keep_quiet(_problem: str) -> None:
    """Ignore the message: no logger is set."""


def _do_nothing() -> None:
    """Do nothing: no callback is set."""
