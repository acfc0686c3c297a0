"""Syncs of many files at a time, waited for in one thread: the kernel runs them side by side.

Syncs that run at the same time share what the file system's journal writes, and threads of ours to
run them would hand the interpreter to each other at every call: 1,000 new directories of two files
each took 0.5 to 0.9 s in four threads, and take 0.2 s so. The system calls are those of
`kernel_sync`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.kernel_sync import CONTROL, EVENT, FDSYNC, FSYNC, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_TOGETHER: Final = 64
"""Descriptors that one call syncs."""


class SyncBatch:
    """A way to sync up to MOST_TOGETHER files at a time. For one thread at a time."""

    def __init__(self) -> None:
        """Raises OSError where the system has nothing of the kind."""
        numbers = NUMBERS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._numbers = numbers
        self.is_broken = False
        """Whether the kernel could not be asked what became of syncs; it is given no more then."""
        # CDLL: the interpreter is given up while the call waits.
        self._system_call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._call(numbers.io_setup, ctypes.c_long(MOST_TOGETHER), ctypes.byref(self._context))
        self._controls = ctypes.create_string_buffer(CONTROL.size * MOST_TOGETHER)
        first = ctypes.addressof(self._controls)
        self._pointers = (ctypes.c_void_p * MOST_TOGETHER)(
            *(first + number * CONTROL.size for number in range(MOST_TOGETHER))
        )
        self._events = ctypes.create_string_buffer(EVENT.size * MOST_TOGETHER)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._system_call(ctypes.c_long(self._numbers.io_destroy), self._context)

    def sync_files(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Sync files as `fdatasync`; return what went wrong with each."""
        return self._sync_all(descriptors, FDSYNC, os.fdatasync)

    def sync_directories(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Sync the names in directories; return what went wrong with each.

        As `fsync`: ext4's `fdatasync` leaves a name out that fits into a block that was there.
        """
        return self._sync_all(descriptors, FSYNC, os.fsync)

    def _sync_all(
        self, descriptors: Sequence[int], operation: int, sync: Callable[[int], None]
    ) -> list[OSError | None]:
        outcomes: list[OSError | None] = []
        while len(outcomes) < len(descriptors):
            some = descriptors[len(outcomes) : len(outcomes) + MOST_TOGETHER]
            done = self._sync(some, operation)
            outcomes += done
            for descriptor in some[len(done) :]:
                # The kernel has not taken them.
                try:
                    sync(descriptor)
                except OSError as error:
                    outcomes.append(error)
                else:
                    outcomes.append(None)
        return outcomes

    def _sync(self, descriptors: Sequence[int], operation: int) -> list[OSError | None]:
        """Return the outcomes of the syncs that the kernel has taken: the first ones.

        Where nobody can tell, the sync has failed: another of that file would prove nothing.
        """
        if self.is_broken:
            return []
        for number, descriptor in enumerate(descriptors):
            CONTROL.pack_into(
                self._controls,
                number * CONTROL.size,
                *(number, 0, 0, operation, 0, descriptor, 0, 0, 0, 0, 0, 0),
            )
        count = ctypes.c_long(len(descriptors))
        try:
            left = self._call(self._numbers.io_submit, self._context, count, self._pointers)
        except OSError:
            return []
        outcomes: list[OSError | None] = [None] * left
        unknown = set(range(left))
        while unknown:
            try:
                done = self._wait(len(unknown))
            except OSError as error:
                self.is_broken = True
                for number in unknown:
                    outcomes[number] = error
                break
            for index in range(done):
                number, _, result, _ = EVENT.unpack_from(self._events, index * EVENT.size)
                unknown.remove(number)
                if result < 0:
                    outcomes[number] = OSError(-result, os.strerror(-result))
        return outcomes

    def _wait(self, count: int) -> int:
        """Wait for syncs that are under way; return how many have ended."""
        while True:
            try:
                return self._call(
                    self._numbers.io_getevents,
                    *(self._context, ctypes.c_long(1), ctypes.c_long(count)),
                    *(self._events, None),
                )
            except InterruptedError:
                continue

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._system_call(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
