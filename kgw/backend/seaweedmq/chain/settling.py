"""A change is sent, and its entry looked at, until it is known what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from kgw.backend.seaweedmq.chain.marks import read_marks
from kgw.backend.seaweedmq.chain.outcome import Verdict, judge
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
    from kgw.backend.seaweedmq.chain.marks import Marks
    from kgw.backend.seaweedmq.filer import Entry, Filer
    from kgw.clock import Clock

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_FORGOTTEN_S: Final = 30.0
"""Longer than a call takes with all its tries: whoever is in trouble tries again before that."""

_DOUBTFUL: Final = frozenset({Verdict.DAMAGED, Verdict.GONE})
"""What another filer may be the cause of."""

_log = EventLogger(__name__)


class NotStoredError(StorageError):
    """The filer could not be asked for so long that it was given up. Nothing was changed."""


class Change(NamedTuple):
    """An entry as it is to be, and the marks that it expects and leaves."""

    entry: Entry
    before: Marks | None
    """None when the entry is to be made."""
    after: Marks


class Outcome(NamedTuple):
    """What became of a change."""

    verdict: Verdict
    """Never OPEN."""
    entry: Entry | None
    """What is there now."""


def pause_s(attempt: int) -> float:
    """Return how long to wait after so many attempts, 1 for the first."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(attempt - 1, 10), _LONGEST_PAUSE_S))


class TroubledChains:
    """Which of the chains of a gateway wait for SeaweedFS: one line of the log says it of all.

    Where one said that they wait, another says when none does any more.
    """

    def __init__(self) -> None:
        self._settlers: WeakSet[Settler] = WeakSet()
        self._quiet = QuietLog(_log)
        self._is_told = False

    def begin(self, settler: Settler) -> None:
        """Say, now and then, what is in the way of one, and how many wait."""
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
        """Take note that one waits no more."""
        self._settlers.discard(settler)
        if self._is_told and not self._settlers:
            self._is_told = False
            _log.info("no chain waits for SeaweedFS any more")


class Settler:
    """Asks a filer about the entries of one directory, again and again where it must."""

    def __init__(
        self, filer: Filer, clock: Clock, directory: str, troubled: TroubledChains | None = None
    ) -> None:
        """`troubled` is shared by those whose waiting is to be logged together."""
        self.filer = filer
        self.clock = clock
        self.directory = directory
        self.trouble: str | None = None
        """What is in the way at present."""
        self._troubled_since_s = 0.0
        self._troubled_at_s = 0.0
        self._troubled = troubled or TroubledChains()

    async def settle(self, change: Change, refuse_at_s: float) -> Outcome:
        """Make a change, and return when its outcome is known and cannot alter.

        A request whose answer did not come is repeated under the same condition: whichever arrives
        first is taken, the others are refused, however late. Raises NotStoredError when the time is
        over, or nothing may be written, and no request can have reached the filer; CorruptionError
        when what is there cannot be understood. An entry that is gone or not as it was left is
        taken for that only once the masters have said that there is no other filer.
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
                return Outcome(Verdict.DONE, change.entry)
            if is_on_its_way or is_refused:
                found = await self.look_up(change.entry.name)
                marks = None if found is None else read_marks(found, self.place(found.name))
                verdict = judge(marks, change.before, change.after)
                doubt = None
                if verdict in _DOUBTFUL:
                    # Another filer gives this one entries as they were a moment ago. Where the
                    # masters do not say whether there is one, they are asked again.
                    try:
                        doubt = stop = await self._beside_others()
                    except FilerError as error:
                        doubt = f"which filers there are is not known: {error}"
                if doubt is not None:
                    reason = FilerError(
                        f"{self.place(change.entry.name)} is as it was before: {doubt}"
                    )
                    self.note(reason)
                elif verdict is not Verdict.OPEN:
                    return Outcome(verdict, found)
            if not is_on_its_way and (stop or self.clock.monotonic_s() >= refuse_at_s):
                self.give_up()
                raise NotStoredError(f"{self.place(change.entry.name)}: {reason}") from reason
            await self.pause(attempt)

    async def look_up(self, name: str, refuse_at_s: float | None = None) -> Entry | None:
        """Return an entry, None when there is none, however long the filer does not answer.

        With a time, raises FilerError when it is over.
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
        """Return what is wrong where what this filer says of its entries need not be true.

        Raises FilerError when the masters do not say which filers there are.
        """
        return self.filer.write_stop or await find_other_filers(
            self.filer, self.clock.monotonic_s()
        )

    async def pause(self, attempt: int) -> None:
        """Wait before the next attempt."""
        await self.clock.sleep_until(self.clock.monotonic_s() + pause_s(attempt))

    @property
    def troubled_s(self) -> float:
        """For how long something has been in the way; 0 when nothing has been tried for a while."""
        if self.trouble is None or self.clock.monotonic_s() - self._troubled_at_s > _FORGOTTEN_S:
            return 0.0
        return self.clock.monotonic_s() - self._troubled_since_s

    def note(self, error: StorageError) -> None:
        """Say, now and then, what is in the way."""
        if not self.troubled_s:
            self._troubled_since_s = self.clock.monotonic_s()
        self._troubled_at_s = self.clock.monotonic_s()
        self.trouble = str(error)
        self._troubled.begin(self)

    def give_up(self) -> None:
        """Take note that nothing waits any more, whatever is in the way."""
        self._troubled.end(self)

    def place(self, name: str) -> str:
        """Return where an entry is, for messages."""
        return f"{self.directory}/{name}"

    def _done(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            self._troubled.end(self)
