"""Syncs of files that the kernel runs beside the event loop, which is told when they are done.

A thread that syncs for the loop has to be woken, to get the interpreter twice and to wake the
loop: 55 us of processor time and 25 us of waiting for a sync that takes 90. Linux can be asked to
sync without one (IOCB_CMD_FDSYNC of its asynchronous I/O, since 4.18), and writes to an eventfd
when that is done. The calls have no names in Python or the C library: they are made by number.

Where there is no such thing - another system, a sandbox that refuses it - opening one raises
OSError, and threads do it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kgw.backend.embedded.failures import SyncNotTriedError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from kgw.backend.embedded.fs import File, RealFile


class _Numbers(NamedTuple):
    """The numbers of the system calls."""

    io_setup: int
    io_destroy: int
    io_submit: int
    io_getevents: int


NUMBERS: Final = {"x86_64": _Numbers(206, 207, 209, 208), "aarch64": _Numbers(0, 1, 2, 4)}
FSYNC: Final = 2
FDSYNC: Final = 3
_TO_EVENTFD: Final = 1
CONTROL: Final = Struct("=QIIHhIQQqQII")
"""struct iocb of a little-endian machine: data, key, rw_flags, opcode, priority, descriptor,
buffer, length, offset, reserved, flags, eventfd."""
EVENT: Final = Struct("=QQqq")
"""struct io_event: data, control block, result, second result."""

_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
_RANGE_WRITE: Final = 2


def begin_write_back(descriptor: int, position: int, size: int) -> None:
    """Have the system write a part of a file, without waiting for it; nothing where it cannot.

    For a thread: it waits for its turn where the disk has more to do than it takes.
    """
    if _sync_file_range is not None:
        _sync_file_range(
            ctypes.c_int(descriptor),
            ctypes.c_int64(position),
            ctypes.c_int64(size),
            ctypes.c_uint(_RANGE_WRITE),
        )


class KernelSyncs:
    """Syncs under way: one set at a time, and who is told."""

    def __init__(self, loop: AbstractEventLoop, most: int) -> None:
        """Up to `most` files are synced at a time. Raises OSError where that is not possible."""
        numbers = NUMBERS.get(platform.machine())
        if numbers is None or not hasattr(os, "eventfd"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._numbers = numbers
        # PyDLL: none of the calls waits, so that the interpreter need not be given up for them.
        self._system_call = ctypes.PyDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._call(numbers.io_setup, ctypes.c_long(most), ctypes.byref(self._context))
        except OSError:
            os.close(self._eventfd)
            raise
        self._controls = ctypes.create_string_buffer(CONTROL.size * most)
        first = ctypes.addressof(self._controls)
        self._pointers = (ctypes.c_void_p * most)(
            *(first + number * CONTROL.size for number in range(most))
        )
        self._events = ctypes.create_string_buffer(EVENT.size * most)
        self._most = most
        self._outcomes: list[OSError | None] = []
        self._left = 0
        self._done: Callable[[list[OSError | None]], None]
        self._loop = loop
        loop.add_reader(self._eventfd, self._take_events)

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._system_call(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def sync(self, files: Sequence[File], done: Callable[[list[OSError | None]], None]) -> None:
        """Have files synced, as `fdatasync` does, and `done` called with what went wrong with each.

        In the loop, while no other set is under way. Raises OSError when nothing was begun; what
        the kernel has not taken of a set gets SyncNotTriedError.
        """
        descriptors = [file.fileno() for file in cast("Sequence[RealFile]", files)]
        for number, descriptor in enumerate(descriptors):
            CONTROL.pack_into(
                self._controls,
                number * CONTROL.size,
                *(number, 0, 0, FDSYNC, 0, descriptor, 0, 0, 0, 0, _TO_EVENTFD, self._eventfd),
            )
        count = len(descriptors)
        begun = self._call(
            self._numbers.io_submit, self._context, ctypes.c_long(count), self._pointers
        )
        self._done = done
        self._left = begun
        self._outcomes = [
            None if number < begun else SyncNotTriedError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            for number in range(count)
        ]

    def _take_events(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
            count = self._call(
                self._numbers.io_getevents,
                self._context,
                ctypes.c_long(0),
                ctypes.c_long(self._most),
                self._events,
                None,
            )
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
        for index in range(count):
            number, _, result, _ = EVENT.unpack_from(self._events, index * EVENT.size)
            if result < 0:
                self._outcomes[number] = OSError(-result, os.strerror(-result))
        self._left -= count
        if count and not self._left:
            self._done(self._outcomes)

    def close(self) -> None:
        """Let go of it; what is under way is waited for."""
        self._loop.remove_reader(self._eventfd)
        try:
            self._call(self._numbers.io_destroy, self._context)
        finally:
            os.close(self._eventfd)
