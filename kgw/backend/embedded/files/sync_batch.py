"""Lets the kernel sync many files at the same time, while one thread waits for all of them.

Syncs that run at the same time share writes to the file system's journal. With a thread for each
sync, the threads would compete for the interpreter, and creating a topic of 500 partitions would
take up to twice as long (docs/decisions/0081-one-thread-writes.md).

It uses Linux's asynchronous I/O with IOCB_CMD_FSYNC and IOCB_CMD_FDSYNC, which exist since Linux
4.18. Python and the C library do not have these system calls, so they are made by number. On other
systems, or in a sandbox that forbids the calls, creating a `SyncBatch` raises OSError.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.failures import error_of
from kgw.system import IS_LINUX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_TOGETHER: Final = 64
"""The most descriptors that one call syncs."""


class _Numbers(NamedTuple):
    """The numbers of the system calls."""

    io_setup: int
    io_destroy: int
    io_submit: int
    io_getevents: int


_NUMBERS: Final = {"x86_64": _Numbers(206, 207, 209, 208), "aarch64": _Numbers(0, 1, 2, 4)}
_FSYNC: Final = 2
_FDSYNC: Final = 3
_CONTROL: Final = Struct("=QIIHhIQQqQII")
"""struct iocb of a little-endian machine: data, key, rw_flags, opcode, priority, descriptor,
buffer, length, offset, reserved, flags, eventfd."""
_EVENT: Final = Struct("=QQqq")
"""struct io_event: data, control block, result, second result."""


class SyncBatch:
    """Syncs up to MOST_TOGETHER files at a time. Must be used by one thread at a time."""

    def __init__(self) -> None:
        """Raises OSError if the system does not support it."""
        numbers = _NUMBERS.get(platform.machine()) if IS_LINUX else None
        if numbers is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self.is_broken = False
        """Whether the kernel failed to report the results of syncs. Then this object must not be
        used again."""
        self._numbers = numbers
        # CDLL releases the interpreter lock while a call waits.
        self._system_call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        most = ctypes.c_long(MOST_TOGETHER)
        self._call(numbers.io_setup, most, ctypes.byref(self._context))
        self._controls = ctypes.create_string_buffer(_CONTROL.size * MOST_TOGETHER)
        first = ctypes.addressof(self._controls)
        self._pointers = (ctypes.c_void_p * MOST_TOGETHER)(
            *(first + number * _CONTROL.size for number in range(MOST_TOGETHER))
        )
        self._events = ctypes.create_string_buffer(_EVENT.size * MOST_TOGETHER)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._system_call(ctypes.c_long(self._numbers.io_destroy), self._context)

    def sync_files(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Sync files as `fdatasync` does; return the error of each, or None."""
        return self._sync_all(descriptors, _FDSYNC, os.fdatasync)

    def sync_directories(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Sync the names in directories; return the error of each, or None.

        Uses `fsync`: ext4's `fdatasync` does not sync a name that fits into an existing block.
        """
        return self._sync_all(descriptors, _FSYNC, os.fsync)

    def _sync_all(
        self, descriptors: Sequence[int], operation: int, sync: Callable[[int], None]
    ) -> list[OSError | None]:
        outcomes: list[OSError | None] = []
        while len(outcomes) < len(descriptors):
            some = descriptors[len(outcomes) : len(outcomes) + MOST_TOGETHER]
            done = self._sync(some, operation)
            outcomes += done
            # Make the syncs that the kernel has not accepted one by one.
            outcomes += [error_of(partial(sync, descriptor)) for descriptor in some[len(done) :]]
        return outcomes

    def _sync(self, descriptors: Sequence[int], operation: int) -> list[OSError | None]:
        """Return the results of the syncs that the kernel has accepted, in order.

        A sync whose result is unknown counts as failed, because another sync of that file proves
        nothing.
        """
        if self.is_broken:
            return []
        for number, descriptor in enumerate(descriptors):
            control = (number, 0, 0, operation, 0, descriptor, 0, 0, 0, 0, 0, 0)
            _CONTROL.pack_into(self._controls, number * _CONTROL.size, *control)
        try:
            taken = self._call(
                self._numbers.io_submit,
                self._context,
                ctypes.c_long(len(descriptors)),
                self._pointers,
            )
        except OSError:
            return []
        outcomes: list[OSError | None] = [None] * taken
        unknown = set(range(taken))
        while unknown:
            try:
                ended = self._wait(len(unknown))
            except OSError as error:
                self.is_broken = True
                for number in unknown:
                    outcomes[number] = error
                break
            for number, result in ended:
                unknown.remove(number)
                if result < 0:
                    outcomes[number] = OSError(-result, os.strerror(-result))
        return outcomes

    def _wait(self, most: int) -> list[tuple[int, int]]:
        """Wait until some syncs are done; return their numbers and results."""
        while True:
            try:
                count = self._call(
                    self._numbers.io_getevents,
                    self._context,
                    ctypes.c_long(1),
                    ctypes.c_long(most),
                    self._events,
                    None,
                )
            except InterruptedError:
                continue
            events = self._events.raw[: count * _EVENT.size]
            return [(number, result) for number, _, result, _ in _EVENT.iter_unpack(events)]

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._system_call(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
