"""Writers that take over from each other while their requests are delayed, lost and doubled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kgw.backend.seaweedmq.chain import Chain, NotWriterError
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.chain.settling import NotStoredError
from kgw.backend.seaweedmq.filer import FilerError, OutcomeUnknownError
from kgw.errors import StorageError
from kgw.testing.filer import CallKind, FilerRequest, MemoryFiler
from tests.backend.seaweedmq.chains import (
    ENTRY_BYTES,
    SMALL,
    AnswersFirst,
    TakesDoubtForFailure,
    WithoutChanges,
    WithoutEpoch,
    World,
    all_marks,
    is_rising,
    listed_files,
    payload,
    stored,
)
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kgw.backend.seaweedmq.chain.marks import Marks
    from kgw.completion import Completion

CHANGES = (CallKind.CREATE, CallKind.UPDATE, CallKind.DELETE)


class Writer:
    """One that takes over, and then appends until another does."""

    def __init__(self, filer: MemoryFiler, taking_over: asyncio.Task[Chain]) -> None:
        self.filer = filer
        self.taking_over = taking_over
        self.next_offset: int | None = None
        self.tasks: list[asyncio.Task[Any]] = []
        self.is_lost = False

    @property
    def chain(self) -> Chain | None:
        """The chain, once it is taken over."""
        task = self.taking_over
        if not task.done() or task.exception() is not None:
            return None
        return task.result()


class ChainOfWriters(RuleBasedStateMachine):
    """The model is a list of what was acknowledged, and a set of what was refused."""

    filer_class: type[MemoryFiler] = MemoryFiler
    refuse_after_s = 2.0
    is_sound = True
    """False once something does not hold: then nothing that follows means anything."""

    # --- begin and end ---------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Make an empty chain, and take it over."""
        self.loop = asyncio.new_event_loop()
        self.world = World(SMALL._replace(refuse_after_s=self.refuse_after_s))
        self.writers: list[Writer] = []
        self.late: list[FilerRequest] = []
        self.number = 0
        self.acknowledged: list[int] = []
        self.dropped: set[int] = set()
        self.refused: set[int] = set()
        self.offsets: dict[int, int] = {}
        self.marks: dict[str, Marks] = {}
        self.epoch = 0
        """Of the newest writer that has been told that it is."""
        self.wait(self.make())
        self.take_over(slow_look_ups=False)
        self.take_its_course()

    async def make(self) -> None:
        await (await self.world.create(await self.world.filer())).aclose()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something to its end."""
        return self.loop.run_until_complete(work)

    def go_on(self) -> None:
        """Let all that can happen happen."""
        self.wait(turns(25))
        for writer in self.writers:
            if writer.chain is not None:
                self.epoch = max(self.epoch, writer.chain.epoch)

    # --- writers ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.writers) < 3)
    @rule(slow_look_ups=st.booleans())
    def take_over(self, *, slow_look_ups: bool) -> None:
        """Have another one begin to take over."""

        async def begin() -> Writer:
            filer = self.filer_class(self.world.store, self.world.clock)
            await filer.open()
            filer.hold_all(*CHANGES, *([CallKind.LOOK_UP] if slow_look_ups else []))
            return Writer(filer, asyncio.ensure_future(self.world.take_over(filer)))

        self.writers.append(self.wait(begin()))
        self.go_on()

    @rule(which=st.integers(0, 3), count=st.integers(1, 4), is_smooth=st.booleans())
    def append(self, which: int, count: int, *, is_smooth: bool) -> None:
        """Submit payloads of a writer that believes that it is one."""
        writer, chain = self.writing(which)
        if chain is None:
            return
        if writer.next_offset is None:
            writer.next_offset = chain.end_offset

        async def append() -> None:
            for _ in range(count):
                assert writer.next_offset is not None
                self.number += 1
                number = self.number
                self.offsets[number] = writer.next_offset
                completion = chain.append(payload(number, writer.next_offset))
                if completion.is_done:
                    self.told(writer, chain, number, completion)
                    break
                writer.next_offset += 1
                completion.when_done(partial(self.told, writer, chain, number))

        self.wait(append())
        self.go_on()
        if is_smooth:
            self.take_its_course()

    def told(self, writer: Writer, chain: Chain, number: int, completion: Completion[None]) -> None:
        """Note what a payload came to."""
        if completion.error is None:
            self.acknowledged.append(number)
            return
        writer.next_offset = chain.end_offset
        if not isinstance(completion.error, OutcomeUnknownError):
            assert isinstance(completion.error, StorageError)
            self.refused.add(number)

    @rule(which=st.integers(0, 3))
    def roll(self, which: int) -> None:
        """Begin another file behind what was submitted."""
        writer, chain = self.writing(which)
        if chain is not None:
            if writer.next_offset is None:
                writer.next_offset = chain.end_offset
            self.start(writer, self.rolled(chain, writer.next_offset))

    async def rolled(self, chain: Chain, base_offset: int) -> None:
        await chain.roll(base_offset)

    @rule(which=st.integers(0, 3))
    def drop(self, which: int) -> None:
        """Drop the first file of two."""
        writer, chain = self.writing(which)
        if chain is not None and len(chain.files) > 1:
            first = chain.files[0]
            self.dropped.update(
                number for number, offset in self.offsets.items() if offset < first.end_offset
            )
            self.start(writer, chain.drop_files(1, b"dropped"))

    @rule(which=st.integers(0, 3), count=st.integers(1, 3))
    def replace(self, which: int, count: int) -> None:
        """Put one file with the same entries in the place of the first ones."""
        writer, chain = self.writing(which)
        if chain is not None and len(chain.files) > 1:
            self.start(writer, self.rewritten(chain, count))

    async def rewritten(self, chain: Chain, count: int) -> None:
        sources = chain.files[: min(count, len(chain.files) - 1)]
        numbers: list[int] = []
        for file in sources:
            await chain.load(file)
            numbers += [
                int(data[place : place + ENTRY_BYTES])
                for data in [await chain.read(file, number) for number in range(len(file.chunks))]
                for place in range(0, len(data), ENTRY_BYTES)
            ]
        payloads = [payload(number, self.offsets[number]) for number in numbers]
        written = await chain.write_file(payloads, sources[0].begun_ms)
        if list(chain.files[: len(sources)]) == list(sources) and len(sources) < len(chain.files):
            await chain.replace_files(0, len(sources), [written], b"replaced")
        else:
            await chain.discard_files([written])

    @rule(which=st.integers(0, 3))
    def save_detail(self, which: int) -> None:
        """Change the leader entry for its owner."""
        writer, chain = self.writing(which)
        if chain is not None:
            self.start(writer, chain.save_detail(b"%d" % self.number))

    @precondition(lambda self: self.writers)
    @rule(which=st.integers(0, 3))
    def kill(self, which: int) -> None:
        """End a writer in the middle of everything; its requests are still on their way."""
        writer = self.writers.pop(which % len(self.writers))
        self.wait(self.end(writer))

    def writing(self, which: int) -> tuple[Writer, Chain | None]:
        if not self.writers:
            self.take_over(slow_look_ups=False)
            self.take_its_course()
        writer = self.writers[-1 - which % len(self.writers)]
        return writer, writer.chain

    def start(self, writer: Writer, work: Coroutine[Any, Any, None]) -> None:
        async def start() -> None:
            writer.tasks.append(asyncio.ensure_future(self.allowed(work)))

        self.wait(start())
        self.go_on()

    async def allowed(self, work: Coroutine[Any, Any, None]) -> None:
        # ValueError: what was to be dropped has been.
        with suppress(StorageError, ValueError):
            await work

    async def end(self, writer: Writer) -> None:
        writer.taking_over.cancel()
        await turns()
        if not writer.taking_over.cancelled() and writer.chain is not None:
            await writer.chain.aclose(self.world.clock.monotonic_s())
        for task in writer.tasks:
            task.cancel()
        await turns()
        self.late += [one for one in writer.filer.held if one.call.kind in CHANGES]

    # --- the way to the filer --------------------------------------------------------------------

    @property
    def requests(self) -> list[tuple[list[FilerRequest], FilerRequest]]:
        """What nobody has answered, each with the list that it is in."""
        return [
            (writer.filer.held, request)
            for writer in self.writers
            for request in writer.filer.held
            if not request.is_answered
        ]

    def fate(self, which: int, fate: str) -> None:
        requests = self.requests
        if not requests:
            return
        held, request = requests[which % len(requests)]

        async def act() -> None:
            if request.call.kind in CHANGES:
                self.late.append(request)
            if fate == "answer":
                request.answer()
            elif fate == "deliver":
                request.deliver()
            elif fate == "lose answer":
                request.deliver()
                request.lose()
            elif fate == "lose":
                request.lose()
            elif not request.deliveries:
                # It was never sent, and never arrives.
                request.refuse()
                held.remove(request)
                if request in self.late:
                    self.late.remove(request)

        self.wait(act())
        self.go_on()

    @rule(which=st.integers(0, 9))
    def answer(self, which: int) -> None:
        """Let a request arrive, and its answer."""
        self.fate(which, "answer")

    @rule()
    def take_its_course(self) -> None:
        """Let everything be answered for a while."""
        for _ in range(8):
            for _ in range(len(self.requests)):
                self.fate(0, "answer")
            self.world.clock.advance(0.2)
            self.go_on()

    @rule(which=st.integers(0, 9))
    def lose_answer(self, which: int) -> None:
        """Let a request arrive, and the caller wait in vain."""
        self.fate(which, "lose answer")

    @rule(which=st.integers(0, 9))
    def deliver(self, which: int) -> None:
        """Let a request arrive, and its answer take its time."""
        self.fate(which, "deliver")

    @rule(which=st.integers(0, 9))
    def lose(self, which: int) -> None:
        """Let the caller wait in vain."""
        self.fate(which, "lose")

    @rule(which=st.integers(0, 9))
    def refuse(self, which: int) -> None:
        """Let a request not even be sent."""
        self.fate(which, "refuse")

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 99))
    def arrive_late(self, which: int) -> None:
        """Let a request arrive that was lost, or arrive again."""

        async def act() -> None:
            self.late[which % len(self.late)].deliver()

        self.wait(act())
        self.go_on()

    @rule(seconds=st.sampled_from([0.1, 3.0, 12.0]))
    def pass_time(self, seconds: float) -> None:
        """Let pauses end, and what waits grow old."""
        self.world.clock.advance(seconds)
        self.go_on()

    # --- what has to hold ------------------------------------------------------------------------

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        """It is there once, in order, and every chunk that is named exists."""
        if not hasattr(self, "loop"):
            return
        self.check()

    def check(self) -> None:
        self.is_sound = False
        store = self.world.store
        found = [one.number for one in stored(store)]
        assert len(found) == len(set(found)), "stored twice"
        assert not self.refused & set(found), "stored after it was refused"
        missing = set(self.acknowledged) - set(found) - self.dropped
        assert not missing, "acknowledged and lost"
        assert is_rising([self.offsets[number] for number in found]), "offsets given twice"
        kept = [number for number in self.acknowledged if number in found]
        assert [number for number in found if number in set(kept)] == kept, "out of order"
        self.is_sound = True

    @invariant()
    def no_stale_writer_changes_anything(self) -> None:
        """Entries only go forward, and those that an older writer leaves stay as they are.

        A file that is not listed is nobody's: one that was removed stands there again when its
        creation arrives a second time, and then takes what else arrives again.
        """
        if not hasattr(self, "loop"):
            return
        self.is_sound = False
        marks = all_marks(self.world.store)
        for name in (LEADER, *(file.name for file in listed_files(self.world.store))):
            now, before = marks[name], self.marks.get(name)
            if before is None or now == before:
                continue
            assert (before.epoch, before.changes) < (now.epoch, now.changes), "it went back"
            assert now.epoch >= self.epoch_then, "a writer that was replaced has changed it"
        self.is_sound = True
        self.marks = marks
        self.epoch_then = self.epoch

    epoch_then = 0

    @invariant()
    def a_writer_ends_for_another_only(self) -> None:
        """Nothing that happens on the way is taken for damage."""
        for writer in getattr(self, "writers", ()):
            if writer.chain is not None and writer.chain.failure is not None:
                assert isinstance(writer.chain.failure, NotWriterError), "taken for damage"
            elif writer.taking_over.done() and writer.taking_over.exception() is not None:
                refused = (NotWriterError, NotStoredError, FilerError)
                assert isinstance(writer.taking_over.exception(), refused), "taken for damage"

    def teardown(self) -> None:
        """Let the last writer find everything, and what arrives afterwards change nothing."""
        if not hasattr(self, "loop"):
            return
        try:
            if self.is_sound:
                self.wait(self.finish())
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            self.wait(asyncio.sleep(0))
            self.loop.close()

    async def finish(self) -> None:
        for writer in self.writers:
            await self.end(writer)
        self.writers = []
        found = await self.world.numbers()
        self.check()
        self.no_stale_writer_changes_anything()
        for request in reversed(self.late):
            request.deliver()
        for request in self.late:
            request.deliver()
        self.check()
        # Where it does not hold, the next writer may find marks that it cannot make sense of.
        self.no_stale_writer_changes_anything()
        assert found == await self.world.numbers()


TestChainOfWriters = pytest.mark.slow(pytest.mark.timeout(120)(ChainOfWriters.TestCase))
TestChainOfWriters.settings = settings(max_examples=100, stateful_step_count=40)

CONTROLS = settings(
    max_examples=2_000,
    stateful_step_count=60,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("faulty", "found"),
    [
        (WithoutEpoch, "it went back|replaced"),
        (WithoutChanges, "it went back|lost"),
        (AnswersFirst, "lost"),
        (TakesDoubtForFailure, "refused|removed"),
    ],
)
def test_the_machine_finds_what_is_planted(faulty: type[MemoryFiler], found: str) -> None:
    """Each of the rules, taken away, loses or repeats something, and the machine sees it."""

    class Faulty(ChainOfWriters):
        filer_class = faulty
        refuse_after_s = 0.0

    with pytest.raises(AssertionError, match=found):
        run_state_machine_as_test(Faulty, settings=CONTROLS)


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_many_and_long_histories() -> None:
    """The same, until there is little left that was not tried."""
    run_state_machine_as_test(
        ChainOfWriters,
        settings=settings(
            max_examples=5_000,
            stateful_step_count=80,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
