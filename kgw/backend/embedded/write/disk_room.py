"""Whether the disk has room for what is appended, and leaves some to the state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.errors import DiskFullError, StorageError

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import FileSystem

_LOOK_FOR_ROOM_BYTES: Final = 8 << 20
"""What the event loop may write at most before the disk is asked again: others fill it, too."""


class DiskRoom:
    """The free space of a data directory's disk, as of the last look. Asking waits for no disk."""

    def __init__(self, fs: FileSystem, root: str, min_free_bytes: int) -> None:
        """Below `min_free_bytes` nothing has room; 0 asks nobody."""
        self._fs = fs
        self._root = root
        self._min_free_bytes = min_free_bytes
        self._is_short = False
        """Whether the last look found too little."""
        self._spare_bytes = 0
        """What the event loop may write before the disk is asked again."""

    def look(self, size_bytes: int = 0) -> StorageError | None:
        """Ask whether there is room for so much; say why it is refused when there is not."""
        if self._min_free_bytes <= 0:
            return None
        try:
            free_bytes = self._fs.free_bytes(self._root)
        except OSError as error:
            return StorageError(str(error))
        needed_bytes = self._min_free_bytes + size_bytes
        self._spare_bytes = min(free_bytes - needed_bytes, _LOOK_FOR_ROOM_BYTES)
        self._is_short = free_bytes < needed_bytes
        if not self._is_short:
            return None
        return DiskFullError(f"{free_bytes} bytes are free where {needed_bytes} are needed")

    def look_again(self) -> bool:
        """Whether there is room now; the disk is asked only where there was too little before."""
        if self._is_short:
            try:
                free_bytes = self._fs.free_bytes(self._root)
            except OSError:
                return False
            self._is_short = free_bytes < self._min_free_bytes
        return not self._is_short

    def has_spare(self, size_bytes: int) -> bool:
        """Whether there is room for so much, as of not long ago; `spend` it then."""
        if self._min_free_bytes <= 0 or self._spare_bytes >= size_bytes:
            return True
        self.look()
        return self._spare_bytes >= size_bytes

    def spend(self, size_bytes: int) -> None:
        """Note that so much of the spare room is being written."""
        self._spare_bytes -= size_bytes
