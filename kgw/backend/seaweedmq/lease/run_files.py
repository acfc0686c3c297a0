"""How a gateway knows for certain that another one of this machine has ended.

Each has a file of its own, and a lock on it from before it takes the lease until its process ends,
however that ends. Whoever can take that lock knows that the process is gone. Where there is no such
file nothing is known: on another machine, in another container, with another TMPDIR.

Not process ids: in a machine that was cloned while it ran, and in a container, another gateway
could seem to be gone that is alive. The file is where its process made it, and nowhere else.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from tempfile import gettempdir
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RunFiles:
    """The files of the gateways of one machine. Its methods may wait for a disk."""

    def __init__(self, directory: Path | None = None, boot_id_file: Path = _BOOT_ID) -> None:
        """`directory` is where temporary files are, unless given.

        `boot_id_file` has what tells a run of the system from every other.
        """
        self._directory = directory
        self._boot_id_file = boot_id_file
        self._file: int | None = None

    def lock(self, holder: bytes) -> str:
        """Make a gateway's file and lock it until the process ends.

        Return what tells this run of the system from every other, "" where that, or the lock,
        cannot be had: nobody will see that end.
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
        """Whether a gateway has ended for certain, which took its lock in that run of a system."""
        if boot_id != self._boot_id():
            return False
        try:
            file = os.open(self._path(holder), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            # Shared: two that ask at once must not take each other for it.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def remove(self, holder: bytes) -> None:
        """Remove the file of a gateway that has ended, or has let go."""
        try:
            self._path(holder).unlink(missing_ok=True)
        except OSError:
            # It is empty, and another user's.
            return

    def unlock(self) -> None:
        """Let others see that this gateway has ended. More than once is once."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _path(self, holder: bytes) -> Path:
        """Raises OSError where there is no place for temporary files."""
        return (self._directory or Path(gettempdir())) / f"kgw-{holder.hex()}.lock"

    def _boot_id(self) -> str:
        try:
            return self._boot_id_file.read_text().strip()
        except OSError:
            return ""
