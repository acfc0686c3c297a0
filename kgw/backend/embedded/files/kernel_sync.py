"""Syncs of files that the kernel runs beside the event loop, which is told when they are done.

A thread that syncs for the loop has to be woken, to get the interpreter twice and to wake the
loop: 55 us of processor time and 25 us of waiting for a sync that takes 90. Linux can be asked to
sync without one (`kernel_queue`), and writes to an eventfd when that is done.

Where there is no such thing opening one raises OSError, and threads do it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING, cast

from kgw.backend.embedded.failures import SyncNotTriedError
from kgw.backend.embedded.files.kernel_queue import FDSYNC, KernelQueue

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from _typeshed import HasFileno

    from kgw.backend.embedded.files.fs import File


class KernelSyncs:
    """The kernel's `BackgroundSyncs`: those under way, and who is told."""

    def __init__(self, loop: AbstractEventLoop, most: int) -> None:
        """Up to `most` files are synced at a time. Raises OSError where that is not possible."""
        if not hasattr(os, "eventfd"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        # PyDLL: none of the calls waits, so that the interpreter need not be given up for them;
        # but for the last one, if a sync is under way.
        self._queue = KernelQueue(ctypes.PyDLL(None, use_errno=True), most)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._most = most
        self._outcomes: list[OSError | None] = []
        self._left = 0
        self._done: Callable[[list[OSError | None]], None]
        self._loop = loop
        loop.add_reader(self._eventfd, self._take_events)

    def sync(self, files: Sequence[File], done: Callable[[list[OSError | None]], None]) -> None:
        """Sync as `BackgroundSyncs`; what the kernel has not taken of a set: SyncNotTriedError."""
        descriptors = [file.fileno() for file in cast("Sequence[HasFileno]", files)]
        begun = self._queue.submit(descriptors, FDSYNC, self._eventfd)
        self._done = done
        self._left = begun
        self._outcomes = [None] * begun
        self._outcomes += [
            SyncNotTriedError(errno.EAGAIN, os.strerror(errno.EAGAIN)) for _ in descriptors[begun:]
        ]

    def _take_events(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
            ended = self._queue.take(0, self._most)
        except (BlockingIOError, InterruptedError):
            # There was nothing yet.
            return
        except OSError as error:
            # Nobody will ever know what became of them; and nobody may wait for it for ever.
            self._outcomes = [error] * len(self._outcomes)
            self._left, unknown = 0, self._left
            if unknown:
                self._done(self._outcomes)
            return
        for number, failure in ended:
            self._outcomes[number] = failure
        self._left -= len(ended)
        if ended and not self._left:
            self._done(self._outcomes)

    def close(self) -> None:
        """Let go of it; what is under way is waited for."""
        self._loop.remove_reader(self._eventfd)
        try:
            self._queue.close()
        finally:
            os.close(self._eventfd)
