"""The torn tails that recovery has cut off from segments, kept for later inspection.

No append of these bytes was ever acknowledged, and kgw never reads them again. So the size and
number of the files are limited. The oldest files are removed to make room, after a report
(docs/decisions/0074-what-is-kept-of-torn-tails.md).

A file is named `<number>-<partition>-<segment>-<position>.torn`, and the newest has the largest
number, so that the order does not depend on the clock. Files of earlier versions have no number and
count as the oldest.
"""

from __future__ import annotations

from contextlib import suppress
from re import compile as pattern
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.failures import is_out_of_space

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.files.fs import File, FileSystem

TAIL_BYTES: Final = 64 << 20
"""The most bytes to keep of one torn tail."""
FILES_MAX: Final = 1_000
"""The most torn tails to keep. The limit in bytes alone would allow far more small files."""
_SUFFIX: Final = ".torn"
_TEMPORARY_SUFFIX: Final = ".tmp"
_NUMBERED: Final = pattern(r"(\d{10})-(.+)")


class _Kept(NamedTuple):
    """A file in the directory; sorts by age."""

    number: int
    name: str
    size_bytes: int

    @property
    def what(self) -> str:
        """The file name without the number."""
        return self.name[11:] if self.number else self.name


class Quarantine:
    """The quarantine directory and its size. May be used in any thread."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        limit_bytes: int,
        report: Callable[[str], None],
        note: Callable[[str], None],
        *,
        files_max: int = FILES_MAX,
    ) -> None:
        """`report` gets problems for the operator, `note` gets unusual events."""
        self._fs = fs
        self._path = path
        self._limit_bytes = limit_bytes
        self._report = report
        self._note = note
        self._files_max = files_max
        self._lock = Lock()
        self.size_bytes = 0
        """Size of the kept files after the last call of `look` or `keep`."""
        self._known: list[_Kept] | None = None
        """The files after the last call of `look` or `keep`; None before. An operator may have
        removed some since. But listing the directory for each tail would be slow with thousands of
        files."""

    def look(self) -> None:
        """Read the size of the directory, and remove temporary files of a crash.

        Errors are only reported: no start depends on these files.
        """
        try:
            with self._lock:
                for name in self._fs.listdir(self._path):
                    if name.endswith(_SUFFIX + _TEMPORARY_SUFFIX):
                        self._fs.unlink(f"{self._path}/{name}")
                self._known = self._kept()
                self.size_bytes = sum(one.size_bytes for one in self._known)
        except OSError as error:
            self._report(f"{self._path}: {error}")

    def keep(self, partition: str, stem: str, file: File, position: int) -> None:
        """Durably copy a segment's bytes from `position` on, before they are cut off.

        A tail of zeros is not copied. If the disk is full, the tail is not copied either, which is
        reported. Raises OSError.
        """
        data = file.pread(min(TAIL_BYTES, self._limit_bytes), position)
        if not data.strip(b"\0"):
            return
        left_bytes = file.size() - position - len(data)
        what = f"{partition}-{stem}-{position}{_SUFFIX}"
        with self._lock:
            kept = self._kept() if self._known is None else self._known
            if any(self._has(one, what, data) for one in kept):
                # An interrupted start has kept this tail and not cut it off yet.
                return
            kept = self._known = self._make_room(kept, len(data))
            number = max((one.number for one in kept), default=0) + 1
            name = f"{number:010d}-{what}"
            try:
                self._fs.replace_durably(f"{self._path}/{name}", data)
            except OSError as error:
                if not is_out_of_space(error):
                    raise
                # The incomplete file would take up space on the full disk until the next start.
                with suppress(OSError):
                    self._fs.unlink(f"{self._path}/{name}{_TEMPORARY_SUFFIX}")
                self._report(f"{what}: {len(data)} bytes are cut off and not kept: {error}")
            else:
                self._note(f"{self._path}/{name}: {len(data)} bytes that were cut off are kept")
                if left_bytes:
                    self._report(f"{name} lacks the last {left_bytes} bytes that were cut off")
                kept.append(_Kept(number, name, len(data)))
            self.size_bytes = sum(one.size_bytes for one in kept)

    def _make_room(self, kept: list[_Kept], size_bytes: int) -> list[_Kept]:
        """Remove the oldest files until a file of this size fits; return the remaining ones."""
        kept_bytes = sum(one.size_bytes for one in kept)
        removed = 0
        while kept_bytes + size_bytes > self._limit_bytes or len(kept) - removed >= self._files_max:
            one = kept[removed]
            path = f"{self._path}/{one.name}"
            if self._fs.exists(path):
                self._report(
                    f"{path}: {one.size_bytes} bytes that were kept make room for newer ones; "
                    "copy what you need of this directory"
                )
                with suppress(FileNotFoundError):
                    self._fs.unlink(path)
            kept_bytes -= one.size_bytes
            removed += 1
        return kept[removed:]

    def _kept(self) -> list[_Kept]:
        """Return the kept files, oldest first, without other files.

        An operator may remove files at any time, so a file may vanish while it is listed.
        """
        found: list[_Kept] = []
        for name in self._fs.listdir(self._path):
            if name.endswith(_SUFFIX):
                match = _NUMBERED.fullmatch(name)
                number = int(match[1]) if match else 0
                with suppress(FileNotFoundError):
                    found.append(_Kept(number, name, self._fs.file_size(f"{self._path}/{name}")))
        return sorted(found)

    def _has(self, one: _Kept, what: str, data: bytes) -> bool:
        """Return whether a kept file has the same bytes from the same position."""
        if one.what != what or one.size_bytes < len(data):
            return False
        try:
            return self._fs.read_bytes(f"{self._path}/{one.name}").startswith(data)
        except FileNotFoundError:
            return False
