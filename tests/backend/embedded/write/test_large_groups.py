"""Thousands of appends that wait for one sync are written and answered in turns."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.write.flusher import ANSWERED_PER_TURN
from kgw.errors import DiskFullError, StorageError
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.faults import Fault, FaultKind, SimulatedFs
from tests.backend.embedded.driver import JOURNALED, KEY, OTHER_KEY, SETTINGS, TOPIC
from tests.backend.embedded.flushing import append_first, asleep, open_held, until_due

if TYPE_CHECKING:
    from kgw.backend.append import Append
    from kgw.backend.base import PartitionLog
    from kgw.backend.embedded.backend import EmbeddedBackend
    from kgw.backend.embedded.write.append import Append as StoredAppend
    from kgw.backend.embedded.write.flusher import Flusher
    from kgw.backend.embedded.write.written import Written

_COUNT = 3 * ANSWERED_PER_TURN + 1


def _append_many(logs: list[PartitionLog], told: list[Append]) -> list[Append]:
    """Append one record after the other, to the logs in turn; each is noted as it is answered."""
    appends = [
        logs[number % len(logs)].append([make_batch([b"%d" % number])]) for number in range(_COUNT)
    ]
    for append in appends:
        append.when_done(told.append)
    return appends


async def _held_thread(backend: EmbeddedBackend) -> Flusher:
    """Have the thread write everything, as soon as it gets the pen that the test holds."""
    flusher = backend._flusher
    assert flusher is not None
    await asleep(backend)
    flusher.kernel_syncs = None
    assert flusher._pen.acquire(blocking=False)
    return flusher


async def test_many_small_appends_are_written_and_answered_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow sync gathers thousands: no turn writes or answers more than its share of them."""
    backend, syncs = await open_held()
    logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
    for log in logs:
        await append_first(backend, log)
    assert backend._flusher is not None
    # Its time stands still: a busy machine would make a write slow, which the thread takes over.
    backend._flusher._clock = ManualClock()
    written: list[int] = []
    write = backend._store.write

    def note(group: list[StoredAppend], refusal: StorageError | None) -> Written:
        written.append(len(group))
        return write(group, refusal)

    logs[0].append([make_batch([b"before"])])
    await until_due(syncs)
    monkeypatch.setattr(backend._store, "write", note)
    told: list[Append] = []
    appends = _append_many(logs, told)
    while len(told) < _COUNT:
        before = len(told)
        if syncs.done is not None:
            syncs.finish()
            assert len(told) <= before + ANSWERED_PER_TURN
        else:
            await asyncio.sleep(0)
    assert appends == told
    most = JOURNALED.quick_appends
    assert [most, _COUNT - most] == written
    assert not any(append.error for append in appends)
    monkeypatch.undo()
    await backend.aclose()


async def test_a_large_group_of_the_thread_is_answered_in_turns() -> None:
    """In the order in which it was written; whoever is there meanwhile is served."""
    backend, _ = await open_held()
    logs = [await backend.create_partition(key, TOPIC, SETTINGS) for key in (KEY, OTHER_KEY)]
    flusher = await _held_thread(backend)
    told: list[Append] = []
    appends = _append_many(logs, told)
    assert [] == told
    flusher._pen.release()
    turns: list[int] = []
    while len(told) < _COUNT:
        before = len(told)
        await asyncio.sleep(0)
        if len(told) > before:
            turns.append(len(told) - before)
    assert [ANSWERED_PER_TURN] * 3 + [1] == turns
    assert appends == told
    assert [_COUNT // 2 + 1, _COUNT // 2] == [log.high_watermark for log in logs]
    await backend.aclose()


async def test_what_came_of_a_job_is_told_behind_what_was_written_before_it() -> None:
    """A sync of relaxed logs, say, moves the same ends as the answers do."""
    backend, _ = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    flusher = await _held_thread(backend)
    told: list[Append] = []
    _append_many([log], told)
    jobs = [asyncio.ensure_future(backend.run_in_flusher(int)) for _ in range(2)]
    await asyncio.sleep(0)
    flusher._pen.release()
    # The thread does one job, then what is queued, then the other.
    await jobs[1]
    assert _COUNT == len(told)
    await backend.aclose()


async def _begun(told: list[Append]) -> None:
    """Wait until the first are told of, in the turn in which they are."""
    while not told:  # noqa: ASYNC110 - a thread is on its way
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_kill", [False, True])
async def test_a_stop_answers_what_is_still_to_be_told(*, is_kill: bool) -> None:
    """However many there are; nobody waits for ever."""
    backend, _ = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    flusher = await _held_thread(backend)
    told: list[Append] = []
    appends = _append_many([log], told)
    flusher._pen.release()
    await _begun(told)
    assert len(told) < _COUNT
    await (backend.abandon() if is_kill else backend.aclose())
    assert appends == told
    assert not any(append.error for append in appends)


async def test_a_failed_sync_is_told_to_all_in_their_order() -> None:
    """Those behind the group that failed are refused, some at a time as well."""
    backend, syncs = await open_held()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    log.append([make_batch([b"before"])])
    await until_due(syncs)
    told: list[Append] = []
    appends = _append_many([log], told)
    syncs.finish()
    await until_due(syncs)
    syncs.finish(OSError(errno.EIO, "gone"))
    while len(told) < _COUNT:
        before = len(told)
        await asyncio.sleep(0)
        assert len(told) <= before + 2 * ANSWERED_PER_TURN
    assert appends == told
    assert all(isinstance(append.error, StorageError) for append in appends)
    assert 2 == log.high_watermark
    await backend.aclose()


async def test_offsets_of_a_large_group_that_was_refused_are_given_again() -> None:
    """What is appended while some of it is still to be told goes where the first of it was."""
    fs = SimulatedFs()
    backend, _ = await open_held(fs, JOURNALED)
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    await append_first(backend, log)
    flusher = await _held_thread(backend)
    told: list[Append] = []
    appends = _append_many([log], told)
    fs.inject(Fault(FaultKind.ENOSPC, 1))
    flusher._pen.release()
    await _begun(told)
    fs.inject(None)
    assert len(told) < _COUNT
    between = log.append([make_batch([b"between"])])
    assert 1 == (await between).base_offset
    assert appends == told
    assert all(isinstance(append.error, DiskFullError) for append in appends)
    assert (2, 2) == (log.high_watermark, log.end_offset)
    await backend.aclose()
