"""Makes a new chain, or takes over a chain from its writer."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING, NoReturn

from kgw.backend.seaweedmq.chain.files import NotWriterError
from kgw.backend.seaweedmq.chain.leader import LEADER, Leader, leader_entry, read_leader
from kgw.backend.seaweedmq.chain.ledger import Ledger
from kgw.backend.seaweedmq.chain.marks import Marks, read_file, read_marks
from kgw.backend.seaweedmq.chain.names import ENDING
from kgw.backend.seaweedmq.chain.outcome import ChangeOutcome
from kgw.backend.seaweedmq.chain.settling import EntryChange, Settler
from kgw.backend.seaweedmq.filer import EntryExistsError, EntryMissingError
from kgw.errors import CorruptionError

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.filer import Filer, FilerEntry


async def begin(settler: Settler, identity: bytes, detail: bytes, refuse_at_s: float) -> Ledger:
    """Make an empty chain and become its writer with epoch 1."""
    marks = Marks(identity, 1, 1, _new_token())
    leader = Leader(detail=detail)
    entry = leader_entry(leader, marks, settler.clock.wall_ms() // 1000)
    outcome = await settler.settle(EntryChange(entry, None, marks), refuse_at_s)
    if outcome.verdict is not ChangeOutcome.DONE:
        raise EntryExistsError(f"{settler.place(LEADER)} exists")
    return Ledger(settler, leader, marks, [])


async def take_over(settler: Settler, identity: bytes, refuse_at_s: float) -> Ledger:
    """Become the writer by raising the epoch of the leader entry and then of the active file.

    After the first change, the old writer can list no more files. After the second change, it can
    enter no more chunks.
    """
    ledger = await _raise_epoch(settler, identity, refuse_at_s)
    if ledger.files:
        await _seize_active(ledger, refuse_at_s)
    if ledger.files and not ledger.leader.is_active_there:
        await ledger.change_leader(
            lambda leader: leader._replace(is_active_there=True), refuse_at_s
        )
    return ledger


async def _raise_epoch(settler: Settler, identity: bytes, refuse_at_s: float) -> Ledger:
    place = settler.place(LEADER)
    writer = _new_token()
    epoch: int | None = None
    while True:
        found = await settler.look_up(LEADER, refuse_at_s)
        if found is None:
            await check_not_lost(settler.filer, settler.directory)
            raise EntryMissingError(f"{place}: there is no chain")
        leader, before = read_leader(found, place)
        if before.identity != identity:
            raise CorruptionError(f"{place}: it is another's")
        if epoch is not None and before.epoch != epoch:
            raise NotWriterError(f"{place}: another writer took over at the same time")
        epoch = before.epoch
        after = Marks(identity, epoch + 1, before.changes, writer)
        entry = leader_entry(leader, after, settler.clock.wall_ms() // 1000)
        outcome = await settler.settle(EntryChange(entry, before, after), refuse_at_s)
        match outcome.verdict:
            case ChangeOutcome.DONE:
                return Ledger(settler, leader, after, [row.as_file() for row in leader.rows])
            case ChangeOutcome.OVERTAKEN:
                continue  # the old writer has changed it meanwhile
            case _:
                _refuse(outcome.verdict, place)


def _new_token() -> bytes:
    """Return a token that no other writer has."""
    return token_bytes(8)


async def check_not_lost(filer: Filer, directory: str) -> None:
    """Check whether a directory without a leader entry has files.

    A chain has a leader entry before it has a file. Raises CorruptionError when there are files and
    no leader entry; FilerError.
    """
    names = {entry.name async for entry in filer.list_entries(directory, chunks=False)}
    files = sum(1 for name in names if name.endswith(ENDING))
    # If there is a leader entry now, another gateway has just made it.
    if files and LEADER not in names:
        raise CorruptionError(
            f"{directory}/{LEADER}: it is gone, and nothing but it says which of the {files} log "
            "files there belong to the log, and where it begins. Bring it back, from a backup of "
            "the filer's metadata (fs.meta.load in weed shell)"
        )


async def _seize_active(ledger: Ledger, refuse_at_s: float) -> None:
    """Raise the epoch of the active file, although the old writer may still be changing it."""
    settler = ledger.settler
    file = ledger.files[-1]
    place = settler.place(file.name)
    while True:
        found = await settler.look_up(file.name, refuse_at_s)
        if found is not None:
            verdict = await _seize(ledger, found, refuse_at_s)
        elif ledger.leader.is_active_there:
            raise CorruptionError(f"{place}: it is gone, and may have held records")
        else:
            file.is_loaded = True
            verdict = (await ledger.make_file(file, refuse_at_s)).verdict
        if verdict is ChangeOutcome.DONE:
            return
        if verdict is not ChangeOutcome.OVERTAKEN:
            _refuse(verdict, place)


async def _seize(ledger: Ledger, found: FilerEntry, refuse_at_s: float) -> ChangeOutcome:
    settler = ledger.settler
    place = settler.place(found.name)
    before = read_marks(found, place)
    if before.identity != ledger.identity:
        raise CorruptionError(f"{place}: it is another's")
    if before.epoch >= ledger.epoch:
        return ChangeOutcome.TAKEN_OVER
    # The list of chunks must be right before this writer takes it over.
    file = read_file(found, ledger.files[-1], place)
    after = ledger.first_marks._replace(changes=before.changes)
    entry = found._replace(extended={**found.extended, **after.attributes})
    outcome = await settler.settle(EntryChange(entry, before, after), refuse_at_s)
    if outcome.verdict is ChangeOutcome.DONE:
        ledger.files[-1] = file
        ledger.hold_active(after)
    return outcome.verdict


def _refuse(verdict: ChangeOutcome, place: str) -> NoReturn:
    if verdict is ChangeOutcome.TAKEN_OVER:
        raise NotWriterError(f"{place}: another writer took over at the same time")
    if verdict is ChangeOutcome.GONE:
        raise CorruptionError(f"{place}: it was removed while it was taken over")
    raise CorruptionError(f"{place}: it went back to an older state")
