"""D11: a kill or a power loss at each step of a transaction, of either version, commit or abort.

A producer is in the middle of a transaction when the gateway dies at an exact step; another one has
a transaction open beside it. After the restart, which may crash, too, the producer goes on, or
another one comes and fences it, or nobody comes. Then readers of committed records see all or
nothing, as it was told, offsets of groups included. Stale frames arrive all the while.

Run as `python -m tests.campaigns.transaction_kills --full --seed N`.
"""

from __future__ import annotations

import asyncio
import traceback
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.errors import NO_ERROR
from kgw.ownership.ownership import Ownership
from kgw.partitions.append.transactions import AbortedIndex
from kgw.partitions.partition import Partition
from kgw.state.kinds import TRANSACTION
from kgw.transactions import machine
from kgw.transactions.ending import Ender
from kgw.transactions.machine import LAST_EPOCH
from kgw.transactions.rows import decode_row
from kgw.transactions.states import DECIDED
from kgw.transactions.table import TransactionTable
from tests.campaigns.retries import KeptState, hasty_ids
from tests.campaigns.stale_frames import KINDS, send_stale
from tests.campaigns.support import Report, main, replaced
from tests.campaigns.transaction_clients import Producer
from tests.campaigns.transaction_steps import Step
from tests.campaigns.transaction_world import CATCH_UP_S, TIMEOUT_MS, World, WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kgw.completion import Completion
    from kgw.errors import ErrorCode
    from kgw.state.base import Change
    from kgw.transactions.machine import Ending
    from kgw.types import PartitionKey
    from tests.campaigns.transaction_world import Transaction

KILLS_A_STEP = 20
"""In full size, for commit and for abort each."""
STALE_FRAMES = 200
RECOVERY_SHARE = 0.3
OTHER = "other"
VICTIM = "victim"
WORN_SHARE = 0.12
PLANS = ("the producer goes on", "another comes", "nobody comes", "the producer begins anew")


class Point:
    """One directory, in which the gateway dies once at a step of a transaction."""

    def __init__(
        self, report: Report, seed: str, step: Step, *, is_commit: bool, plan: str
    ) -> None:
        self._report = report
        self._plan = plan
        self._step = step
        self._is_commit = is_commit
        self._random = Random(seed)
        self._world = World(report, self._random)
        self._victim: Producer
        self._other: Producer
        self._open: Transaction
        """What the other producer has open."""
        self._one: Transaction | None = None
        """The transaction that is struck."""

    async def run(self) -> None:
        """Live, die, recover and judge. Raises WrongError."""
        world, random = self._world, self._random
        async with world.living():
            await world.start()
            if is_worn := random.random() < WORN_SHARE:
                await Producer(world, VICTIM).begin()
            else:
                await self._live()
        if is_worn:
            self._report.count("points_with_worn_epochs")
            await world.wear_out(VICTIM)
            async with world.living():
                await self._live()
        if not world.kill.has_hit:
            raise WrongError("the crash did not come at its step")
        self._report.count(f"{'commit' if self._is_commit else 'abort'}: {self._step.value}")
        while random.random() < RECOVERY_SHARE:
            async with world.living(crash_at=random.randint(1, 60)):
                await world.new_id()
                for _ in range(20):
                    await world.pass_time(0.01)
            self._report.count("crashes_in_recovery", world.kill.has_hit)
        async with world.living():
            await self._go_on()
            await self._judge()
        if random.random() < 0.2:
            async with world.living():
                await world.new_id()
                await self._judge()

    async def _live(self) -> None:
        world, random = self._world, self._random
        await world.new_id()
        self._victim = Producer(world, VICTIM)
        self._other = Producer(world, OTHER)
        for producer in (self._victim, self._other):
            await producer.begin()
            for _ in range(random.randint(0, 2)):
                await self._whole(producer)
        if random.random() < 0.7:
            self._victim = self._victim.successor()
            if self._step is not Step.ID:
                await self._victim.begin()
                for _ in range(random.choice((0, 0, 1))):
                    await self._whole(self._victim)
        elif self._step is Step.ID:
            self._victim = self._victim.successor()
        self._open = self._other.plan(is_commit=True, has_offsets=random.random() < 0.5)
        await self._other.perform(self._open, len(self._open.steps) - 1)
        if random.random() < 0.4:
            await world.gateway.checkpoint()
        await world.write_plain()
        await world.look()
        if self._step is not Step.ID:
            await self._send_stale(2, when="before the restart")
        await self._strike()

    async def _strike(self) -> None:
        """Let the crash come at its step."""
        world, victim, step = self._world, self._victim, self._step
        if step is Step.ID:
            world.kill.arm(step, VICTIM)
            await victim.begin()
            await world.until_dead()
        has_offsets = step.needs_offsets or self._random.random() < 0.6
        self._one = one = victim.plan(is_commit=self._is_commit, has_offsets=has_offsets)
        victim.hides_answer = self._random.random() < 0.4
        await self._until_idle()
        before = 0
        if step in {Step.BATCH, Step.BETWEEN_BATCHES}:
            batches = [at for at, (kind, _) in enumerate(one.steps) if kind == "batch"]
            before = self._random.choice(batches[step is Step.BETWEEN_BATCHES :])
        elif step.is_decided or step is Step.ASKED:
            before = len(one.steps) - 1
        await victim.perform(one, before)
        if before:
            await world.look()
        world.kill.arm(step, VICTIM)
        await victim.perform(one)
        await world.until_dead()

    async def _until_idle(self) -> None:
        """Wait until what has ended is complete: nothing changes any more by itself.

        Time stands still: nothing but the disk is waited for.
        """
        transactions = self._world.gateway.transactions
        for _ in range(5_000):
            rows = [transactions.describe(one) for one in (VICTIM, OTHER)]
            if not any(row is not None and row.state in DECIDED for row in rows):
                return
            await asyncio.sleep(0.001)
        raise WrongError("HANGING: the transaction before is never complete")

    async def _whole(self, producer: Producer) -> None:
        """Have one transaction from its beginning to its end."""
        one = producer.plan(
            is_commit=self._random.random() < 0.6, has_offsets=self._random.random() < 0.5
        )
        await producer.perform(one)

    async def _send_stale(self, count: int, *, when: str, is_held: bool = False) -> None:
        current = (self._victim,) if is_held else (self._victim, self._other)
        if not is_held:
            await self._until_idle()
        await send_stale(self._world, current, count, when=when, is_held=is_held)

    # --- after the crash -------------------------------------------------------------------------

    async def _go_on(self) -> None:
        world, victim, one = self._world, self._victim, self._one
        await world.new_id()
        plan = self._plan
        self._report.count(f"plan: {plan}")
        victim.hides_answer = False
        await self._count_unheard()
        await world.look()
        if one is not None and (self._step.is_decided or plan != PLANS[0]):
            one.fate = one.is_commit if self._step.is_decided else False
        if plan == PLANS[0]:
            if one is None:
                await victim.begin()
                one = victim.plan(is_commit=self._is_commit, has_offsets=True)
            await victim.perform(one)
        elif plan == PLANS[1]:
            self._victim = victim.successor()
            await self._victim.begin()
        elif plan == PLANS[3]:
            await self._begin_anew()
        else:
            self._open.fate = False
            await world.until_stable(TIMEOUT_MS / 1_000 + CATCH_UP_S)
            self._other.lapse(is_commit=False)
            await self._find_victim()
        if self._open.fate is None:
            await self._send_stale(1, when="after the restart")
            await self._other.perform(self._open)
        await world.until_stable(CATCH_UP_S)
        await self._send_stale(2, when="after the restart")
        await world.look()
        await self._go_on_as_ever()

    async def _count_unheard(self) -> None:
        """See whether the batch at which the crash came is stored: nobody was told."""
        if self._step is Step.BATCH and self._one is not None:
            _, batch = self._one.steps[self._one.done]
            found = await self._world.read(batch.partition, 0)
            is_stored = any(value == batch.values[0] for _, value in found)
            self._report.count("batches_stored_and_not_answered", is_stored)

    async def _find_victim(self) -> None:
        """Nobody has come for the transactional id: say what has become of it meanwhile."""
        is_worn = self._victim.producer[1] >= LAST_EPOCH
        if self._one is None or self._step is Step.PARTITION or is_worn:
            # It may not have been stored; or the epoch is one that nobody is given.
            self._victim = self._victim.successor()
            await self._victim.begin()
        elif not self._step.is_decided:
            self._victim.lapse(is_commit=False)
        elif self._victim.is_version_2 and not self._one.is_told:
            self._victim.lapse(is_commit=self._is_commit)

    async def _begin_anew(self) -> None:
        """Go on after an error under the same id; what was open is aborted."""
        victim, one, before = self._victim, self._one, self._victim.producer
        await victim.begin(goes_on=True)
        if self._step is Step.PARTITION:
            # There may have been nothing to abort: then no end can be asked for again.
            await victim.begin(goes_on=True)
        elif one is None or one.is_told or victim.producer[0] != before[0]:
            return
        elif victim.is_version_2 or not self._step.is_decided:
            victim.ended = before, bool(one.fate)

    async def _go_on_as_ever(self) -> None:
        """Have one more transaction, with stale frames at its sides."""
        world, random = self._world, self._random
        if self._plan == PLANS[2] or random.random() < 0.3:
            self._victim = self._victim.successor()
            await self._victim.begin()
        await world.write_plain()
        last = self._victim.plan(is_commit=True, has_offsets=True)
        await self._victim.perform(last, len(last.steps) - 1)
        await self._send_stale(2, when="in the next transaction")
        await world.look()
        world.kill.hold()
        await self._victim.perform(last)
        await self._send_stale(1, when="while markers are written", is_held=True)
        world.kill.release()
        await world.until_stable(CATCH_UP_S)
        await self._send_stale(1, when="after the next transaction")

    async def _judge(self) -> None:
        await self._world.until_stable(CATCH_UP_S)
        await self._world.judge()


async def run_points(
    report: Report, seed: int, steps: Sequence[Step], each: int, until: str | None = None
) -> None:
    """Take so many points of each step, for commit and abort; none after `until` was found."""
    for number in range(each):
        for step in steps:
            for is_commit in (True, False):
                name = f"{seed}/{step.name}/{'commit' if is_commit else 'abort'}/{number}"
                failures = report.failure_count
                # In turn, another one for the same step each time.
                plan = PLANS[(report.counts["points"] + number) % len(PLANS)]
                point = Point(report, name, step, is_commit=is_commit, plan=plan)
                try:
                    await point.run()
                except WrongError as wrong:
                    report.fail(str(wrong))
                except Exception:  # noqa: BLE001 - whatever it is, it is a finding
                    report.fail(traceback.format_exc(limit=-6))
                report.count("points")
                if report.failure_count > failures:
                    report.failures.append(f"  ^ point {name}")
                if until is not None and any(until in failure for failure in report.failures):
                    return


# --- controls -------------------------------------------------------------------------------------


@contextmanager
def hasty_decisions() -> Iterator[None]:
    """A gateway that answers a decision before it is stored."""
    apply = KeptState.apply

    async def hasty_apply(self: KeptState, changes: Sequence[Change]) -> None:
        if any(
            one.kind == TRANSACTION and one.value and decode_row(one.value).state in DECIDED
            for one in changes
        ):
            asyncio.get_running_loop().call_later(
                0.2, lambda: asyncio.ensure_future(apply(self, changes))
            )
        else:
            await apply(self, changes)

    with replaced(KeptState, "apply", hasty_apply):
        yield


@contextmanager
def missing_markers() -> Iterator[None]:
    """A gateway that forgets the last partition of a transaction."""
    tell = Ender.tell

    def tell_some(self: Ender, where: PartitionKey | str, ending: Ending) -> Completion[Any] | None:
        return None if where == max(ending.places) else tell(self, where, ending)

    with replaced(Ender, "tell", tell_some):
        yield


@contextmanager
def lost_decisions() -> Iterator[None]:
    """A gateway that does not go on with what was decided before it died."""
    with replaced(TransactionTable, "resume", lambda *_: None):
        yield


@contextmanager
def believed_epochs() -> Iterator[None]:
    """A gateway that lets every epoch of a producer end and extend transactions."""
    with replaced(machine, "_check", lambda *_: NO_ERROR):
        yield


@contextmanager
def forgotten_aborts() -> Iterator[None]:
    """A gateway that does not note which transactions were aborted."""
    with replaced(AbortedIndex, "add", lambda *_: None):
        yield


@contextmanager
def shown_offsets() -> Iterator[None]:
    """A gateway that commits a group's offsets however the transaction ends."""
    end_in_group = Ownership.end_in_group

    def commit_in_group(
        self: Ownership, group_id: str, producer_id: int, producer_epoch: int, _: bool
    ) -> Completion[ErrorCode]:
        return end_in_group(self, group_id, producer_id, producer_epoch, is_commit=True)

    with replaced(Ownership, "end_in_group", commit_in_group):
        yield


@contextmanager
def hasty_readers() -> Iterator[None]:
    """A gateway whose readers of committed records read what is open, too."""
    view = Partition.view
    with replaced(Partition, "view", lambda self, _=0: view(self)):
        yield


CONTROLS: dict[Callable[[], AbstractContextManager[None]], tuple[str, Step]] = {
    hasty_decisions: ("COMMIT LOST", Step.ANSWERED),
    missing_markers: ("HANGING: stable up to", Step.COMPLETE),
    lost_decisions: ("HANGING: stable up to", Step.DECIDED),
    believed_epochs: ("ACCEPTED: end", Step.COMPLETE),
    forgotten_aborts: ("ABORTED read", Step.COMPLETE),
    shown_offsets: ("COMMIT INVENTED", Step.MARKED),
    hasty_readers: ("PRECOMMITTED read", Step.ASKED),
    hasty_ids: ("HANDED OUT TWICE", Step.BATCH),
}
"""What must be said of each within 40 points at a step."""


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("transaction-kills", seed)
    each = KILLS_A_STEP if full else 1
    asyncio.run(run_points(report, seed, list(Step), each))
    for step in Step:
        report.require(f"commit: {step.value}", each)
        report.require(f"abort: {step.value}", each)
    points = 2 * len(Step) * each
    for plan in PLANS:
        report.require(f"plan: {plan}", points // len(PLANS))
    report.require("kills", points // 4)
    report.require("power_losses", points // 4)
    report.require("producers_of_version_1", points // 2)
    report.require("producers_of_version_2", points // 2)
    report.require("stale_frames", STALE_FRAMES if full else 20)
    if full:
        report.require("crashes_in_recovery", points // 10)
        report.require("points_with_worn_epochs", points // 20)
        report.require("ends_repeated", 20)
        report.require("batches_stored_and_not_answered", KILLS_A_STEP // 2)
        for kind in KINDS:
            report.require(f"stale: {kind}", STALE_FRAMES // 10)
        for where in ("an old", "a new"):
            report.require(f"stale on {where} connection", STALE_FRAMES // 4)
        for which in ("its own", "another"):
            report.require(f"stale in {which} version", STALE_FRAMES // 4)
        report.require("stale from before the restart", STALE_FRAMES // 4)
        report.require("stale while markers are written", STALE_FRAMES // 10)
    for broken, (found, step) in CONTROLS.items():
        control = Report(broken.__name__, seed)
        with broken():
            asyncio.run(run_points(control, seed, [step], 20, found))
        report.expect_alarm(control, found)
    return report


if __name__ == "__main__":
    main(run)
