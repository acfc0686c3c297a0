"""A queue of syncs in the kernel: Linux's asynchronous I/O, as far as it syncs files.

IOCB_CMD_FSYNC and IOCB_CMD_FDSYNC, since 4.18. The calls have no names in Python or the C library:
they are made by number. Where there is no such thing - another system, a sandbox that refuses it -
opening a queue raises OSError.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Numbers(NamedTuple):
    """The numbers of the system calls."""

    io_setup: int
    io_destroy: int
    io_submit: int
    io_getevents: int


_NUMBERS: Final = {"x86_64": _Numbers(206, 207, 209, 208), "aarch64": _Numbers(0, 1, 2, 4)}
FSYNC: Final = 2
FDSYNC: Final = 3
_TO_EVENTFD: Final = 1
_CONTROL: Final = Struct("=QIIHhIQQqQII")
"""struct iocb of a little-endian machine: data, key, rw_flags, opcode, priority, descriptor,
buffer, length, offset, reserved, flags, eventfd."""
_EVENT: Final = Struct("=QQqq")
"""struct io_event: data, control block, result, second result."""


class KernelQueue:
    """Up to `most` syncs under way. For one thread at a time."""

    def __init__(self, library: ctypes.CDLL, most: int) -> None:
        """The interpreter is given up during calls through a `CDLL`, and kept through a `PyDLL`.

        Raises OSError where the system has nothing of the kind.
        """
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._numbers = numbers
        self._system_call = library.syscall
        self._context = ctypes.c_ulong(0)
        self._call(numbers.io_setup, ctypes.c_long(most), ctypes.byref(self._context))
        self._controls = ctypes.create_string_buffer(_CONTROL.size * most)
        first = ctypes.addressof(self._controls)
        self._pointers = (ctypes.c_void_p * most)(
            *(first + number * _CONTROL.size for number in range(most))
        )
        self._events = ctypes.create_string_buffer(_EVENT.size * most)

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._system_call(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def submit(self, descriptors: Sequence[int], operation: int, eventfd: int | None = None) -> int:
        """Begin to sync files; return how many of them the kernel has taken, the first ones.

        It writes to the `eventfd` when one is done. Raises OSError when it has taken none.
        """
        told = (0, 0) if eventfd is None else (_TO_EVENTFD, eventfd)
        for number, descriptor in enumerate(descriptors):
            _CONTROL.pack_into(
                self._controls,
                number * _CONTROL.size,
                *(number, 0, 0, operation, 0, descriptor, 0, 0, 0, 0, *told),
            )
        count = ctypes.c_long(len(descriptors))
        return self._call(self._numbers.io_submit, self._context, count, self._pointers)

    def take(self, least: int, most: int) -> list[tuple[int, OSError | None]]:
        """Return the numbers of syncs that have ended, and what went wrong with each.

        Waits for so many at least. Raises OSError.
        """
        least_ended, most_ended = ctypes.c_long(least), ctypes.c_long(most)
        count = self._call(
            self._numbers.io_getevents, self._context, least_ended, most_ended, self._events, None
        )
        ended: list[tuple[int, OSError | None]] = []
        for index in range(count):
            number, _, result, _ = _EVENT.unpack_from(self._events, index * _EVENT.size)
            ended.append((number, OSError(-result, os.strerror(-result)) if result < 0 else None))
        return ended

    def close(self) -> None:
        """Let go of it; what is under way is waited for. Raises OSError."""
        context, self._context = self._context, ctypes.c_ulong(0)
        self._call(self._numbers.io_destroy, context)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._system_call(ctypes.c_long(self._numbers.io_destroy), self._context)
