"""Threads for work that waits for the disk.

An executor begins a thread when it is first wanted. Where the system has none left (`pids.max`) it
raises RuntimeError, and keeps the work all the same: it does it with the next that it is given,
when somebody may have done it long ago. So one that has refused work before its first thread is
put away with it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from kgw.backend.embedded.failures import NoThreadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.options import EmbeddedOptions

_Result = TypeVar("_Result")


class Helpers:
    """Up to so many threads for one kind of work."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._executor = ThreadPoolExecutor(most, name)
        self._have_begun = False
        """Whether there is a thread: it does what no second one could be had for."""
        self._is_shut = False
        self._lock = Lock()

    def submit(self, function: Callable[[], _Result]) -> Future[_Result]:
        """Have a thread run a function. Raises NoThreadError: it does not run then, nor later."""
        future: Future[_Result] = Future()
        with self._lock:
            try:
                self._executor.submit(partial(_run, function, future))
            except RuntimeError as error:
                if not self._have_begun or self._is_shut:
                    if not self._is_shut:
                        self._executor = ThreadPoolExecutor(self._most, self._name)
                    raise NoThreadError(f"no thread for {self._name}: {error}") from error
            else:
                self._have_begun = True
        return future

    def shutdown(self) -> None:
        """Wait for all that was begun; nothing else is run."""
        with self._lock:
            self._is_shut = True
        # What is submitted from now on is refused by the executor, and not kept.
        self._executor.shutdown(wait=True)


class HelperThreads:
    """All threads of a backend but the flusher's."""

    def __init__(self, options: EmbeddedOptions) -> None:
        self.io = Helpers(options.io_threads, "kgw-io")
        self.ahead = Helpers(options.read_ahead_threads, "kgw-ahead")
        self.maintenance = Helpers(1, "kgw-maintenance")
        self.write_back = Helpers(1, "kgw-write-back")
        # Of its own: a strict append never waits behind the syncs of relaxed ones.
        self.relaxed = Helpers(options.flush_threads, "kgw-relaxed")
        # So that neither appends nor long maintenance and the small notes of logs hold up each
        # other: one takes three syncs.
        self.notes = Helpers(1, "kgw-notes")

    def shutdown(self) -> None:
        """Wait for all of them, one after the other."""
        for helpers in (
            self.ahead,
            self.io,
            self.maintenance,
            self.write_back,
            self.relaxed,
            self.notes,
        ):
            helpers.shutdown()


def _run(function: Callable[[], _Result], future: Future[_Result]) -> None:
    """Run a function for a future, unless that has been given up."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
        future.set_exception(error)
    else:
        future.set_result(result)
