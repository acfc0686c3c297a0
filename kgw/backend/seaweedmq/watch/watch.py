"""Watches SeaweedFS for filers that join, and for changed rules and options.

A filer that joins copies all entries from the old filer, and then the old filer copies all entries
from the new one. So an entry that was changed in between goes back to its older state. With
SeaweedFS 4.48 this began 1.8 s after the new filer had registered with the master, and 3 of 1,730
acknowledged records were lost. So the masters are asked twice a second, and writes stop as soon as
they list another filer.
"""

from __future__ import annotations

from asyncio import ensure_future, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.path_rules import expiry, forbidden
from kgw.backend.seaweedmq.watch.fence import find_other_filers
from kgw.errors import DataDirectoryError, StorageError
from kgw.logs import EventLogger
from kgw.problems import EXPIRING, FILERS, RULES, UNWATCHED, Problem

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.clock import Clock

LOOK_S: Final = 0.5
"""The pause between two checks."""
CALM_S: Final = 8.0
"""How long there must be no other filer before writes are allowed again. The remaining filer still
forwards changes to the stopped filer for some seconds. With 0 and 3 s here, some changes took 5 to
7 s; with 8 s, all took less than 2 s."""
_LOOKS_PER_REFRESH: Final = 10
"""Number of checks for each request for the filer's options. The rules are read in every check,
because a new TTL applies to all data stored afterwards."""
BLIND_S: Final = 10.0
"""A question that SeaweedFS has not answered for this time is reported."""
_SPANS: Final = 20
"""The most periods with a TTL that are reported. Later periods replace earlier ones."""

_log = EventLogger(__name__)


class _Question:
    """A regular question to SeaweedFS, and the time since it has not been answered."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since_s: float | None = None
        self._reason = ""

    @contextmanager
    def asked(self, now_s: float) -> Iterator[None]:
        """Ask the question in the block. If it fails, the last answer stays valid."""
        try:
            yield
        except StorageError as error:
            self._reason = str(error)
            if self._since_s is None:
                self._since_s = now_s
                _log.warning(
                    "SeaweedFS does not say what is done to it",
                    what=self._what,
                    reason=self._reason,
                )
        else:
            self._since_s = None

    def problem(self, now_s: float) -> Problem | None:
        """Return a problem if the question has not been answered for long."""
        if self._since_s is None or now_s - self._since_s <= BLIND_S:
            return None
        return Problem(
            UNWATCHED,
            f"{self._what} has not been answered for over {BLIND_S:.0f} s: {self._reason}",
        )


class FilerWatch:
    """Sets `Filer.write_stop` while nothing may be written."""

    def __init__(
        self,
        filer: Filer,
        clock: Clock,
        directories: Sequence[str],
        restore: Callable[[], Awaitable[None]],
        forget: Callable[[], None] = lambda: None,
        expect_expiry: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch the rules for `directories`.

        `restore` undoes the changes of other filers before writes are allowed again. If it raises
        StorageError, writes stay forbidden. `forget` is called every few seconds while writes are
        allowed, and drops data that `restore` no longer needs. `expect_expiry` is called when the
        rules have a TTL.
        """
        self._filer = filer
        self._clock = clock
        self._directories = directories
        self._restore = restore
        self._forget = forget
        self._expect_expiry = expect_expiry
        self._others: str | None = None
        self._rule: str | None = None
        self._last_rule: str | None = None
        """The last rule that forbade writes."""
        self._looks = 0
        self._safe_ms = 0
        """The wall-clock time of the last request that found no TTL in the rules."""
        self._ttl: str | None = None
        """The TTL in the present rules."""
        self._expiring: list[Problem] = []
        self._told_s = 0.0
        """The monotonic time at which the masters last listed another filer."""
        self._task: Task[None] | None = None
        self._asked_masters = _Question(
            "the question which filers there are (a filer that joins is not seen meanwhile)"
        )
        self._asked_rules = _Question("the question for the filer's rules")
        self._asked_options = _Question("the question for the filer's options")

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The reasons why nothing may be written now, and the written data that will be deleted."""
        found = [] if self._others is None else [Problem(FILERS, self._others)]
        if self._rule is not None:
            found.append(Problem(RULES, self._rule))
        if not found and (stop := self._filer.write_stop) is not None:
            # The reason has ended, but not all changes are restored yet.
            found.append(Problem(RULES if stop == self._last_rule else FILERS, stop))
        now_s = self._clock.monotonic_s()
        unanswered = (
            question.problem(now_s)
            for question in (self._asked_masters, self._asked_rules, self._asked_options)
        )
        return (*found, *self._expiring, *filter(None, unanswered))

    @property
    def is_beside_others(self) -> bool:
        """Whether there is another filer, or was one a moment ago."""
        return self._others is not None

    async def check(self) -> None:
        """Check the rules before any write. Raises DataDirectoryError if they forbid writes."""
        try:
            self._rule = await self._find_rule()
        except StorageError as error:
            raise DataDirectoryError(f"the filer's rules by path are unknown: {error}") from error
        if self._rule is not None:
            raise DataDirectoryError(self._rule)

    def start(self) -> None:
        """Check regularly until `aclose`."""
        self._task = ensure_future(self._run())

    async def aclose(self) -> None:
        """Stop checking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await wait([task])
        self._filer.write_stop = None

    async def _run(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.monotonic_s() + LOOK_S)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - it must not end
                _log.error("what others do to SeaweedFS could not be looked at", error=error)

    async def look(self) -> None:
        """Check SeaweedFS once; forbid writes or allow them again."""
        now_s = self._clock.monotonic_s()
        # An error is harmless: if the masters do not answer, no filer can join either.
        with self._asked_masters.asked(now_s):
            others = await find_other_filers(self._filer, now_s)
            if others is not None:
                self._others, self._told_s = others, now_s
            elif now_s - self._told_s >= CALM_S:
                self._others = None
        with self._asked_rules.asked(now_s):
            self._rule = await self._find_rule()
        self._looks += 1
        if self._looks % _LOOKS_PER_REFRESH == 0:
            with self._asked_options.asked(now_s):
                await self._filer.refresh()
        self._last_rule = self._rule or self._last_rule
        stop, before = self._others or self._rule, self._filer.write_stop
        if stop is not None:
            self._filer.write_stop = stop
            if stop != before:
                # Unused file ids may be in volumes that expire.
                self._filer.forget_places()
                _log.error("nothing is written any more", reason=stop)
        elif before is not None:
            await self._go_on()
        elif self._looks % _LOOKS_PER_REFRESH == 0:
            self._forget()

    async def _go_on(self) -> None:
        """Undo the changes of other filers, and allow writes if no other filer has come back."""
        try:
            await self._restore()
            # Check again, because the restoring may have taken long.
            now_s = self._clock.monotonic_s()
            self._others = await find_other_filers(self._filer, now_s)
            self._told_s = self._told_s if self._others is None else now_s
            self._rule = await self._find_rule()
        except StorageError as error:
            _log.warning("nothing is written yet", reason=str(error))
            return
        self._last_rule = self._rule or self._last_rule
        stop = self._filer.write_stop = self._others or self._rule
        if stop is None:
            self._filer.forget_places()
            _log.info("what kept kgw from writing is over: writes go on")
        else:
            _log.error("nothing is written any more", reason=stop)

    async def _find_rule(self) -> str | None:
        """Return the rule that forbids writes. Raises StorageError."""
        asked_ms = self._clock.wall_ms()
        rules = await self._filer.rules()
        ttl = expiry(rules, self._directories)
        if ttl is None:
            self._safe_ms = asked_ms
        elif self._ttl is None and self._task is not None:
            self._tell_of_expiry(ttl)
        if ttl is not None:
            self._expect_expiry()
        self._ttl = ttl
        return forbidden(rules, self._directories)

    def _tell_of_expiry(self, ttl: str) -> None:
        """Report the data that was written with a TTL, for as long as this process runs."""
        since, until = (
            f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
            for ms in (self._safe_ms, self._clock.wall_ms() + 999)
        )
        text = (
            f"what was written from {since} to {until} UTC will expire (ttl {ttl}), though the "
            "rule is taken away: copy it with kgw log copy, or read it and produce it again"
        )
        self._expiring = [*self._expiring[1 - _SPANS :], Problem(EXPIRING, text)]
        _log.error("acknowledged records will expire", problem=text)
