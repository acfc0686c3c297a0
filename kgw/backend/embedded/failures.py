"""How the disk can fail, as far as the code must tell the ways apart (durability.md 4.3)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from kgw.errors import DiskFullError, StorageError
from kgw.problems import DESCRIPTORS, DISK_ERROR, NO_SPACE

if TYPE_CHECKING:
    from kgw.problems import Reason

_OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class SyncFailedError(Exception):
    """A sync did not succeed: what is on the disk is unknown, and no later sync will tell."""


def is_out_of_space(error: OSError) -> bool:
    """Whether the call failed for want of room, so that it may work again later."""
    return error.errno in _OUT_OF_SPACE


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether a file could not be opened because too many are: nothing has happened to any."""
    return error.errno in _OUT_OF_DESCRIPTORS


def refusal_reason(error: Exception) -> Reason:
    """Return why a call has failed, of those that change nothing for the next one."""
    if isinstance(error, OSError):
        if is_out_of_space(error):
            return NO_SPACE
        if is_out_of_descriptors(error):
            return DESCRIPTORS
    return DISK_ERROR


def storage_error(error: OSError, what: str) -> StorageError:
    """Return the error to raise for a failed call: a full disk is told apart."""
    if is_out_of_space(error):
        return DiskFullError(f"{what}: {error}")
    return StorageError(f"{what}: {error}")
