"""Sends a change and looks up its entry, until the outcome is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from kgw.backend.seaweedmq.chain.marks import read_marks
from kgw.backend.seaweedmq.chain.outcome import ChangeOutcome, judge
from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.backend.seaweedmq.watch.fence import find_other_filers
from kgw.errors import StorageError
from kgw.logs import EventLogger, QuietLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.chain.marks import Marks
    from kgw.backend.seaweedmq.filer import Chunk, Filer, FilerEntry
    from kgw.clock import Clock

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_FORGOTTEN_S: Final = 30.0
"""Longer than a call with all its retries, so a chain that still waits has retried within this
time."""

_DOUBTFUL: Final = frozenset({ChangeOutcome.DAMAGED, ChangeOutcome.GONE})
"""Outcomes that may be wrong if another filer is running."""

_log = EventLogger(__name__)


class NotStoredError(StorageError):
    """The filer did not get the request before the deadline, so nothing was changed."""


class EntryChange(NamedTuple):
    """A change of an entry: its new state, and its marks before and after."""

    entry: FilerEntry
    before: Marks | None
    """None if the change makes the entry."""
    after: Marks


class Outcome(NamedTuple):
    """The outcome of a change, and the entry."""

    verdict: ChangeOutcome
    """Never OPEN."""
    entry: FilerEntry | None
    """The entry as it is now."""


async def discard_chunks(filer: Filer, chunks: Sequence[Chunk]) -> None:
    """Remove chunks that are certainly in no entry; only log a failure."""
    try:
        await filer.delete_chunks(chunks)
    except StorageError as error:
        _log.warning(
            "chunks that no file names were left behind; volume.fsck finds them",
            chunks=", ".join(chunk.file_id for chunk in chunks),
            reason=str(error),
        )


def pause_s(attempt: int) -> float:
    """Return the pause after an attempt; attempts are counted from 1."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(attempt - 1, 10), _LONGEST_PAUSE_S))


class TroubledChains:
    """Logs in one line which chains of a gateway wait for SeaweedFS.

    Another line is logged when no chain waits any more.
    """

    def __init__(self) -> None:
        self._settlers: WeakSet[Settler] = WeakSet()
        self._quiet = QuietLog(_log)
        self._is_told = False

    def begin(self, settler: Settler) -> None:
        """Count a chain as waiting; now and then log the reason and the number of chains."""
        self._settlers.add(settler)
        self._is_told |= self._quiet.warning(
            "chains wait for SeaweedFS",
            "waits",
            settler.clock.monotonic_s(),
            {
                "chains": len(self._settlers),
                "one_of_them": settler.directory,
                "reason": settler.trouble,
            },
        )

    def end(self, settler: Settler) -> None:
        """Record that a chain waits no more."""
        self._settlers.discard(settler)
        if self._is_told and not self._settlers:
            self._is_told = False
            _log.info("no chain waits for SeaweedFS any more")


class Settler:
    """Sends requests for the entries of one directory to a filer, and repeats failed requests."""

    def __init__(
        self, filer: Filer, clock: Clock, directory: str, troubled: TroubledChains | None = None
    ) -> None:
        """Chains with the same `troubled` object are logged together."""
        self.filer = filer
        self.clock = clock
        self.directory = directory
        self.trouble: str | None = None
        """The error that keeps requests from succeeding at present."""
        self._troubled_since_s = 0.0
        self._troubled_at_s = 0.0
        self._troubled = troubled or TroubledChains()

    async def settle(self, change: EntryChange, refuse_at_s: float) -> Outcome:
        """Make a change; return when its outcome is known.

        An unanswered request is repeated under the same condition, so the filer accepts only the
        first one that arrives. Raises NotStoredError if the deadline has passed, or writes are
        stopped, and no request can have reached the filer; CorruptionError if the entry cannot be
        read. A missing or older entry counts only once the masters have confirmed that there is no
        other filer.
        """
        attempt = 0
        is_on_its_way = False
        while True:
            attempt += 1
            stop = self.filer.write_stop
            try:
                if stop is not None:
                    raise FilerError(stop)
                if change.before is None:
                    await self.filer.create(self.directory, change.entry)
                else:
                    expected = change.before.expected
                    await self.filer.update(self.directory, change.entry, expected)
            except OutcomeUnknownError as error:
                is_on_its_way = True
                self.note(error)
                is_refused = False
            except (ConditionFailedError, EntryExistsError, EntryMissingError) as error:
                reason: FilerError = error
                is_refused = True
            except FilerError as error:
                reason = error
                self.note(error)
                is_refused = False
            else:
                self._done()
                return Outcome(ChangeOutcome.DONE, change.entry)
            if is_on_its_way or is_refused:
                found = await self.look_up(change.entry.name)
                marks = None if found is None else read_marks(found, self.place(found.name))
                verdict = judge(marks, change.before, change.after)
                doubt = None
                if verdict in _DOUBTFUL:
                    # Another filer can make this filer go back to slightly older states. Ask the
                    # masters, until they answer, whether there is another filer.
                    try:
                        doubt = stop = await self._beside_others()
                    except FilerError as error:
                        doubt = f"which filers there are is not known: {error}"
                if doubt is not None:
                    reason = FilerError(
                        f"{self.place(change.entry.name)} is as it was before: {doubt}"
                    )
                    self.note(reason)
                elif verdict is not ChangeOutcome.OPEN:
                    return Outcome(verdict, found)
            if not is_on_its_way and (stop or self.clock.monotonic_s() >= refuse_at_s):
                self.give_up()
                raise NotStoredError(f"{self.place(change.entry.name)}: {reason}") from reason
            await self.pause(attempt)

    async def look_up(self, name: str, refuse_at_s: float | None = None) -> FilerEntry | None:
        """Return an entry or None; wait until the filer answers.

        At `refuse_at_s`, if given, it stops waiting and raises FilerError.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                entry = await self.filer.look_up(self.directory, name)
            except FilerError as error:
                if refuse_at_s is not None and self.clock.monotonic_s() >= refuse_at_s:
                    self.give_up()
                    raise
                self.note(error)
                await self.pause(attempt)
            else:
                self._done()
                return entry

    async def _beside_others(self) -> str | None:
        """Return why this filer may show stale entries, or None.

        Raises FilerError if the masters do not list the filers.
        """
        return self.filer.write_stop or await find_other_filers(
            self.filer, self.clock.monotonic_s()
        )

    async def pause(self, attempt: int) -> None:
        """Wait before the next attempt."""
        await self.clock.sleep_until(self.clock.monotonic_s() + pause_s(attempt))

    @property
    def troubled_s(self) -> float:
        """Seconds for which requests have failed; 0 if none was sent lately."""
        if self.trouble is None or self.clock.monotonic_s() - self._troubled_at_s > _FORGOTTEN_S:
            return 0.0
        return self.clock.monotonic_s() - self._troubled_since_s

    def note(self, error: StorageError) -> None:
        """Record an error because of which a request is repeated, and log it now and then."""
        if not self.troubled_s:
            self._troubled_since_s = self.clock.monotonic_s()
        self._troubled_at_s = self.clock.monotonic_s()
        self.trouble = str(error)
        self._troubled.begin(self)

    def give_up(self) -> None:
        """Record that no request of this chain waits any more, even if SeaweedFS still fails."""
        self._troubled.end(self)

    def place(self, name: str) -> str:
        """Return the path of an entry, for messages."""
        return f"{self.directory}/{name}"

    def _done(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            self._troubled.end(self)
