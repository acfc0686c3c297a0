"""The kinds of disk failures that the code has to distinguish (durability.md 4.3)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from kgw.errors import DiskFullError, StorageError
from kgw.problems import DESCRIPTORS, DISK_ERROR, NO_SPACE, is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.problems import Reason

_OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SyncFailedError(Exception):
    """A sync failed, so the content of the disk is unknown, even if a later sync succeeds."""


def is_out_of_space(error: OSError) -> bool:
    """Return whether the call failed for lack of space, so that it may work again later."""
    return error.errno in _OUT_OF_SPACE


def refusal_reason(error: Exception) -> Reason:
    """Return the reason to report for a failed call, if later calls may succeed."""
    if isinstance(error, OSError):
        if is_out_of_space(error):
            return NO_SPACE
        if is_out_of_descriptors(error):
            return DESCRIPTORS
    return DISK_ERROR


def error_of(call: Callable[[], None]) -> OSError | None:
    """Make a system call; return its error, or None."""
    try:
        call()
    except OSError as error:
        return error
    return None


def storage_error(error: OSError, what: str) -> StorageError:
    """Return the error to raise for a failed call: DiskFullError if the disk is full."""
    if is_out_of_space(error):
        return DiskFullError(f"{what}: {error}")
    return StorageError(f"{what}: {error}")
