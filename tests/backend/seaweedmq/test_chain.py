"""Appends, files, and what the filer does to them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.chain import Chain, ChainOptions, NotWriterError, Payload, Settler
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.chain.marks import NOTE, NOTES, NUMBER
from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryExistsError,
    EntryMissingError,
    FilerError,
    OutcomeUnknownError,
)
from kgw.errors import CorruptionError, StorageError
from kgw.testing.filer import CallKind, MemoryFiler
from tests.backend.seaweedmq.chains import (
    DIRECTORY,
    IDENTITY,
    SMALL,
    World,
    all_marks,
    contents,
    payload,
    stored,
    until,
)
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.completion import Completion

WIDE = ChainOptions(refuse_after_s=10)


async def begun(options: ChainOptions = WIDE, entries: int = 1) -> tuple[World, MemoryFiler, Chain]:
    """Return a chain with some entries, and the filer that it is on, which has counted no call."""
    world = World(options)
    filer = await world.filer()
    chain = await world.create(filer)
    for number in range(entries):
        await chain.append(payload(number, number))
    filer.calls.clear()
    return world, filer, chain


def submit(chain: Chain, *numbers: int) -> list[Completion[None]]:
    """Append payloads whose offsets are their numbers."""
    return [chain.append(payload(number, number)) for number in numbers]


# --- appends ---


async def test_an_append_is_one_upload_and_one_update() -> None:
    """Nothing is asked beforehand."""
    _, filer, chain = await begun()
    await chain.append(payload(1, 1))
    assert [CallKind.UPLOAD, CallKind.UPDATE] == [call.kind for call in filer.calls]
    assert 2 == chain.end_offset


async def test_the_first_append_begins_the_first_file() -> None:
    """A chain that nobody has written to costs its leader entry alone."""
    world, filer, chain = await begun(entries=0)
    assert [LEADER] == list(world.store.directories[DIRECTORY])
    await chain.append(payload(7, 7))
    # Named, made, known to have been made; and then the append's own update.
    assert [
        CallKind.UPLOAD,
        CallKind.UPDATE,
        CallKind.CREATE,
        CallKind.UPDATE,
        CallKind.UPDATE,
    ] == [call.kind for call in filer.calls]
    assert (7, 8) == (chain.files[0].base_offset, chain.end_offset)


async def test_what_gathers_meanwhile_becomes_one_chunk() -> None:
    """One is uploaded while the one before it is entered; the rest waits, and goes together."""
    _, filer, chain = await begun()
    filer.hold_all(CallKind.UPDATE)
    first = submit(chain, 1)
    await turns()
    second = submit(chain, 2)
    await turns()
    rest = submit(chain, *range(3, 20))
    await turns()
    assert [8, 8] == [call.size_bytes for call in filer.calls if call.kind == CallKind.UPLOAD]
    assert (1, 8 * 19) == (filer.count(CallKind.UPDATE), chain.waiting_bytes)
    filer.hold_all()
    filer.held[0].answer()
    for append in (*first, *second, *rest):
        await append
    sizes = [call.size_bytes for call in filer.calls if call.kind == CallKind.UPLOAD]
    assert [8, 8, 8 * 17] == sizes
    assert 3 == filer.count(CallKind.UPDATE)
    assert ([1, 2, 3], 0) == (
        [note.base_offset for note in chain.files[0].notes[1:]],
        chain.waiting_bytes,
    )


async def test_a_chunk_has_a_bound_and_a_payload_is_never_torn() -> None:
    """What is larger than the bound goes alone."""
    _, filer, chain = await begun(WIDE._replace(chunk_bytes=20))
    large = Payload([b"x" * 30, b"y" * 30], 60, 4, 5, 0)
    appends = [*submit(chain, 1, 2, 3), chain.append(large), *submit(chain, 5)]
    for append in appends:
        await append
    sizes = [call.size_bytes for call in filer.calls if call.kind == CallKind.UPLOAD]
    assert [16, 8, 60, 8] == sizes
    assert b"x" * 30 + b"y" * 30 == await chain.read(chain.files[0], 3)


async def test_appends_are_done_in_order_and_not_before_the_update() -> None:
    """Each when its chunk has been entered; by then the end offset has moved."""
    _, filer, chain = await begun()
    filer.hold_all(CallKind.UPDATE)
    told: list[tuple[int, int]] = []

    def tell(number: int, _: object) -> None:
        told.append((number, chain.end_offset))

    for number, append in enumerate(submit(chain, 1, 2, 3), 1):
        append.when_done(partial(tell, number))
    await turns()
    filer.held[0].deliver()
    await turns()
    assert [] == told
    filer.held[0].answer()
    await turns()
    assert [(1, 4), (2, 4), (3, 4)] == told


async def test_too_much_does_not_wait() -> None:
    """It is refused at once, and what was taken before is stored all the same."""
    _, filer, chain = await begun(WIDE._replace(waiting_bytes=20))
    filer.hold_next(CallKind.UPLOAD)
    first = chain.append(Payload([b"x" * 30], 30, 1, 2, 0))
    refused = chain.append(payload(2, 2))
    assert (False, True) == (first.is_done, refused.is_done)
    with pytest.raises(StorageError, match="30 bytes wait"):
        await refused
    await turns()
    filer.held[0].answer()
    await first
    await chain.append(payload(2, 2))


async def test_offsets_follow_each_other() -> None:
    """A mistake of the owner is not stored."""
    _, _, chain = await begun()
    with pytest.raises(ValueError, match="do not follow 1"):
        chain.append(payload(0, 0))
    with pytest.raises(ValueError, match="before 1"):
        await chain.roll(0)
    await chain.append(payload(5, 5))
    assert 6 == chain.end_offset


async def test_how_long_something_waits_can_be_asked() -> None:
    """For health: how long, how much, and why."""

    def health(chain: Chain) -> tuple[float, int, str | None]:
        return chain.stuck_s, chain.waiting_bytes, chain.trouble

    world, filer, chain = await begun()
    assert (0, 0, None) == health(chain)
    filer.is_away = True
    append = chain.append(payload(1, 1))
    await turns()
    world.clock.advance(1)
    await turns()
    assert (1, 8, "the filer cannot be reached") == health(chain)
    filer.is_away = False
    await until(world.clock, append)
    assert (0, 0, None) == health(chain)


# --- faults of the filer ---


async def test_a_lost_answer_is_looked_up() -> None:
    """The chunk is there: nothing is sent again."""
    world, filer, chain = await begun()
    filer.lose_answer(CallKind.UPDATE)
    await chain.append(payload(1, 1))
    assert [CallKind.UPLOAD, CallKind.UPDATE, CallKind.LOOK_UP] == [
        call.kind for call in filer.calls
    ]
    assert [0, 1] == await world.numbers()


async def test_a_lost_request_is_sent_again_under_the_same_condition() -> None:
    """The late one is refused when it arrives; so is what follows it twice."""
    world, filer, chain = await begun()
    filer.lose_request(CallKind.UPDATE)
    append = chain.append(payload(1, 1))
    await turns(30)
    assert not append.is_done
    await until(world.clock, append)
    await chain.append(payload(2, 2))
    with_all = stored(world.store)
    filer.held[0].deliver()
    assert with_all == stored(world.store)
    assert [0, 1, 2] == await world.numbers()


async def test_a_late_request_may_come_before_its_repetition() -> None:
    """Then the repetition is refused, and the payload is done once."""
    world, filer, chain = await begun()
    filer.lose_request(CallKind.UPDATE)
    append = chain.append(payload(1, 1))
    await turns(30)
    filer.held[0].deliver()
    await until(world.clock, append)
    assert [0, 1] == await world.numbers()


async def test_nothing_is_refused_while_its_outcome_is_open() -> None:
    """However long the filer is away: what may arrive has not failed, nor has what is behind."""
    world, filer, chain = await begun()
    filer.lose_request(CallKind.UPDATE)
    appends = submit(chain, 1, 2)
    await turns(30)
    filer.is_away = True
    appends += submit(chain, 3)
    for _ in range(60):
        world.clock.advance(10)
        await turns(30)
    assert not any(append.is_done for append in appends)
    filer.held[0].deliver()
    filer.is_away = False
    await until(world.clock, appends[-1])
    assert [0, 1, 2, 3] == await world.numbers()


@pytest.mark.slow
async def test_nothing_is_refused_while_requests_get_lost() -> None:
    """However long each look finds nothing: any of them may still arrive, and is stored then."""
    world, filer, chain = await begun()
    filer.lose_request(CallKind.UPDATE, times=1_000)
    append = chain.append(payload(1, 1))
    for _ in range(60):
        world.clock.advance(10)
        await turns(30)
    assert (False, True) == (append.is_done, len(filer.held) > 1)
    filer.held[0].deliver()
    await until(world.clock, append)
    assert [0, 1] == await world.numbers()


async def test_what_was_never_sent_is_refused_in_order_after_a_while() -> None:
    """With all that is behind it; its chunk is removed, and the offsets can be given again."""
    world, filer, chain = await begun(WIDE._replace(chunk_bytes=8))
    filer.fail_next(CallKind.UPDATE, times=1_000)
    told: list[int] = []

    def tell(number: int, _: object) -> None:
        told.append(number)

    appends = submit(chain, 1, 2, 3)
    for number, append in enumerate(appends, 1):
        append.when_done(partial(tell, number))
    for _ in range(4):
        await turns(30)
        world.clock.advance(2.4)
    await turns(30)
    assert [] == told
    world.clock.advance(2)
    await turns(30)
    assert [1, 2, 3] == told
    for append in appends:
        with pytest.raises(StorageError, match="refused"):
            await append
    assert (1, 0, None) == (chain.end_offset, chain.waiting_bytes, chain.failure)
    assert world.store.named_chunks == set(world.store.chunks)


async def test_a_chain_goes_on_after_a_refusal() -> None:
    """The next append is a new one; offsets that were refused are free."""
    world, filer, chain = await begun()
    filer.is_away = True
    refused = chain.append(payload(1, 1))
    with pytest.raises(StorageError, match="nothing could be uploaded"):
        await until(world.clock, refused)
    filer.is_away = False
    await chain.append(payload(2, 1))
    assert [0, 2] == await world.numbers()


async def test_uploads_are_tried_again() -> None:
    """Whatever came of the first one: no entry names it."""
    world, filer, chain = await begun()
    filer.fail_next(CallKind.UPLOAD)
    filer.lose_answer(CallKind.UPLOAD)
    await until(world.clock, chain.append(payload(1, 1)))
    assert 3 == filer.count(CallKind.UPLOAD)
    assert [0, 1] == await world.numbers()


async def test_a_filer_that_refuses_what_it_should_take_is_asked_again() -> None:
    """The entry is as it was: nobody else has been there."""
    world, filer, chain = await begun()
    filer.fail_next(CallKind.UPDATE, ConditionFailedError("why ever"))
    await until(world.clock, chain.append(payload(1, 1)))
    assert [0, 1] == await world.numbers()


async def test_a_file_that_is_gone_ends_the_chain() -> None:
    """It is not made again: what was in it would be lost in silence."""
    world, _, chain = await begun()
    world.store.delete(DIRECTORY, chain.files[0].name, is_recursive=False)
    with pytest.raises(StorageError, match="it is gone"):
        await chain.append(payload(1, 1))
    assert chain.failure is not None
    assert not isinstance(chain.failure, NotWriterError)
    refused = chain.append(payload(1, 1))
    assert refused.error is chain.failure
    with pytest.raises(CorruptionError, match="may have held records"):
        await world.take_over(await world.filer())


async def test_an_entry_that_went_back_ends_the_chain() -> None:
    """A filer whose own store has lost what it had answered for is not written to."""
    world, _, chain = await begun()
    name = chain.files[0].name
    before = world.store.directories[DIRECTORY][name]
    await chain.append(payload(1, 1))
    world.store.directories[DIRECTORY][name] = before
    with pytest.raises(CorruptionError, match="not as this writer left it"):
        await chain.append(payload(2, 2))


async def test_a_chunk_that_may_be_named_is_not_removed() -> None:
    """Where the entry cannot be understood, nobody knows: what it names can be brought back."""
    world, filer, chain = await begun()
    name = chain.files[0].name
    filer.lose_answer(CallKind.UPDATE)
    filer.hold_next(CallKind.LOOK_UP)
    append = chain.append(payload(1, 1))
    await turns(30)
    stored_entry = world.store.directories[DIRECTORY][name]
    world.store.directories[DIRECTORY][name] = stored_entry._replace(extended={})
    filer.held[0].answer()
    with pytest.raises(CorruptionError, match="not written by kgw, or damaged"):
        await append
    await turns(30)
    world.store.directories[DIRECTORY][name] = stored_entry
    assert [0, 1] == await world.numbers()


async def test_a_bug_on_the_way_ends_the_chain() -> None:
    """Nobody waits for ever, and nothing more is stored."""
    _, filer, chain = await begun()
    filer.fail_next(CallKind.UPDATE, ZeroDivisionError())
    appends = submit(chain, 1, 2)
    for append in appends:
        with pytest.raises(StorageError):
            await append
    assert chain.append(payload(1, 1)).is_done


# --- files ---


async def test_a_full_file_is_followed_by_another() -> None:
    """By itself, at so many chunks; of the full one the chunks are not kept in memory."""
    world, _, chain = await begun(SMALL, entries=7)
    assert [(0, 3, 0), (3, 6, 0), (6, 7, 1)] == [
        (file.base_offset, file.end_offset, len(file.chunks)) for file in chain.files
    ]
    names = [file.name for file in chain.files]
    assert sorted(set(names)) == names
    assert list(range(7)) == await world.numbers()


async def test_a_roll_stands_between_what_was_submitted_before_and_after_it() -> None:
    """Whatever is still on its way. An empty file is not rolled."""
    _, filer, chain = await begun()
    filer.hold_next(CallKind.UPDATE)
    before = submit(chain, 1, 2)
    roll = asyncio.ensure_future(chain.roll(3))
    await turns()
    after = submit(chain, 3, 4)
    await turns()
    filer.held[0].answer()
    for append in (*before, *after):
        await append
    await roll
    assert [(0, 3), (3, 5)] == [(file.base_offset, file.end_offset) for file in chain.files]
    await chain.roll(5)
    await chain.roll(5)
    assert [(0, 3), (3, 5), (5, 5)] == [(file.base_offset, file.end_offset) for file in chain.files]


async def test_first_files_are_dropped_with_a_detail_in_one_change() -> None:
    """Then they are removed, with their chunks; never the active one."""
    world, filer, chain = await begun(SMALL, entries=7)
    await chain.drop_files(2, b"starts at 6")
    await turns()
    assert [CallKind.UPDATE, CallKind.DELETE, CallKind.DELETE] == [
        call.kind for call in filer.calls
    ]
    assert {LEADER, chain.files[0].name} == set(world.store.directories[DIRECTORY])
    assert world.store.named_chunks == set(world.store.chunks)
    with pytest.raises(ValueError, match="followed by others"):
        await chain.drop_files(1, b"")
    other = await world.take_over(await world.filer())
    assert (b"starts at 6", 6, 7) == (other.detail, other.files[0].base_offset, other.end_offset)


async def test_nobody_waits_until_files_are_removed() -> None:
    """A filer that takes long over it keeps no change waiting; the end waits for it."""
    world, filer, chain = await begun(SMALL, entries=10)
    filer.hold_all(CallKind.DELETE)
    await chain.drop_files(1, b"")
    await chain.drop_files(1, b"")
    await turns()
    assert 1 == len(filer.held)
    closing = asyncio.ensure_future(chain.aclose())
    for number in range(2):
        await turns()
        assert not closing.done()
        filer.held[number].answer()
    await closing
    assert 3 == len(world.store.directories[DIRECTORY])


async def test_what_could_not_be_removed_is_with_the_next_files() -> None:
    """Also by another writer: the leader entry knows them."""
    world, filer, chain = await begun(SMALL, entries=7)
    first = chain.files[0].name
    filer.fail_next(CallKind.DELETE)
    await chain.drop_files(1, b"")
    await turns()
    assert first in world.store.directories[DIRECTORY]
    other = await world.take_over(await world.filer())
    await other.drop_files(1, b"")
    await turns()
    assert {LEADER, other.files[0].name} == set(world.store.directories[DIRECTORY])
    await other.save_detail(b"")
    filer.calls.clear()
    last = await world.take_over(filer)
    await last.discard_files([])
    assert 0 == filer.count(CallKind.DELETE)


async def test_files_are_replaced_in_one_change() -> None:
    """By one that nobody saw before it was named; order and offsets stay."""
    world, _, chain = await begun(SMALL, entries=8)
    detail = b"compacted"
    written = await chain.write_file([payload(1, 1), payload(5, 5)], begun_ms=17)
    assert list(range(8)) == [one.number for one in stored(world.store)]
    await chain.replace_files(0, 2, [written], detail)
    assert [written, *chain.files[1:]] == list(chain.files)
    assert [b"%08d" % number for number in (1, 5, 6, 7)] == await contents(chain)
    await chain.append(payload(8, 8))
    assert [1, 5, 6, 7, 8] == await world.numbers()
    assert world.store.named_chunks == set(world.store.chunks)
    assert 3 == len(world.store.directories[DIRECTORY])


async def test_a_replacement_that_does_not_come_leaves_nothing() -> None:
    """Given up, failed half-way, or killed: the next files that are removed take it along."""
    world, filer, chain = await begun(SMALL, entries=4)
    written = await chain.write_file([payload(1, 1)], begun_ms=17)
    await chain.discard_files([written])
    assert 3 == len(world.store.directories[DIRECTORY])
    filer.fail_next(CallKind.UPLOAD, FilerError("full"))
    with pytest.raises(FilerError, match="full"):
        await chain.write_file([payload(1, 1)], begun_ms=17)
    await chain.write_file([payload(1, 1)], begun_ms=17)
    await chain.aclose(world.clock.monotonic_s())
    other = await world.take_over(await world.filer())
    await other.drop_files(1, b"")
    await turns()
    assert 2 == len(world.store.directories[DIRECTORY])
    assert world.store.named_chunks == set(world.store.chunks)
    assert [3] == await world.numbers()


async def test_a_file_that_is_being_written_is_not_removed_by_others() -> None:
    """Retention runs beside compaction."""
    world, _, chain = await begun(SMALL, entries=7)
    written = await chain.write_file([payload(4, 4)], begun_ms=17)
    await chain.drop_files(1, b"")
    await chain.replace_files(0, 1, [written], b"")
    assert [4, 6] == await world.numbers()


async def test_a_file_that_is_named_meanwhile_is_not_removed() -> None:
    """Though it was unwanted when the removal of others began."""
    world, filer, chain = await begun(SMALL, entries=10)
    filer.fail_next(CallKind.DELETE)
    await chain.drop_files(1, b"")
    written = await chain.write_file([payload(4, 4)], begun_ms=17)
    filer.hold_next(CallKind.DELETE)
    removing = asyncio.ensure_future(chain.discard_files([]))
    await turns()
    await chain.replace_files(0, 1, [written], b"")
    filer.held[0].answer()
    await removing
    assert [4, 6, 7, 8, 9] == await world.numbers()


async def test_a_file_whose_naming_is_on_its_way_is_not_removed() -> None:
    """Though who asked for it was cancelled, and gave the file up."""
    world, filer, chain = await begun(SMALL, entries=4)
    written = await chain.write_file([payload(1, 1)], begun_ms=17)
    filer.hold_next(CallKind.UPDATE)
    replacing = asyncio.ensure_future(chain.replace_files(0, 1, [written], b""))
    await turns()
    replacing.cancel()
    await turns()
    await chain.discard_files([written])
    filer.held[0].answer()
    await chain.aclose()
    assert [1, 3] == await world.numbers()


async def test_a_writer_that_was_replaced_removes_nothing() -> None:
    """Its last change came before the take-over: what it gives up is part of the chain now."""
    world, filer, chain = await begun(SMALL, entries=4)
    written = await chain.write_file([payload(1, 1)], begun_ms=17)
    filer.lose_answer(CallKind.UPDATE)
    filer.hold_next(CallKind.LOOK_UP)
    replacing = asyncio.ensure_future(chain.replace_files(0, 1, [written], b""))
    await turns()
    other = await world.take_over(await world.filer())
    filer.held[0].answer()
    with pytest.raises(NotWriterError):
        await replacing
    await chain.discard_files([written])
    assert [b"00000001", b"00000003"] == await contents(other)


async def test_a_file_that_was_given_up_is_not_named() -> None:
    """It is being removed."""
    _, _, chain = await begun(SMALL, entries=4)
    written = await chain.write_file([payload(1, 1)], begun_ms=17)
    await chain.discard_files([written])
    with pytest.raises(ValueError, match="kept"):
        await chain.replace_files(0, 1, [written], b"")


async def test_a_file_whose_creation_arrives_after_its_removal_is_nobodys() -> None:
    """It stands there with a list of chunks that are gone; no leader entry names it."""
    world, filer, chain = await begun(SMALL, entries=4)
    filer.hold_next(CallKind.CREATE)
    writing = asyncio.ensure_future(chain.write_file([payload(1, 1)], begun_ms=17))
    await turns()
    (creation,) = filer.held
    creation.answer()
    written = await writing
    await chain.replace_files(0, 1, [written], b"")
    await chain.drop_files(1, b"")
    creation.deliver()
    assert written.name in world.store.directories[DIRECTORY]
    assert written.name not in [file.name for file in chain.files]
    await chain.append(payload(4, 4))
    assert [3, 4] == await world.numbers()


async def test_requests_that_arrive_again_for_a_removed_file_reach_nobody() -> None:
    """Its creation makes it anew, its appends are taken by it; the chain does not name it."""
    world, filer, chain = await begun(SMALL, entries=0)
    filer.hold_all(CallKind.CREATE, CallKind.UPDATE)
    append = chain.append(payload(0, 0))
    for _ in range(4):
        await turns()
        filer.held[-1].answer()
    await append
    filer.hold_all()
    old = chain.files[0].name
    await chain.roll(1)
    other = await world.take_over(await world.filer())
    await other.append(payload(1, 1))
    await other.drop_files(1, b"")
    for request in filer.held:
        request.deliver()
    assert 1 == len(world.store.directories[DIRECTORY][old].chunks)
    assert all_marks(world.store)[old].epoch < other.epoch
    await other.append(payload(2, 2))
    assert [1, 2] == await world.numbers()


async def test_a_file_is_not_written_without_bounds() -> None:
    """Nothing, or more than a file holds, is a mistake."""
    _, _, chain = await begun(SMALL)
    with pytest.raises(ValueError, match="0 chunks"):
        await chain.write_file([], 0)
    with pytest.raises(ValueError, match="4 chunks"):
        await chain.write_file([payload(number, number) for number in range(10)], 0)


async def test_a_change_goes_on_when_who_asked_for_it_is_gone() -> None:
    """Its outcome is known before the next one is made."""
    world, filer, chain = await begun()
    filer.hold_next(CallKind.UPDATE)
    saving = asyncio.ensure_future(chain.save_detail(b"first"))
    await turns()
    saving.cancel()
    second = asyncio.ensure_future(chain.save_detail(b"second"))
    await turns()
    assert b"" == chain.detail
    filer.held[0].answer()
    await second
    assert b"second" == chain.detail
    assert b"second" == (await world.take_over(await world.filer())).detail


async def test_a_change_that_cannot_be_sent_is_refused() -> None:
    """After a while; the chain goes on."""
    world, filer, chain = await begun()
    filer.is_away = True
    with pytest.raises(StorageError, match="reached"):
        await until(world.clock, chain.save_detail(b"lost"))
    filer.is_away = False
    await chain.save_detail(b"kept")
    assert b"kept" == chain.detail


# --- reading ---


async def test_sealed_files_are_loaded_when_they_are_needed() -> None:
    """And may be forgotten again; the active one is always known."""
    world, _, _ = await begun(SMALL, entries=7)
    filer = await world.filer()
    chain = await world.take_over(filer)
    first, active = chain.files[0], chain.files[-1]
    assert (False, True) == (first.is_loaded, active.is_loaded)
    filer.calls.clear()
    await chain.load(first)
    await chain.load(first)
    assert 1 == filer.count(CallKind.LOOK_UP)
    assert [0, 1, 2] == [note.base_offset for note in first.notes]
    chain.unload(first)
    chain.unload(active)
    assert (False, [], True) == (first.is_loaded, first.chunks, active.is_loaded)
    assert [b"%08d" % number for number in range(7)] == await contents(chain)


async def test_a_chunk_that_is_gone_is_named_by_file_and_offset() -> None:
    """Behind it, reading can go on."""
    world, _, chain = await begun(SMALL, entries=5)
    file = chain.files[0]
    await chain.load(file)
    world.store.delete_chunks([file.chunks[1]])
    with pytest.raises(CorruptionError, match=f"{file.name}: chunk 1, from offset 1") as error:
        await chain.read(file, 1)
    assert 2 == error.value.end_offset
    assert b"00000002" == await chain.read(file, 2)


async def test_a_sealed_file_that_is_gone_or_changed_is_damage() -> None:
    """Unless it has been dropped."""
    world, _, _ = await begun(SMALL, entries=10)
    chain = await world.take_over(await world.filer())
    first, second, third, _ = chain.files
    names = world.store.directories[DIRECTORY]
    names[first.name] = names[second.name]._replace(name=first.name)
    with pytest.raises(CorruptionError, match=first.name):
        await chain.load(first)
    await chain.drop_files(1, b"")
    await turns()
    with pytest.raises(StorageError, match="not part of the chain"):
        await chain.load(first)
    world.store.delete(DIRECTORY, second.name, is_recursive=False)
    with pytest.raises(CorruptionError, match=f"{second.name}: it is gone"):
        await chain.load(second)
    await chain.load(third)


@pytest.mark.parametrize("lost", ["bytes", "chunk", "offsets"])
async def test_a_sealed_file_that_is_shorter_than_the_leader_entry_says_is_damage(
    lost: str,
) -> None:
    """In bytes or in offsets: it is never read as one that always was so short."""
    world, _, chain = await begun(SMALL, entries=7)
    file = chain.files[0]
    names = world.store.directories[DIRECTORY]
    entry = names[file.name]
    *before, last = entry.chunks
    extended = dict(entry.extended)
    if lost == "bytes":
        entry = entry._replace(chunks=(*before, last._replace(size_bytes=last.size_bytes - 3)))
    elif lost == "chunk":
        extended[NOTES] = extended[NOTES][: -NOTE.size]
        entry = entry._replace(chunks=tuple(before))
    else:
        extended["offset_max"] = NUMBER.pack(file.end_offset - 2)
    names[file.name] = entry._replace(extended=extended)
    chain.unload(file)
    with pytest.raises(CorruptionError, match=file.name):
        await chain.load(file)
    assert not file.is_loaded


# --- begin and end ---


async def test_a_chain_is_created_once() -> None:
    """The second to create it is told; a lost answer is not a second."""
    world = World()
    filer = await world.filer()
    filer.lose_answer(CallKind.CREATE)
    chain = await world.create(filer, b"detail")
    assert (1, IDENTITY, b"detail", 0, []) == (
        chain.epoch,
        chain.ledger.identity,
        chain.detail,
        chain.end_offset,
        list(chain.files),
    )
    with pytest.raises(EntryExistsError):
        await world.create(filer)
    with pytest.raises(ValueError, match="empty identity"):
        await Chain.create(Settler(filer, world.clock, "/other"), b"", b"")


async def test_a_stop_waits_for_what_was_submitted() -> None:
    """And takes nothing any more."""
    world, _, chain = await begun()
    appends = submit(chain, 1, 2, 3)
    await chain.aclose()
    assert all(append.is_done and append.error is None for append in appends)
    with pytest.raises(StorageError, match="closed"):
        await chain.append(payload(4, 4))
    assert [0, 1, 2, 3] == await world.numbers()


async def test_a_stop_with_a_deadline_says_what_nobody_knows() -> None:
    """What may have been sent is unknown, what was behind it is refused; nothing more is sent."""
    world, filer, chain = await begun()
    filer.hold_all(CallKind.UPDATE)
    doubtful = submit(chain, 1)
    await turns()
    behind = submit(chain, 2)
    saving = asyncio.ensure_future(chain.save_detail(b"x"))
    await turns()
    closing = asyncio.ensure_future(chain.aclose(world.clock.monotonic_s() + 5))
    await turns()
    assert not closing.done()
    world.clock.advance(5)
    await closing
    with pytest.raises(OutcomeUnknownError):
        await doubtful[0]
    with pytest.raises(StorageError, match="before it was stored"):
        await behind[0]
    with pytest.raises(asyncio.CancelledError):
        await saving
    filer.held[0].deliver()
    assert [0, 1] == await world.numbers()


# --- another writer ---


async def test_another_writer_finds_everything_and_shuts_the_first_one_out() -> None:
    """With one look-up and one update for the leader entry, and for the active file."""
    world, _, chain = await begun(SMALL, entries=5)
    filer = await world.filer()
    other = await world.take_over(filer)
    assert [CallKind.LOOK_UP, CallKind.UPDATE] * 2 == [call.kind for call in filer.calls]
    assert (2, 5) == (other.epoch, other.end_offset)
    lost: list[NotWriterError] = []
    chain.on_lost = lost.append
    marks = all_marks(world.store)
    appends = submit(chain, 5, 6)
    for append in appends:
        with pytest.raises(NotWriterError, match="from epoch 1"):
            await append
    for change in (chain.save_detail(b""), chain.roll(7), chain.drop_files(1, b"")):
        with pytest.raises(NotWriterError):
            await change
    await chain.aclose()
    assert [chain.failure] == lost
    assert marks == all_marks(world.store)
    assert world.store.named_chunks == set(world.store.chunks)
    await other.append(payload(7, 5))
    assert [0, 1, 2, 3, 4, 7] == await world.numbers()


async def test_a_change_of_the_leader_entry_tells_what_waits_that_another_leads() -> None:
    """Though nothing of it was sent yet."""
    world, filer, chain = await begun()
    await world.take_over(await world.filer())
    filer.hold_next(CallKind.UPLOAD)
    append = chain.append(payload(1, 1))
    await turns()
    with pytest.raises(NotWriterError):
        await chain.save_detail(b"")
    with pytest.raises(NotWriterError):
        await append
    filer.held[0].answer()
    await chain.aclose()
    assert world.store.named_chunks == set(world.store.chunks)


async def test_what_came_before_the_take_over_is_acknowledged() -> None:
    """Its answer was lost, the other has it in its list; what is behind it fails."""
    world, filer, chain = await begun()
    filer.lose_answer(CallKind.UPDATE)
    filer.hold_next(CallKind.LOOK_UP)
    first = submit(chain, 1)
    await turns()
    second = submit(chain, 2)
    await turns()
    other = await world.take_over(await world.filer())
    filer.held[0].answer()
    await first[0]
    with pytest.raises(NotWriterError):
        await second[0]
    assert 2 == other.end_offset
    assert [0, 1] == await world.numbers()


async def test_what_comes_behind_the_take_over_is_refused() -> None:
    """The request was on its way for long; its chunk is removed once that is known."""
    world, filer, chain = await begun()
    filer.lose_request(CallKind.UPDATE)
    filer.hold_next(CallKind.LOOK_UP)
    append = submit(chain, 1)
    await turns()
    await world.take_over(await world.filer())
    assert world.store.named_chunks < set(world.store.chunks)
    filer.held[1].answer()
    with pytest.raises(NotWriterError):
        await append[0]
    await chain.aclose()
    assert world.store.named_chunks == set(world.store.chunks)
    filer.held[0].deliver()
    assert [0] == await world.numbers()


async def test_a_file_that_was_named_and_not_made_is_made_by_the_next_writer() -> None:
    """The creation of the old one comes too late then; or first, and is found."""
    for is_late in (True, False):
        world, filer, chain = await begun()
        filer.hold_next(CallKind.CREATE)
        roll = asyncio.ensure_future(chain.roll(1))
        await turns()
        (creation,) = filer.held
        if not is_late:
            creation.deliver()
        other = await world.take_over(await world.filer())
        if is_late:
            creation.deliver()
        creation.lose()
        with pytest.raises(NotWriterError):
            await until(world.clock, roll)
        await other.append(payload(1, 1))
        assert [(0, 1), (1, 2)] == [(file.base_offset, file.end_offset) for file in other.files]
        assert [0, 1] == await world.numbers()


async def test_the_old_writer_may_append_until_the_last_moment() -> None:
    """The list that counts is the one that is there when the epoch is put on it."""
    world, _, chain = await begun()
    filer = await world.filer()
    filer.hold_all(CallKind.UPDATE)
    taking_over = asyncio.ensure_future(world.take_over(filer))
    await turns()
    filer.held[0].answer()
    await turns()
    await chain.append(payload(1, 1))
    filer.hold_all()
    filer.held[1].answer()
    other = await taking_over
    assert 2 == other.end_offset
    assert [0, 1] == await world.numbers()


async def test_the_old_writer_may_roll_meanwhile() -> None:
    """Then the epoch is raised on what it left."""
    world, _, chain = await begun()
    filer = await world.filer()
    filer.hold_next(CallKind.UPDATE)
    taking_over = asyncio.ensure_future(world.take_over(filer))
    await turns()
    await chain.roll(1)
    filer.held[0].answer()
    other = await taking_over
    assert [0, 1] == [file.base_offset for file in other.files]


async def test_of_two_that_take_over_at_the_same_time_one_holds() -> None:
    """The other is told: by the take-over, or by its first change."""
    world, _, _ = await begun()
    filers = [await world.filer() for _ in range(2)]
    found = await asyncio.gather(
        *(world.take_over(filer) for filer in filers), return_exceptions=True
    )
    assert 1 == sum(isinstance(one, Chain) for one in found)
    assert 1 == sum(isinstance(one, NotWriterError) for one in found)


async def test_a_take_over_whose_answer_is_lost_knows_whose_epoch_it_sees() -> None:
    """Both ask for the same one."""
    world, _, _ = await begun()
    first, second = await world.filer(), await world.filer()
    first.lose_answer(CallKind.UPDATE)
    second.lose_request(CallKind.UPDATE)
    found = await asyncio.gather(
        world.take_over(first), world.take_over(second), return_exceptions=True
    )
    assert isinstance(found[0], Chain)
    assert isinstance(found[1], NotWriterError)


async def test_a_take_over_of_what_is_not_there_or_anothers_is_refused() -> None:
    """A chain that cannot be understood is not an empty one."""
    world, filer, chain = await begun()
    with pytest.raises(EntryMissingError):
        await Chain.take_over(Settler(filer, world.clock, "/nowhere"), IDENTITY)
    with pytest.raises(CorruptionError, match="another's"):
        await Chain.take_over(Settler(filer, world.clock, DIRECTORY), b"orders-1")
    names = world.store.directories[DIRECTORY]
    leader = names[LEADER]
    names[LEADER] = leader._replace(content=leader.content[:-2])
    with pytest.raises(CorruptionError, match="leader"):
        await world.take_over(filer)
    names[LEADER] = leader
    file = names[chain.files[0].name]
    names[file.name] = file._replace(chunks=())
    with pytest.raises(CorruptionError, match="1 are described"):
        await world.take_over(filer)


async def test_a_leader_entry_that_is_gone_is_a_loss_where_files_are() -> None:
    """They are not taken for nothing, nor is the chain made anew; without files there was none."""
    world, filer, chain = await begun()
    await chain.aclose()
    entry = world.store.directories[DIRECTORY].pop(LEADER)
    with pytest.raises(CorruptionError, match=rf"{LEADER}: it is gone, .* the 1 log files"):
        await world.take_over(filer)
    world.store.directories[DIRECTORY][LEADER] = entry
    assert 1 == (await world.take_over(filer)).end_offset
    world.store.directories[DIRECTORY].clear()
    with pytest.raises(EntryMissingError):
        await world.take_over(filer)


async def test_a_writer_can_find_out_that_it_was_replaced() -> None:
    """By the epoch of the leader entry, once: what waits is told as after a change."""
    world, filer, chain = await begun()
    lost: list[NotWriterError] = []
    chain.on_lost = lost.append
    await chain.ledger.check_epoch()
    await world.take_over(filer)
    for _ in range(2):
        with pytest.raises(NotWriterError):
            await chain.ledger.check_epoch()
    assert 1 == len(lost)
    assert isinstance(chain.failure, NotWriterError)


async def test_a_take_over_gives_up_when_the_filer_is_away() -> None:
    """After a while, with an error: the owner decides what then."""
    world, _, _ = await begun()
    filer = await world.filer()
    filer.is_away = True
    with pytest.raises(FilerError, match="reached"):
        await until(world.clock, world.take_over(filer))
