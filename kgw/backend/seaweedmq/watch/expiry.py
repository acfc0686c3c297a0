"""What SeaweedFS will delete by itself, though nobody asks for it any more.

While a rule of the filer has a TTL (`fs.configure -ttl`), chunks get places in volumes with that
TTL, and new entries get it, too. Both keep it when the rule is taken away. A volume with a TTL
answers for no chunk that was stored longer ago, and is removed as a whole in the end; the filer
removes an entry so long after it was made, unless an update has taken the TTL from it, as each one
of kgw's does. (Facts: SeaweedFS, weed/storage/volume_read.go, weed/filer/filer.go.)
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

    from kgw.backend.seaweedmq.filer import Entry, Expiry, Filer
    from kgw.clock import Clock

_NAMED: Final = 20
"""So many directories are named, and so many volumes of one."""
_SETTLED_S: Final = 60.0
"""So long after a TTL was seen is looked: what was on its way then has been entered. And after a
look that was not answered."""
_AGAIN_S: Final = 600.0
"""Between two looks while there is something, or not all was seen: each reads every entry."""

_NEVER_S: Final = float("inf")

_log = EventLogger(__name__)


class StoredFiles:
    """What a directory has, as far as it can expire."""

    def __init__(self) -> None:
        self.chunks = 0
        self._oldest_ns: dict[int, tuple[int, int]] = {}
        """How many chunks each volume has, and when the oldest of them was stored."""
        self._files: list[tuple[int, str]] = []
        """When each entry expires that does."""

    @property
    def volumes(self) -> Iterable[int]:
        """In which the chunks are."""
        return self._oldest_ns

    def add(self, entry: Entry) -> None:
        """Take a file."""
        if entry.expires_s:
            self._files.append((entry.expires_s, entry.name))
        for chunk in entry.chunks:
            self.chunks += 1
            # A file id is `volume,needle`; what others write may be anything.
            number = chunk.file_id.partition(",")[0]
            if not number.isdecimal():
                continue
            volume = int(number)
            count, oldest_ns = self._oldest_ns.get(volume, (0, chunk.modified_ns))
            self._oldest_ns[volume] = count + 1, min(oldest_ns, chunk.modified_ns)

    def judge(self, directory: str, expiries: Mapping[int, Expiry | None]) -> str | None:
        """Return what will be deleted of it; None where that is nothing."""
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
    """Looks for what will be deleted: at the start, after a TTL was seen, while there is some."""

    def __init__(self, filer: Filer, clock: Clock) -> None:
        self._filer = filer
        self._clock = clock
        self._next_s = float("-inf")
        """When to look next, by the monotonic clock."""
        self._found: dict[str, str] = {}
        """By directory."""

    @property
    def problems(self) -> list[Problem]:
        """What was found last."""
        texts = list(self._found.values())
        named = [Problem(EXPIRING, text) for text in texts[:_NAMED]]
        if len(texts) > _NAMED:
            more = len(texts) - _NAMED
            named.append(Problem(EXPIRING, f"chunks of {more} more directories expire"))
        return named

    def expect(self) -> None:
        """Look soon: a rule has a TTL, or had one."""
        self._next_s = self._clock.monotonic_s() + _SETTLED_S

    async def look(self, directories: Sequence[str]) -> None:
        """Look into these directories if it is time to. Where nobody answers all stays as it is."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = _NEVER_S
        found: dict[str, str] = {}
        is_all_known = True
        try:
            expiries = await self._filer.expiries()
            # Without such volumes the chunks need not be told.
            chunks = any(expiries.values())
            for directory in directories:
                stored = StoredFiles()
                async for entry in self._filer.list_entries(directory, chunks=chunks):
                    stored.add(entry)
                    # A page has a hundred files of up to hundreds of chunks.
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
