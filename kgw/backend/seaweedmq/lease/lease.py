"""Acquires, renews, watches and gives back the lease of a namespace.

`rules` decides; this module calls the filer and has the timers. Stored data is safe without the
lease, because chains refuse every replaced gateway.
"""

from __future__ import annotations

import asyncio
from os import urandom
from typing import TYPE_CHECKING, Final

from kgw.backend.lease import Lease, LeaseStatus
from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
)
from kgw.backend.seaweedmq.lease.rules import NAME, OFFER_S, LeaseEntry, LeaseRules
from kgw.backend.seaweedmq.lease.standby_rules import (
    PREFIX,
    StandbyEntry,
    Standbys,
    entry_name,
    why_not_listed,
)
from kgw.errors import CorruptionError, DataDirectoryError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.lease.rules import LeaseWrite
    from kgw.backend.seaweedmq.lease.run_files import RunFiles
    from kgw.clock import Clock, Timer
    from kgw.config import Node

_LOOKS_PER_RENEWAL: Final = 3
"""Number of times per renewal interval that a standby, or a leader without an answer, looks up the
lease."""

_log = EventLogger(__name__)


class FilerLease(Lease):
    """One gateway's side of the lease of a namespace. All in the event loop.

    `when_changed` is also called when a leader has renewed the lease, and once when this gateway
    becomes a standby.
    """

    is_shared = True

    def __init__(
        self,
        filer: Filer,
        clock: Clock,
        directory: str,
        lease_ms: int,
        *,
        holder: bytes | None = None,
        run_files: RunFiles | None = None,
    ) -> None:
        """`directory` has the lease entry; `lease_ms` is the length of a lease.

        `holder` identifies this run of a gateway, and is random unless given. With `run_files`,
        gateways on one machine find out that another one has ended.
        """
        super().__init__()
        self._filer = filer
        self._clock = clock
        self._directory = directory
        self._rules = LeaseRules(holder or urandom(16), lease_ms)
        self._known = Standbys(lease_ms)
        self._standby_node: Node | None = None
        self._beats = 0
        self._beats_next_s = float("-inf")
        self._has_standby_entry = False
        self._aside: asyncio.Task[None] | None = None
        """A background task that lists the standbys, or writes this standby's entry."""
        self._run_files = run_files
        self._takes_over = False
        self._wake = asyncio.Event()
        self._end: Timer | None = None
        self._holding: asyncio.Task[None] | None = None
        self._is_gone = False
        self._in_trouble = False
        self._is_offering = False
        self.status = LeaseStatus.STANDBY

    def __repr__(self) -> str:
        return f"<FilerLease {self._directory} {self.status.value} {self._rules.entry}>"

    async def acquire(self) -> None:
        """Wait while another gateway holds the lease, then become the holder and keep renewing.

        Raises DataDirectoryError if the lease entry cannot be read.
        """
        rules, clock = self._rules, self._clock
        stands_by = False
        while True:
            if await self._look():
                ended = await self._find_ended()
                now_s = clock.monotonic_s()
                if rules.is_holder or (
                    (self._takes_over or rules.takes_over_s <= now_s) and await self._take()
                ):
                    break
            entry = rules.entry
            leader = None if entry is None else entry.node
            if leader != self.leader or not stands_by or rules.seen_s != self.renewed_s:
                stands_by = True
                self.leader, self.renewed_s = leader, rules.seen_s
                self.tell()
            self._beat()
            next_s = clock.monotonic_s() + self._pause_s
            if rules.takes_over_s > clock.monotonic_s():
                next_s = min(next_s, rules.takes_over_s)
            await self._pause(next_s)
        self._takes_over = False
        self.leader = None
        while clock.monotonic_s() < rules.begins_s:
            # The gateway that offered its lease may not know yet that the lease is taken.
            await self._pause(rules.begins_s)
        if ended is not None and self._run_files is not None:
            _log.info("the gateway that led has ended: its lease is not waited for")
            await asyncio.to_thread(self._run_files.remove, ended)
        _log.info("this gateway leads", directory=self._directory, epoch=self._epoch)
        self._confirmed()
        self._holding = asyncio.ensure_future(self._hold())

    def take_over(self) -> None:
        """Let the waiting or next call of `acquire` ignore another holder."""
        if self.status is LeaseStatus.STANDBY:
            self._takes_over = True
            self._wake.set()

    def advertise(self, node: Node) -> None:
        """Publish the address at which clients reach this gateway, for other gateways.

        A standby publishes the address in its own entry.
        """
        if self.status is LeaseStatus.STANDBY:
            self._standby_node = node
            self._beats_next_s = float("-inf")
        else:
            self._rules.node = node
        self._wake.set()

    def offer(self) -> None:
        """Offer the lease to the standbys, and lead only until a standby has taken it."""
        self._is_offering = True
        self._wake.set()

    def doubt(self) -> None:
        """Check now whether this gateway is still the holder, because there is doubt."""
        self._wake.set()

    async def aclose(self) -> None:
        """Give back our lease, if the filer answers, so that a standby can take it."""
        holding, self._holding = self._holding, None
        if holding is not None:
            holding.cancel()
            await asyncio.wait((holding,))
        if self._end is not None:
            self._end.cancel()
        if self._aside is not None:
            self._aside.cancel()
            await asyncio.wait((self._aside,))
        rules = self._rules
        await self._remove_standby_entry()
        if rules.is_holder and await self._look() and rules.is_holder:
            rules.dropped()
            write = rules.renew()
            released = write.wanted._replace(is_released=True, is_offered=False, node=None)
            rules.is_holder = not await self._write(write._replace(wanted=released))
        if self._run_files is not None:
            if not rules.is_holder:
                await asyncio.to_thread(self._run_files.remove, rules.holder)
            # Even if the filer has not answered, the unlocked file shows that this gateway has
            # ended.
            self._run_files.unlock()
        rules.is_holder = False

    async def _find_ended(self) -> bytes | None:
        """Return the lease's holder if its process has certainly ended."""
        rules, run_files = self._rules, self._run_files
        other = rules.may_have_ended()
        if run_files is None or other is None:
            return None
        if not await asyncio.to_thread(run_files.has_ended, other.holder, other.boot_id):
            return None
        rules.ended(other.holder)
        return other.holder

    async def _take(self) -> bool:
        """Try to become the holder; return whether that has certainly succeeded."""
        rules = self._rules
        if self._run_files is not None:
            rules.boot_id = await asyncio.to_thread(self._run_files.lock, rules.holder)
        return await self._write(rules.take())

    # --- the holder -------------------------------------------------------------------------------

    async def _hold(self) -> None:
        """Renew the lease until another gateway has it; then wait for that gateway's address."""
        rules, clock = self._rules, self._clock
        begun_s = clock.monotonic_s()
        self._do_aside(self._look_for_standbys)
        next_s = begun_s + rules.interval_s if rules.leads(begun_s) else begun_s
        is_missing = False
        while rules.is_holder:
            await self._pause(next_s)
            begun_s = clock.monotonic_s()
            if self._is_offering:
                await self._offer()
                next_s = clock.monotonic_s() + OFFER_S / _LOOKS_PER_RENEWAL
            elif await self._write(rules.renew(is_missing=is_missing)):
                is_missing = False
                # A change that was first sent long ago does not confirm the lease, so renew again
                # now.
                next_s = begun_s + rules.interval_s if rules.leads(begun_s) else begun_s
                self._do_aside(self._look_for_standbys)
            else:
                is_missing = await self._look() and self._is_gone
                next_s = clock.monotonic_s() + self._pause_s
            if rules.leads(clock.monotonic_s()):
                self._confirmed()
        if self._end is not None:
            self._end.cancel()
        self._lost()
        # A gateway that is about to stop waits until it can tell clients the leader's address.
        pause_s = OFFER_S / _LOOKS_PER_RENEWAL if self._is_offering else self._pause_s
        while self.leader is None:
            await self._pause(clock.monotonic_s() + pause_s)
            if await self._look():
                self._lost()

    async def _offer(self) -> None:
        """Offer the lease to all standbys, and check whether a standby has taken it."""
        rules = self._rules
        entry = rules.entry
        if entry is None or not entry.is_offered:
            _log.info("this gateway is about to stop, and offers its lease to one that stands by")
            if await self._write(rules.offer()):
                return
        asked_s = self._clock.monotonic_s()
        if await self._look(within_s=OFFER_S) and not self._is_gone:
            rules.still_there(asked_s)

    async def _look_for_standbys(self) -> None:
        """List the standbys, and remove the entries of gateways that have ended.

        If the filer does not answer, the next renewal tries again.
        """
        rules, found, problems = self._rules, [], []
        try:
            async for entry in self._filer.list_entries(
                self._directory, prefix=PREFIX, chunks=False
            ):
                try:
                    found.append(StandbyEntry.decode(entry))
                except CorruptionError as error:
                    problems.append(f"{self._directory}: {error}")
            now_s = self._clock.monotonic_s()
            for name in self._known.saw(found, rules.node, rules.holder, now_s):
                deadline_s = self._clock.monotonic_s() + rules.interval_s
                await self._filer.delete(self._directory, name, deadline_s=deadline_s)
        except FilerError as error:
            self._trouble(error)
            return
        self._note_problems((*self._known.problems, *problems))
        if tuple(self.standbys) != self._known.nodes:
            self.standbys = self._known.nodes
            _log.info("gateways that stand by", nodes=", ".join(map(str, self.standbys)) or "none")
            self.tell()

    def _note_problems(self, problems: Sequence[str]) -> None:
        for problem in problems:
            # A leading gateway logs its problems elsewhere, whenever they change.
            if self.status is LeaseStatus.STANDBY and problem not in self.problems:
                _log.warning(problem)
        self.problems = problems

    # --- a standby -------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Write this standby's entry, with its address, if it is time."""
        now_s = self._clock.monotonic_s()
        if self._standby_node is None or now_s < self._beats_next_s:
            return
        problem = why_not_listed(self._standby_node, self.leader)
        self._note_problems((problem,) if problem else ())
        if self._do_aside(self._put_standby_entry):
            self._beats_next_s = now_s + self._rules.interval_s

    async def _put_standby_entry(self) -> None:
        node, rules = self._standby_node, self._rules
        if node is None or self.status is not LeaseStatus.STANDBY:
            return
        self._beats += 1
        self._has_standby_entry = True
        entry = StandbyEntry(rules.holder, self._beats, rules.lease_ms, node).encode()
        deadline_s = self._clock.monotonic_s() + rules.interval_s
        try:
            await self._filer.put(self._directory, entry, deadline_s=deadline_s)
        except FilerError as error:
            self._trouble(error)

    async def _remove_standby_entry(self) -> None:
        """Remove this standby's entry. If that fails, the entry expires."""
        if not self._has_standby_entry:
            return
        self._has_standby_entry = False
        deadline_s = self._clock.monotonic_s() + self._pause_s
        try:
            await self._filer.delete(
                self._directory, entry_name(self._rules.holder), deadline_s=deadline_s
            )
        except FilerError as error:
            self._trouble(error)

    def _do_aside(self, what: Callable[[], Coroutine[None, None, None]]) -> bool:
        """Start a background task unless one is running; return whether it was started."""
        if self._aside is not None and not self._aside.done():
            return False
        self._aside = asyncio.ensure_future(what())
        return True

    # --- the present role -------------------------------------------------------------------------

    def _confirmed(self) -> None:
        self._watch_end()
        if self.status is not LeaseStatus.LEADING:
            if self.status is LeaseStatus.UNCONFIRMED and not self._is_offering:
                _log.info("the lease has been renewed: requests are answered again")
            self.status = LeaseStatus.LEADING
            self.tell()

    def _watch_end(self) -> None:
        """Stop answering requests when the lease ends, unless it is renewed before."""
        if self._end is not None:
            self._end.cancel()
        self._end = self._clock.call_at(self._rules.ends_s, self._unconfirmed)

    def _unconfirmed(self) -> None:
        """Stop answering requests, because another gateway may lead from now on."""
        if self.status is not LeaseStatus.LEADING:
            return
        if not self._is_offering:
            _log.warning(
                "the lease has run out: requests are refused until it has been renewed",
                directory=self._directory,
                lease_ms=self._rules.lease_ms,
            )
        self.status = LeaseStatus.UNCONFIRMED
        self.tell()

    def _lost(self) -> None:
        entry = self._rules.entry
        leader = None if entry is None else entry.node
        if self.status is not LeaseStatus.LOST or leader is not None:
            self.status = LeaseStatus.LOST
            self.leader = leader
            self.tell()

    # --- the filer --------------------------------------------------------------------------------

    @property
    def _pause_s(self) -> float:
        return self._rules.interval_s / _LOOKS_PER_RENEWAL

    @property
    def _epoch(self) -> int:
        entry = self._rules.entry
        return 0 if entry is None else entry.epoch

    async def _look(self, *, within_s: float | None = None) -> bool:
        """Look up the lease entry; return whether the filer has answered."""
        if within_s is None:
            within_s = self._rules.interval_s
        deadline_s = self._clock.monotonic_s() + within_s
        try:
            entry = await self._filer.look_up(self._directory, NAME, deadline_s=deadline_s)
            found = None if entry is None else LeaseEntry.decode(entry)
        except FilerError as error:
            self._trouble(error)
            return False
        except CorruptionError as error:
            message = f"{self._directory}: {error}; removed, it is made anew"
            if not self._rules.is_holder:
                raise DataDirectoryError(message) from error
            self._trouble(DataDirectoryError(message))
            return False
        self._is_gone = found is None
        self._rules.saw(found, self._clock.monotonic_s())
        self._in_trouble = False
        return True

    async def _write(self, write: LeaseWrite) -> bool:
        """Make a change of the entry; return whether it was certainly made. If not, look it up."""
        rules = self._rules
        now_s = self._clock.monotonic_s()
        rules.sending(write, now_s)
        if rules.is_offering:
            self._watch_end()
        deadline_s = now_s + rules.interval_s
        entry = write.wanted.encode()
        try:
            if write.before is None:
                await self._filer.create(self._directory, entry, deadline_s=deadline_s)
            else:
                await self._filer.update(
                    self._directory, entry, write.before.expected, deadline_s=deadline_s
                )
        except (ConditionFailedError, EntryExistsError, EntryMissingError):
            # This request was refused, but an earlier request may have made the same change.
            return False
        except FilerError as error:
            self._trouble(error)
            return False
        rules.succeeded(self._clock.monotonic_s())
        self._in_trouble = False
        return True

    def _trouble(self, error: Exception) -> None:
        """Log once that the filer fails."""
        if not self._in_trouble:
            self._in_trouble = True
            _log.warning(
                "the lease cannot be looked after", directory=self._directory, why=str(error)
            )

    async def _pause(self, until_s: float) -> None:
        """Wait until a time, or until `_wake` is set."""
        timer = self._clock.call_at(until_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._wake.clear()
