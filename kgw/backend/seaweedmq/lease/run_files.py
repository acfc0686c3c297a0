"""Finds out reliably that another gateway on this machine has ended.

Each gateway has a file, which it locks before it takes the lease and until its process ends in any
way. If another gateway can lock this file, the process has ended. Without such a file nothing is
known, because the gateway may run on another machine, in another container, or with another TMPDIR.
Process ids would be unreliable in containers and in machines that were cloned while running: a
running gateway could seem to have ended.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from tempfile import gettempdir
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RunFiles:
    """The run files of the gateways on one machine. The methods may wait for a disk."""

    def __init__(self, directory: Path | None = None, boot_id_file: Path = _BOOT_ID) -> None:
        """`directory` is the directory of temporary files, unless given.

        `boot_id_file` has an id that changes with every boot of the system.
        """
        self._directory = directory
        self._boot_id_file = boot_id_file
        self._file: int | None = None

    def lock(self, holder: bytes) -> str:
        """Make a gateway's file and lock it until the process ends.

        Return the boot id of the system. If the boot id or the lock is not available, return "":
        then no other gateway can find out that this one has ended.
        """
        boot_id = self._boot_id()
        if self._file is None and boot_id:
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW
            try:
                self._file = os.open(self._path(holder), flags, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.unlock()
        return "" if self._file is None else boot_id

    def has_ended(self, holder: bytes, boot_id: str) -> bool:
        """Return whether a gateway that locked its file under `boot_id` has certainly ended."""
        if boot_id != self._boot_id():
            return False
        try:
            file = os.open(self._path(holder), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            # Use a shared lock, so that two gateways that check at once do not see each other's
            # lock.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def remove(self, holder: bytes) -> None:
        """Remove the file of a gateway that has ended, or has given the lease back."""
        try:
            self._path(holder).unlink(missing_ok=True)
        except OSError:
            # The file is empty, and belongs to another user.
            return

    def unlock(self) -> None:
        """Show other gateways that this one has ended. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _path(self, holder: bytes) -> Path:
        """Raises OSError when there is no directory for temporary files."""
        return (self._directory or Path(gettempdir())) / f"kgw-{holder.hex()}.lock"

    def _boot_id(self) -> str:
        try:
            return self._boot_id_file.read_text().strip()
        except OSError:
            return ""
