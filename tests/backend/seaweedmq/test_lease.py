"""Gateways over one filer in memory: who leads, when the other takes over, who is told."""

from __future__ import annotations

from asyncio import create_task, to_thread, wait
from typing import TYPE_CHECKING

import pytest

from kgw.backend.lease import LeaseStatus
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.lease.lease import FilerLease
from kgw.backend.seaweedmq.lease.run_files import RunFiles
from kgw.config import Listener, Node
from kgw.errors import DataDirectoryError
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from tests.turns import turns

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.slow

LEASE_MS = 10_000
DIRECTORY = "/topics/.kgw/kafka"
STANDBY, LEADING = LeaseStatus.STANDBY, LeaseStatus.LEADING
UNCONFIRMED, LOST = LeaseStatus.UNCONFIRMED, LeaseStatus.LOST


def node(number: int) -> Node:
    """Return how a gateway is reached."""
    return Node(number, {"PLAINTEXT": Listener("PLAINTEXT", f"kgw{number}.example", 9092)})


class Side:
    """One gateway's lease, its way to the filer, and what it was told."""

    def __init__(self, number: int, store: FilerStore, clock: ManualClock) -> None:
        self.node = node(number)
        self.filer = MemoryFiler(store, clock)
        self.lease = FilerLease(self.filer, clock, DIRECTORY, LEASE_MS, holder=bytes([number]) * 16)
        self.told: list[tuple[LeaseStatus, Node | None]] = []
        self.lease.when_changed.append(
            lambda: self.told.append((self.lease.status, self.lease.leader))
        )
        self.acquiring: Task[None] | None = None

    def expect(self, status: LeaseStatus) -> None:
        """Check where it stands: a plain comparison would be narrowed by the type checker."""
        assert status is self.lease.status


class Pair:
    """Two gateways of a namespace."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FilerStore()
        self.one, self.two = (Side(number, self.store, self.clock) for number in (1, 2))

    async def begin(self, side: Side) -> None:
        """Let a gateway try, and go on as far as it gets."""
        await side.filer.open()
        side.acquiring = create_task(side.lease.acquire())
        await turns(20)
        if side.lease.status is LEADING:
            side.lease.advertise(side.node)
            await turns(20)

    async def advance(self, seconds: float) -> None:
        """Let time pass, a quarter of a second at a time."""
        for _ in range(round(seconds * 4)):
            self.clock.advance(0.25)
            await turns(20)

    async def aclose(self) -> None:
        """End both gateways."""
        for side in (self.one, self.two):
            if side.acquiring is not None:
                side.acquiring.cancel()
            await side.lease.aclose()

    @property
    def statuses(self) -> tuple[LeaseStatus, LeaseStatus]:
        return self.one.lease.status, self.two.lease.status


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """The first one leads, the second stands by."""
    pair = Pair()
    await pair.begin(pair.one)
    await pair.begin(pair.two)
    assert (LEADING, STANDBY) == pair.statuses
    yield pair
    await pair.aclose()


async def test_a_leader_renews_and_the_other_stands_by(pair: Pair) -> None:
    """For as long as it does; the second knows how the first is reached."""
    await pair.advance(60)
    assert (LEADING, STANDBY) == pair.statuses
    assert [(LEADING, None)] == pair.one.told
    assert node(1) == pair.two.lease.leader
    assert 18 <= pair.one.filer.count(CallKind.UPDATE) <= 24


async def test_a_killed_leader_is_replaced_when_its_lease_has_ended(pair: Pair) -> None:
    """Not before, and within a second after."""
    pair.one.filer.is_away = True
    await pair.advance(8)
    pair.two.expect(STANDBY)
    await pair.advance(3.5)
    pair.two.expect(LEADING)


async def test_a_leader_that_ends_in_order_is_replaced_at_once(pair: Pair) -> None:
    """It gives the lease back: within the second in which the other one looks."""
    await pair.one.lease.aclose()
    await pair.advance(1.25)
    pair.two.expect(LEADING)


async def test_who_has_lost_the_lease_does_not_give_it_back(pair: Pair) -> None:
    """It is another's: whoever starts now stands by, and the other one goes on leading."""
    pair.two.lease.take_over()
    await turns(20)
    pair.two.expect(LEADING)
    pair.one.expect(LEADING)  # as far as it knows
    await pair.one.lease.aclose()
    three = Side(3, pair.store, pair.clock)
    await pair.begin(three)
    three.expect(STANDBY)
    await pair.advance(20)
    assert (LEADING, STANDBY) == (pair.two.lease.status, three.lease.status)
    assert three.acquiring is not None
    three.acquiring.cancel()
    await three.lease.aclose()


async def test_the_one_who_was_away_is_told_who_leads(pair: Pair) -> None:
    """It stops answering when its lease ends, and learns of the other when the filer is back."""
    pair.one.filer.is_away = True
    await pair.advance(10)
    pair.one.expect(UNCONFIRMED)
    await pair.advance(5)
    pair.two.expect(LEADING)
    pair.two.lease.advertise(pair.two.node)
    pair.one.filer.is_away = False
    await pair.advance(1.5)
    pair.one.expect(LOST)
    assert [(LEADING, None), (UNCONFIRMED, None), (LOST, node(2))] == pair.one.told
    await pair.one.lease.aclose()
    await pair.advance(20)
    pair.two.expect(LEADING)


async def test_never_do_both_lead(pair: Pair) -> None:
    """The first has stopped answering before the second begins."""
    pair.one.filer.is_away = True
    for _ in range(60):
        await pair.advance(0.25)
        assert (LEADING, LEADING) != pair.statuses


async def test_a_filer_that_is_away_for_longer_than_the_lease(pair: Pair) -> None:
    """Nobody leads meanwhile; once it is back, the first to come does, and one of them only."""
    for side in (pair.one, pair.two):
        side.filer.is_away = True
    await pair.advance(60)
    assert (UNCONFIRMED, STANDBY) == pair.statuses
    pair.one.filer.is_away = False
    await pair.advance(1.5)
    pair.one.expect(LEADING)
    pair.two.filer.is_away = False
    await pair.advance(30)
    assert (LEADING, STANDBY) == pair.statuses
    assert [LEADING, UNCONFIRMED, LEADING] == [one for one, _ in pair.one.told]


async def test_renewals_that_get_lost(pair: Pair) -> None:
    """Requests or answers: looked up, sent again, and no lease is lost by it."""
    for _ in range(6):
        pair.one.filer.lose_request(CallKind.UPDATE)
        await pair.advance(5)
        pair.one.filer.lose_answer(CallKind.UPDATE)
        await pair.advance(5)
    assert (LEADING, STANDBY) == pair.statuses
    assert [(LEADING, None)] == pair.one.told
    for late in pair.one.filer.held:
        late.deliver()
    await pair.advance(10)
    assert (LEADING, STANDBY) == pair.statuses


async def test_a_renewal_without_an_answer_is_given_up(pair: Pair) -> None:
    """After the time to the next one: it is looked up then."""
    pair.one.filer.hold_next(CallKind.UPDATE)
    await pair.advance(12)
    assert (LEADING, STANDBY) == pair.statuses
    assert [(LEADING, None)] == pair.one.told


async def test_a_take_over_on_demand(pair: Pair) -> None:
    """The stand-by leads at once, and the leader learns of it at its next renewal."""
    pair.two.lease.take_over()
    await turns(20)
    pair.two.expect(LEADING)
    await pair.advance(3)
    pair.one.expect(LOST)
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(1.25)
    assert [(LEADING, None), (LOST, None), (LOST, node(2))] == pair.one.told


async def test_a_start_that_takes_over() -> None:
    """A gateway that is told so before it begins does not wait either."""
    pair = Pair()
    await pair.begin(pair.one)
    pair.two.lease.take_over()
    await pair.begin(pair.two)
    pair.two.expect(LEADING)
    assert [(LEADING, None)] == pair.two.told
    await pair.aclose()


async def test_a_doubt_is_looked_into_at_once(pair: Pair) -> None:
    """What a chain says that somebody else writes to it."""
    pair.two.lease.take_over()
    await turns(20)
    pair.one.lease.doubt()
    await turns(20)
    pair.one.expect(LOST)


async def test_both_start_at_once() -> None:
    """One has the entry first; the other stands by, also when its answer is lost."""
    pair = Pair()
    for side in (pair.one, pair.two):
        await side.filer.open()
        side.filer.hold_next(CallKind.CREATE)
        side.acquiring = create_task(side.lease.acquire())
    await turns(20)
    (first,), (second,) = pair.one.filer.held, pair.two.filer.held
    second.deliver()
    second.lose()
    first.answer()
    await pair.advance(2)
    assert (STANDBY, LEADING) == pair.statuses
    await pair.aclose()


async def test_a_removed_entry_is_made_anew(pair: Pair) -> None:
    """By the leader or the stand-by, whoever comes first; the other one stands by."""
    await pair.advance(2.5)
    await pair.one.filer.delete(DIRECTORY, "gateway")
    await pair.advance(30)
    assert 1 == pair.statuses.count(LEADING)


async def test_an_entry_of_somebody_else_is_left_alone() -> None:
    """A start says where it is, and what helps."""
    pair = Pair()
    await pair.one.filer.open()
    await pair.one.filer.create(DIRECTORY, FilerEntry("gateway", content=b"mine"))
    with pytest.raises(DataDirectoryError, match=r"/topics/\.kgw/kafka: gateway is not a lease"):
        await pair.one.lease.acquire()


async def test_a_leader_whose_entry_cannot_be_read_says_so_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the entry and what helps, confirms nothing by it, and leads on when it is gone."""
    pair.store.put(DIRECTORY, FilerEntry("gateway", content=b"mine"))
    await pair.advance(11)
    pair.one.expect(UNCONFIRMED)
    (why,) = (
        record.__dict__["kgw_fields"]["why"]
        for record in caplog.records
        if "cannot be looked after" in record.getMessage()
    )
    assert why.startswith(f"{DIRECTORY}: ")
    assert why.endswith("; removed, it is made anew")
    pair.store.delete(DIRECTORY, "gateway", is_recursive=False)
    await pair.advance(2)
    pair.one.expect(LEADING)


async def test_a_standby_without_a_filer_waits(pair: Pair) -> None:
    """And takes nothing over that it has not seen."""
    pair.two.filer.is_away = True
    await pair.advance(30)
    pair.two.expect(STANDBY)
    pair.two.filer.is_away = False
    await pair.advance(30)
    assert (LEADING, STANDBY) == pair.statuses


# --- stand-bys ---


def entries(pair: Pair) -> list[str]:
    """Return the names of what is beside the lease."""
    return pair.store.list_names(DIRECTORY, "standby-", "")


async def test_the_leader_knows_who_stands_by(pair: Pair) -> None:
    """From its next renewal on, for as long as the other one says so, and is told once."""
    assert () == pair.one.lease.standbys
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(3.25)
    assert [node(2)] == list(pair.one.lease.standbys)
    await pair.advance(60)
    assert [node(2)] == list(pair.one.lease.standbys)
    assert [(LEADING, None)] * 2 == pair.one.told
    assert 1 == len(entries(pair))


async def test_several_stand_by(pair: Pair) -> None:
    """Each has an entry of its own."""
    three = Side(3, pair.store, pair.clock)
    await pair.begin(three)
    for side in (three, pair.two):
        side.lease.advertise(side.node)
    await pair.advance(3.25)
    assert [node(2), node(3)] == list(pair.one.lease.standbys)
    assert three.acquiring is not None
    three.acquiring.cancel()
    await three.lease.aclose()
    await pair.advance(3.25)
    assert [node(2)] == list(pair.one.lease.standbys)


async def test_a_standby_that_was_killed_is_forgotten(pair: Pair) -> None:
    """After a lease and two renewals, with its entry; and listed again if it was not gone."""
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(3.25)
    pair.two.filer.is_away = True
    await pair.advance(8)
    assert [node(2)] == list(pair.one.lease.standbys)
    await pair.advance(8)
    assert [] == list(pair.one.lease.standbys)
    assert [] == entries(pair)
    pair.two.filer.is_away = False
    await pair.advance(7)
    assert [node(2)] == list(pair.one.lease.standbys)


async def test_a_standby_that_leads_stands_by_no_more(pair: Pair) -> None:
    """Nor does it name itself as one."""
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(3.25)
    pair.one.filer.is_away = True
    await pair.advance(12)
    pair.two.expect(LEADING)
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(3.25)
    assert [] == list(pair.two.lease.standbys)
    assert [] == entries(pair)


async def test_a_new_leader_lists_others_at_once(pair: Pair) -> None:
    """It need not wait for a renewal: a client that asks it first is told of them."""
    three = Side(3, pair.store, pair.clock)
    await pair.begin(three)
    three.lease.advertise(three.node)
    await pair.advance(3.25)
    pair.two.lease.take_over()
    await pair.advance(0.25)
    pair.two.expect(LEADING)
    assert [node(3)] == list(pair.two.lease.standbys)
    assert three.acquiring is not None
    three.acquiring.cancel()
    await three.lease.aclose()


async def test_one_node_id_is_no_address_of_two(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Both gateways say so, the stand-by once in its log; clients are told of the leader alone."""
    pair.two.lease.advertise(node(2)._replace(node_id=1))
    await pair.advance(10)
    assert [] == list(pair.one.lease.standbys)
    assert len(pair.one.lease.problems) == len(pair.two.lease.problems) == 1
    said = [one.getMessage() for one in caplog.records if "same node id" in one.getMessage()]
    assert 1 == len(said)
    pair.two.lease.advertise(node(2))
    await pair.advance(4)
    assert [node(2)] == list(pair.one.lease.standbys)
    assert () == pair.one.lease.problems == pair.two.lease.problems


async def test_a_filer_that_does_not_say_who_stands_by(pair: Pair) -> None:
    """The lease is renewed nevertheless, and those who were known stay so."""
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(3.25)
    pair.one.filer.hold_next(CallKind.LIST)
    await pair.advance(30)
    pair.one.expect(LEADING)
    assert [node(2)] == list(pair.one.lease.standbys)


async def test_a_standby_that_cannot_say_so_takes_over_all_the_same(pair: Pair) -> None:
    """What it says of itself holds nothing up."""
    pair.two.filer.hold_next(CallKind.PUT)
    pair.two.lease.advertise(pair.two.node)
    pair.one.filer.is_away = True
    await pair.advance(11.5)
    pair.two.expect(LEADING)


async def test_what_is_no_standby_is_left_alone(pair: Pair) -> None:
    """And told of."""
    pair.store.put(DIRECTORY, FilerEntry("standby-00", content=b"mine"))
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(30)
    assert [node(2)] == list(pair.one.lease.standbys)
    (problem,) = pair.one.lease.problems
    assert "standby-00 is not a stand-by of kgw" in problem
    assert pair.store.look_up(DIRECTORY, "standby-00") is not None


# --- a leader that is about to stop ---


async def test_an_offered_lease_is_taken_and_never_held_by_both(pair: Pair) -> None:
    """The leader goes on until the stand-by has taken it: hardly anybody notices."""
    pair.one.lease.offer()
    leading = []
    for _ in range(30):
        pair.clock.advance(0.05)
        await turns(20)
        assert (LEADING, LEADING) != pair.statuses
        leading.append(LEADING in pair.statuses)
    pair.two.expect(LEADING)
    pair.one.expect(LOST)
    # Up to the look of the stand-by it has led; then there is nobody for a moment.
    assert leading.count(False) <= 8
    pair.two.lease.advertise(pair.two.node)
    await pair.advance(0.25)
    assert node(2) == pair.one.lease.leader


async def test_a_leader_that_cannot_see_its_offer_stops_to_believe(pair: Pair) -> None:
    """Another one may have taken it, whatever is left of the lease."""
    pair.one.lease.offer()
    await pair.advance(0.25)
    pair.one.expect(LEADING)
    pair.one.filer.is_away = True
    await pair.advance(0.5)
    pair.one.expect(UNCONFIRMED)


async def test_a_late_look_confirms_from_when_it_was_sent(pair: Pair) -> None:
    """The stand-by may have taken the lease since the filer has looked."""
    pair.two.filer.is_away = True
    pair.one.lease.offer()
    await pair.advance(0.25)
    pair.one.filer.hold_next(CallKind.LOOK_UP, times=2)
    while not pair.one.filer.held:
        pair.clock.advance(0.05)
        await turns(20)
    look = pair.one.filer.held[0]
    look.deliver()
    for _ in range(3):
        pair.clock.advance(0.05)
        await turns(20)
    pair.one.expect(LEADING)
    look.answer()
    for _ in range(4):
        pair.clock.advance(0.05)
        await turns(20)
    status = pair.one.lease.status
    for request in pair.one.filer.held:
        request.answer()
    assert UNCONFIRMED is status


async def test_an_offer_without_an_answer_may_have_been_made(pair: Pair) -> None:
    """The leader stops to believe at once, not when its lease ends."""
    pair.one.filer.hold_next(CallKind.UPDATE)
    pair.one.lease.offer()
    for _ in range(10):
        pair.clock.advance(0.05)
        await turns(20)
    (offer,) = pair.one.filer.held
    assert UNCONFIRMED is pair.one.lease.status
    offer.deliver()
    offer.lose()
    await pair.advance(2)
    assert (LOST, LEADING) == pair.statuses


async def test_an_offer_that_nobody_takes(pair: Pair) -> None:
    """The leader leads on until it is closed, which gives the lease back."""
    pair.two.filer.is_away = True
    pair.one.lease.offer()
    for _ in range(20):
        await pair.advance(1)
        pair.one.expect(LEADING)
    await pair.one.lease.aclose()
    pair.two.filer.is_away = False
    await pair.advance(1.5)
    pair.two.expect(LEADING)


# --- gateways of one machine ---


class Machine:
    """A machine with gateways, each with a process and a file system; one filer is shared."""

    def __init__(self, clock: ManualClock, store: FilerStore, directory: Path) -> None:
        self.clock, self.store, self.directory = clock, store, directory / "files"
        self.directory.mkdir()
        self.boot_id_file = directory / "boot_id"
        self.boot_id_file.write_text("of all machines\n")
        self.filers: list[MemoryFiler] = []

    async def start(self, number: int) -> tuple[FilerLease, RunFiles]:
        """Start a gateway and wait until it leads or stands by."""
        self.filers.append(filer := MemoryFiler(self.store, self.clock))
        await filer.open()
        run_files = RunFiles(self.directory, self.boot_id_file)
        lease = FilerLease(
            filer,
            self.clock,
            DIRECTORY,
            LEASE_MS,
            holder=bytes([number]) * 16,
            run_files=run_files,
        )
        acquiring = create_task(lease.acquire())
        said: list[LeaseStatus] = []
        lease.when_changed.append(lambda: said.append(lease.status))
        while not said:
            # It asks in a thread.
            await to_thread(int)
        if lease.status is STANDBY:
            acquiring.cancel()
        await wait([acquiring])
        return lease, run_files

    @property
    def files(self) -> list[str]:
        return [path.name for path in self.directory.iterdir()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One with no gateway yet."""
    return Machine(ManualClock(), FilerStore(), tmp_path)


async def test_who_is_started_again_on_its_machine_does_not_wait(machine: Machine) -> None:
    """However often: the lock of a process that was killed is free, and its file goes."""
    for number in range(1, 4):
        lease, run_files = await machine.start(number)
        assert LEADING is lease.status
        assert 1 == len(machine.files)
        run_files.unlock()  # as the system does when a process ends


async def test_a_live_gateway_of_the_same_machine_is_waited_for(machine: Machine) -> None:
    """Its lock is taken; an orderly stop leaves no file."""
    first, _ = await machine.start(1)
    second, _ = await machine.start(2)
    assert (LEADING, STANDBY) == (first.status, second.status)
    await second.aclose()
    await first.aclose()
    assert [] == machine.files


async def test_other_machines_conclude_nothing(machine: Machine, tmp_path: Path) -> None:
    """Neither a clone, which has the same boot id, nor one whose locks nobody else sees."""
    (tmp_path / "clone").mkdir()
    clone = Machine(machine.clock, machine.store, tmp_path / "clone")
    first, run_files = await machine.start(1)
    second, _ = await clone.start(2)
    assert (LEADING, STANDBY) == (first.status, second.status)
    run_files.unlock()
    clone.directory = machine.directory
    clone.boot_id_file.write_text("of another")
    third, _ = await clone.start(3)
    assert STANDBY is third.status
    for lease in (second, third, first):
        await lease.aclose()


@pytest.mark.parametrize("missing", ["directory", "boot_id_file"])
async def test_where_no_file_can_be_locked_nothing_is_concluded(
    machine: Machine, missing: str
) -> None:
    """The lease is taken, and waited for."""
    setattr(machine, missing, machine.directory / "missing")
    first, _ = await machine.start(1)
    second, _ = await machine.start(2)
    assert (LEADING, STANDBY) == (first.status, second.status)
    await second.aclose()
    await first.aclose()


async def test_a_stop_without_a_filer_lets_the_next_start_begin_at_once(machine: Machine) -> None:
    """The lease cannot be given back; the file says that its holder has ended."""
    first, _ = await machine.start(1)
    machine.filers[0].is_away = True
    closing = create_task(first.aclose())
    while not closing.done():
        machine.clock.advance(1)
        await turns(10)
    await closing
    second, _ = await machine.start(2)
    assert LEADING is second.status
    await second.aclose()
    assert [] == machine.files
