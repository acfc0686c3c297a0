"""Finds files and chunks that SeaweedFS will delete by itself, because they have a TTL.

While a rule of the filer has a TTL (`fs.configure -ttl`), new chunks are stored in volumes with
this TTL, and new entries get the TTL, too. They keep it when the rule is removed. A volume with a
TTL returns no chunk that is older than the TTL, and is later removed as a whole. The filer removes
an entry when the TTL has passed since its creation, unless an update has cleared the TTL, as every
update by kgw does. (Facts: SeaweedFS, weed/storage/volume_read.go, weed/filer/filer.go.)
"""

from __future__ import annotations

from asyncio import sleep
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kgw.errors import StorageError
from kgw.logs import EventLogger
from kgw.problems import EXPIRING, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.backend.seaweedmq.filer import Expiry, Filer, FilerEntry
    from kgw.clock import Clock

_NAMED: Final = 20
"""The most directories that are named, and the most volumes of each directory."""
_SETTLED_S: Final = 60.0
"""The pause between the discovery of a TTL and the search, after which uploaded chunks are in
entries. Also the pause after a failed search."""
_AGAIN_S: Final = 600.0
"""The pause between searches while data expires, or not all data was read. It is long because a
search reads every entry."""

_NEVER_S: Final = float("inf")

_log = EventLogger(__name__)


class StoredFiles:
    """The chunks and files of a directory that can expire."""

    def __init__(self) -> None:
        self.chunks = 0
        self._oldest_ns: dict[int, tuple[int, int]] = {}
        """The number of chunks in each volume, and the upload time of the oldest chunk."""
        self._files: list[tuple[int, str]] = []
        """The expiry time and the name of each entry that expires."""

    @property
    def volumes(self) -> Iterable[int]:
        """The volumes that hold the chunks."""
        return self._oldest_ns

    def add(self, entry: FilerEntry) -> None:
        """Add a file."""
        if entry.expires_s:
            self._files.append((entry.expires_s, entry.name))
        for chunk in entry.chunks:
            self.chunks += 1
            # A file id is `volume,needle`; other programs may have written malformed ids.
            number = chunk.file_id.partition(",")[0]
            if not number.isdecimal():
                continue
            volume = int(number)
            count, oldest_ns = self._oldest_ns.get(volume, (0, chunk.modified_ns))
            self._oldest_ns[volume] = count + 1, min(oldest_ns, chunk.modified_ns)

    def judge(self, directory: str, expiries: Mapping[int, Expiry | None]) -> str | None:
        """Return a text about the chunks and files that will be deleted; None if there are none."""
        found = []
        begins_s: list[int] = []
        chunks = 0
        volumes = []
        for volume, (count, oldest_ns) in sorted(self._oldest_ns.items()):
            expiry = expiries.get(volume)
            if expiry is not None:
                chunks += count
                volumes.append(str(volume))
                begins_s.append(expiry.of(oldest_ns))
        if chunks:
            named = _some(volumes)
            found.append(f"{chunks} of {self.chunks} chunks are in volumes with a TTL ({named})")
        if self._files:
            begins_s += [expires_s for expires_s, _ in self._files]
            named = _some(sorted(name for _, name in self._files))
            found.append(f"files that have a TTL themselves are {named}")
        if not found:
            return None
        return (
            f"{directory}: {', and '.join(found)}: SeaweedFS deletes them from "
            f"{datetime.fromtimestamp(min(begins_s), UTC):%Y-%m-%d %H:%M:%S} UTC on, also "
            "when the rule that gave it is gone. Copy the namespace before (kgw log copy, kgw "
            "state copy), or read the records and produce them again"
        )


class ExpiryLook:
    """Searches for data that will be deleted: at the start, and after a TTL was seen."""

    def __init__(self, filer: Filer, clock: Clock) -> None:
        self._filer = filer
        self._clock = clock
        self._next_s = float("-inf")
        """The monotonic time of the next search."""
        self._found: dict[str, str] = {}
        """By directory."""

    @property
    def problems(self) -> list[Problem]:
        """The results of the last search."""
        texts = list(self._found.values())
        named = [Problem(EXPIRING, text) for text in texts[:_NAMED]]
        if len(texts) > _NAMED:
            more = len(texts) - _NAMED
            named.append(Problem(EXPIRING, f"chunks of {more} more directories expire"))
        return named

    def expect(self) -> None:
        """Search soon, because a rule has or had a TTL."""
        self._next_s = self._clock.monotonic_s() + _SETTLED_S

    async def look(self, directories: Sequence[str]) -> None:
        """Search these directories if it is time; if the search fails, keep the old results."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = _NEVER_S
        found: dict[str, str] = {}
        is_all_known = True
        try:
            expiries = await self._filer.expiries()
            # If no volume has a TTL, the chunks need not be listed.
            chunks = any(expiries.values())
            for directory in directories:
                stored = StoredFiles()
                async for entry in self._filer.list_entries(directory, chunks=chunks):
                    stored.add(entry)
                    # Let the event loop run: a page has a hundred files with up to hundreds of
                    # chunks each.
                    await sleep(0)
                is_all_known = is_all_known and expiries.keys() >= set(stored.volumes)
                if (text := stored.judge(directory, expiries)) is not None:
                    found[directory] = text
        except StorageError as error:
            _log.warning("whether chunks expire is not known", reason=str(error))
            self._next_s = min(self._next_s, now_s + _SETTLED_S)
            return
        for directory, text in found.items():
            if directory not in self._found:
                _log.error("acknowledged records will expire", problem=text)
        self._found = found
        if found or not is_all_known:
            self._next_s = min(self._next_s, now_s + _AGAIN_S)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
