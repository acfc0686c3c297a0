from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import CompactionJob, LogSettings, RecompressionJob, Segmented, Snapshot
from kgw.backend.seaweedmq.chain import NotWriterError
from kgw.backend.seaweedmq.chunks import ChunkReader
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.partition_log import SeaweedMqPartitionLog
from kgw.completion import until_done
from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.problems import DAMAGE, NO_VOLUME
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.testing.backend_harness import KEY, SETTINGS, UNBOUNDED_BYTES, batches, contents
from kgw.testing.batches import make_batch
from kgw.testing.filer import CallKind
from kgw.types import PartitionKey
from tests import patience
from tests.backend.seaweedmq.gateways import REFUSE_AT_ONCE, Cluster
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.backend.base import PartitionLog
    from kgw.backend.seaweedmq.chunks import ChunkPlace, ChunkSource
    from kgw.backend.seaweedmq.filer import Chunk, FilerEntry
    from kgw.records.batch import RecordBatch
    from kgw.testing.clock import ManualClock
    from tests.backend.seaweedmq.gateways import Gateway

COLD = REFUSE_AT_ONCE._replace(cache_bytes=0)
OF_TWELVE = CompactionJob(upper_bound=12, now_ms=0, delete_retention_ms=0)
"""Every read goes to the files."""


async def _append(log: PartitionLog, values: Iterable[bytes]) -> None:
    for value in values:
        await log.append([make_batch([value])])


async def _twelve_of_one_key(gateway: Gateway) -> SeaweedMqPartitionLog:
    """Return a new log with twelve records of one key, in files of 200 bytes."""
    log = await gateway.create(settings=LogSettings(segment_bytes=200))
    assert isinstance(log, SeaweedMqPartitionLog)
    for number in range(12):
        await log.append([make_batch([b"v%d" % number * 20], keys=[b"key"])])
    return log


def _files(cluster: Cluster) -> list[FilerEntry]:
    """Return the log files of the partition, by name."""
    (directory,) = (path for path in cluster.store.directories if path.endswith("0000-0031"))
    entries = cluster.store.directories[directory]
    return [entries[name] for name in sorted(entries) if name[0].isdigit()]


def _note_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the base offsets of chunks that are asked for ahead, as they are."""
    asked: list[int] = []
    want = ChunkReader.want

    def noted(reader: ChunkReader, source: ChunkSource, place: ChunkPlace) -> bool:
        asked.append(place.base_offset)
        return want(reader, source, place)

    monkeypatch.setattr(ChunkReader, "want", noted)
    return asked


async def _until(condition: Callable[[], object], clock: ManualClock | None = None) -> None:
    """Let the loop turn, and time pass, until something is so."""
    # Threads take part, so that turns cannot be counted.
    limit = patience.Limit(10)
    while not condition():
        assert not limit.is_over, "it has not become so"
        await asyncio.sleep(0)
        if clock is not None:
            clock.advance(1)


def _chunks(cluster: Cluster) -> list[Chunk]:
    return [chunk for file in _files(cluster) for chunk in file.chunks]


async def test_a_retention_that_is_cancelled_is_noted_before_the_end() -> None:
    """The filer does it all the same: a stop must not write the old log start back."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await _twelve_of_one_key(gateway)
        gateway.filer.hold_all(CallKind.UPDATE)
        dropping = asyncio.ensure_future(log.drop_before(7))
        await turns()
        dropping.cancel()
        await turns()
        closing = asyncio.ensure_future(gateway.backend.aclose())
        await turns()
        gateway.filer.hold_all()
        gateway.filer.held[0].answer()
        await closing
        assert dropping.cancelled()
        taken = await (await cluster.gateway()).log()
        assert isinstance(taken, SeaweedMqPartitionLog)
        first = (await taken.segments())[0]
        assert 7 == taken.log_start_offset == log.log_start_offset
        assert first.base_offset <= 7 < first.end_offset


async def test_what_cannot_be_encoded_is_refused_and_keeps_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does it stand in the way of what comes next."""

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    async with Cluster(COLD._replace(waiting_bytes=100)) as cluster:
        log = await (await cluster.gateway()).create()
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr("kgw.backend.seaweedmq.append_queue.encode", fail)
                with pytest.raises(RuntimeError, match="a bug"):
                    await log.append([make_batch([b"x"])])
        assert 0 == (await log.append([make_batch([b"x"])])).base_offset


async def test_damage_is_named_where_nobody_says_who_writes() -> None:
    """The filer is asked whether another has removed the file; without it, it is damage."""
    async with Cluster(COLD._replace(chunk_cache_bytes=0)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"gone"])
        cluster.store.chunks.clear()
        gateway.filer.fail_next(CallKind.LOOK_UP)
        with pytest.raises(CorruptionError):
            await contents(log)
        assert any("cannot be read" in one for one in gateway.backend.health.problems)


@pytest.mark.parametrize("is_topic_deleted", [False, True])
async def test_damage_that_is_deleted_is_told_no_more(is_topic_deleted: bool) -> None:
    """Neither after DeleteRecords, nor after its topic is gone."""
    async with Cluster(COLD._replace(chunk_cache_bytes=0)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"gone"])
        cluster.store.chunks.clear()
        with pytest.raises(CorruptionError):
            await contents(log)
        assert [DAMAGE] == [one.reason for one in gateway.backend.health.found]
        if is_topic_deleted:
            await gateway.backend.delete_partition(log.key)
        else:
            await log.drop_before(1)
        assert () == gateway.backend.health.found


async def test_what_gathers_is_one_chunk() -> None:
    """One upload and one update, however many appends wait for the one before."""
    async with Cluster() as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"first"])
        gateway.filer.calls.clear()
        await asyncio.gather(*(log.append([make_batch([b"%d" % n])]) for n in range(100)))
        assert gateway.filer.count(CallKind.UPLOAD) <= 2
        assert gateway.filer.count(CallKind.UPLOAD, CallKind.UPDATE) == gateway.filer.count()
        assert 101 == log.high_watermark


async def test_what_waits_is_bounded_over_all_partitions() -> None:
    """What is beyond is refused, with an error that clients retry, and taken when there is room."""
    async with Cluster(COLD._replace(waiting_bytes=5_000)) as cluster:
        gateway = await cluster.gateway()
        logs = [await gateway.create(PartitionKey(KEY.topic_id, number)) for number in range(4)]
        gateway.filer.hold_all(CallKind.UPLOAD)
        waiting = [log.append([make_batch([b"x" * 2_000])]) for log in logs]
        refused = [one for one in waiting if one.is_done]
        assert 2 == len(refused)
        for one in refused:
            assert isinstance(one.error, StorageError)
            assert one.error.code.retriable
            assert "kgw.seaweedmq.waiting.bytes" in str(one.error)
        assert [1, 1, 0, 0] == [log.end_offset for log in logs]
        await turns()
        gateway.filer.hold_all()
        gateway.filer.held[0].answer()
        gateway.filer.held[1].refuse()
        for one in waiting[:2]:
            await until_done(one)
        assert [False, True] == [one.error is not None for one in waiting[:2]]
        await asyncio.gather(*(log.append([make_batch([b"x" * 2_000])]) for log in logs[:2]))
        large = logs[3].append([make_batch([b"x" * 9_000])])
        assert 0 == (await large).base_offset


async def test_without_a_writable_volume_appends_are_refused_and_reads_go_on() -> None:
    """Health says why until there is one again, and all returns by itself when there is room."""
    async with Cluster(SeaweedMqOptions(cache_bytes=0)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"before"])
        cluster.store.is_full = True
        for _ in range(3):
            began_s = cluster.clock.monotonic_s()
            append = log.append([make_batch([b"x"])])
            await _until(partial(getattr, append, "is_done"), cluster.clock)
            assert isinstance(append.error, StorageError)
            assert append.error.code.retriable
            assert 30 <= cluster.clock.monotonic_s() - began_s < 40
            health = gateway.backend.health
            no_volume, nothing, problem = health.problems
            assert "no volume can be written" == no_volume
            assert "no partition takes records" == nothing
            assert not health.writable
            assert "waited for SeaweedFS for over 10 s: no volume can be written" in problem
            assert [(0, b"before")] == await contents(log)
        cluster.clock.advance(31)
        await gateway.backend.look()
        assert (NO_VOLUME,) == tuple(one.reason for one in gateway.backend.health.found)
        cluster.store.is_full = False
        await gateway.backend.look()
        assert () == gateway.backend.health.found
        assert 1 == (await log.append([make_batch([b"after"])])).base_offset
        assert () == gateway.backend.health.found
        assert [(0, b"before"), (1, b"after")] == await contents(log)


# --- stops and take-overs ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CallKind.UPLOAD, CallKind.UPDATE])
async def test_a_kill_in_mid_append_loses_nothing_that_was_answered(kind: CallKind) -> None:
    """What was on its way is there whole or not at all, and its offset is given once."""
    async with Cluster() as cluster:
        killed = await cluster.gateway()
        log = await killed.create()
        await _append(log, [b"a", b"b"])
        killed.filer.hold_all(kind)
        late = log.append([make_batch([b"late"])])
        await _until(lambda: killed.filer.held)
        other = await cluster.gateway()
        taken = await other.log()
        assert [(0, b"a"), (1, b"b")] == await contents(taken)
        # The dead gateway's request arrives now.
        killed.filer.hold_all()
        killed.filer.held[0].answer()
        await until_done(late)
        assert isinstance(late.error, NotWriterError)
        assert 2 == (await taken.append([make_batch([b"c"])])).base_offset
        assert [(0, b"a"), (1, b"b"), (2, b"c")] == await contents(taken)


async def test_an_append_that_was_entered_before_the_take_over_is_there() -> None:
    """Its answer was lost with the gateway: the next one has it at its offset."""
    async with Cluster() as cluster:
        killed = await cluster.gateway()
        log = await killed.create()
        await _append(log, [b"a"])
        killed.filer.hold_all(CallKind.UPDATE)
        late = log.append([make_batch([b"late"])])
        await _until(lambda: killed.filer.held)
        killed.filer.held[0].deliver()
        taken = await (await cluster.gateway()).log()
        assert [(0, b"a"), (1, b"late")] == await contents(taken)
        assert 2 == (await taken.append([make_batch([b"c"])])).base_offset
        killed.filer.hold_all()
        killed.filer.held[0].answer()
        assert 1 == (await late).base_offset


async def test_a_gateway_that_was_taken_over_takes_what_is_removed_for_no_damage() -> None:
    """Whoever reads is sent to the new leader; health names no loss, as there is none."""
    async with Cluster(COLD) as cluster:
        old = await cluster.gateway()
        log = await old.create()
        assert isinstance(log, Segmented)
        for value in (b"a", b"b"):
            await _append(log, [value])
            await log.roll()
        taken = await (await cluster.gateway()).log()
        await taken.drop_before(1)
        for read in (
            lambda: log.read(0, 1 << 20, 2),
            lambda: log.find_by_time(0, 0, 2, lambda batch: batch),
            lambda: contents(log),
        ):
            with pytest.raises(NotWriterError):
                await read()
        assert any("another gateway" in problem for problem in old.backend.health.problems)
        assert not any("cannot be read" in problem for problem in old.backend.health.problems)


async def test_a_gateway_that_was_taken_over_sends_clients_away() -> None:
    """With NOT_LEADER_OR_FOLLOWER for whatever comes; it says so in health."""
    async with Cluster() as cluster:
        old = await cluster.gateway()
        log = await old.create()
        await _append(log, [b"a"])
        taken = await (await cluster.gateway()).log()
        for _ in range(3):
            refused = log.append([make_batch([b"x"])])
            await until_done(refused)
            assert isinstance(refused.error, NotWriterError)
            assert ErrorCode.NOT_LEADER_OR_FOLLOWER is refused.error.code
        assert (True, False) == (log.has_failed, taken.has_failed)
        assert (1, 1) == (log.high_watermark, log.end_offset)
        assert any("another gateway" in problem for problem in old.backend.health.problems)
        assert not old.backend.health.writable
        await _append(taken, [b"b"])
        assert [(0, b"a"), (1, b"b")] == await contents(taken)


async def test_an_unknown_outcome_is_settled_before_anything_is_answered() -> None:
    """The update was made and its answer lost: the append is done, once."""
    async with Cluster() as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a"])
        gateway.filer.lose_answer(CallKind.UPDATE)
        pending = asyncio.ensure_future(log.append([make_batch([b"b"])]))
        await _until(pending.done, cluster.clock)
        assert 1 == pending.result().base_offset
        assert [(0, b"a"), (1, b"b")] == await contents(log)


async def test_a_hundred_partitions_open_side_by_side() -> None:
    """With one listing, and four calls for each that holds nothing new."""
    count = 100
    keys = [PartitionKey(KEY.topic_id, number) for number in range(count)]
    async with Cluster() as cluster:
        first = await cluster.gateway()
        logs = await first.backend.create_partitions(keys, "orders", SETTINGS)  # type: ignore[arg-type]
        assert first.filer.count() <= count + 20
        await asyncio.gather(*(log.append([make_batch([b"x"])]) for log in logs[: count // 2]))
        await first.backend.aclose()
        second = await cluster.gateway()
        second.filer.calls.clear()
        opened = await asyncio.gather(*map(second.log, keys))
        assert count // 2 == sum(log.high_watermark for log in opened)
        assert 1 == second.filer.count(CallKind.LIST)
        # An empty one has a leader entry alone.
        assert count // 2 * (4 + 2) + 1 == second.filer.count()


async def test_an_unclean_stop_costs_a_look_at_the_end_and_an_epoch() -> None:
    """The last chunk is read, and the new epoch is kept, before anything is appended."""
    async with Cluster() as cluster:
        first = await cluster.gateway()
        await _append(await first.create(), [b"a"])
        second = await cluster.gateway()
        second.filer.calls.clear()
        log = await second.log()
        assert (1, 4, 7) == (
            second.filer.count(CallKind.READ_CHUNK),
            second.filer.count(CallKind.UPDATE) + second.filer.count(CallKind.LIST),
            second.filer.count(),
        )
        assert 1 == log.leader_epoch


# --- failures ------------------------------------------------------------------------------------


async def test_what_waits_behind_a_refused_append_fails_with_it() -> None:
    """Also what is submitted to a file that was about to begin; then offsets are dense."""
    async with Cluster() as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create(settings=LogSettings(segment_bytes=200))
        await _append(log, [b"a"])
        # Once while the other file begins, which is told first.
        gateway.filer.fail_next(CallKind.UPLOAD, times=2)
        appends = [log.append([make_batch([b"x" * 100])]) for _ in range(5)]
        await _until(lambda: all(append.is_done for append in appends), cluster.clock)
        assert all(isinstance(append.error, StorageError) for append in appends)
        assert (1, 1, False) == (log.high_watermark, log.end_offset, log.has_failed)
        await _append(log, [b"b", b"c"])
        assert [(0, b"a"), (1, b"b"), (2, b"c")] == await contents(log)


async def test_no_file_begins_behind_offsets_that_are_refused() -> None:
    """They are given again: what follows has them, in the file before or behind."""
    chain = REFUSE_AT_ONCE.chain._replace(waiting_bytes=1)
    async with Cluster(REFUSE_AT_ONCE._replace(chain=chain)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        assert isinstance(log, Segmented)
        await _append(log, [b"a"])
        gateway.filer.hold_next(CallKind.UPDATE)
        waiting = log.append([make_batch([b"b"])])
        await _until(lambda: gateway.filer.held)
        too_much = log.append([make_batch([b"c"])])
        rolling = asyncio.ensure_future(log.roll())
        await asyncio.sleep(0)
        gateway.filer.held[0].answer()
        await waiting
        with pytest.raises(StorageError, match="no more is taken"):
            await too_much
        await rolling
        assert 2 == (await log.append([make_batch([b"d"])])).base_offset
        taken = await (await cluster.gateway()).log()
        assert [(0, b"a"), (1, b"b"), (2, b"d")] == await contents(taken)


async def test_what_is_submitted_behind_a_refused_append_is_refused_with_it() -> None:
    """Until its offset is given again, however small it is: nothing is stored out of order."""
    chain = REFUSE_AT_ONCE.chain._replace(waiting_bytes=1_000)
    async with Cluster(REFUSE_AT_ONCE._replace(chain=chain)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a"])
        gateway.filer.hold_next(CallKind.UPDATE)
        waiting = log.append([make_batch([b"b"])])
        await _until(lambda: gateway.filer.held)
        too_much = log.append([make_batch([b"c" * 1_000])])
        behind = log.append([make_batch([b"d"])])
        gateway.filer.held[0].answer()
        assert 1 == (await waiting).base_offset
        for refused in (too_much, behind):
            with pytest.raises(StorageError, match="no more is taken"):
                await refused
        assert 2 == (await log.append([make_batch([b"e"])])).base_offset
        assert [(0, b"a"), (1, b"b"), (2, b"e")] == await contents(log)


async def test_a_filer_that_is_away_for_a_while_loses_nothing() -> None:
    """Appends wait, health says for how long, and all goes on by itself."""
    async with Cluster(SeaweedMqOptions()) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a"])
        gateway.filer.is_away = True
        pending = asyncio.ensure_future(log.append([make_batch([b"b"])]))
        for _ in range(20):
            await asyncio.sleep(0)
            cluster.clock.advance(1)
        assert any("waited for SeaweedFS" in one for one in gateway.backend.health.problems)
        assert not gateway.backend.health.writable
        hot = log.read_hot(0, UNBOUNDED_BYTES, 1)
        assert hot is not None
        assert 1 == hot.next_offset
        gateway.filer.is_away = False
        await _until(pending.done, cluster.clock)
        assert 1 == pending.result().base_offset
        assert () == gateway.backend.health.found


async def test_a_damaged_chunk_is_named_by_file_and_offset() -> None:
    """What lies before and behind it is served, and the damage never."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await log.append([make_batch([b"a"]), make_batch([b"b" * 50]), make_batch([b"c"])])
        await _append(log, [b"d"])
        chunk = _chunks(cluster)[0]
        data = bytearray(cluster.store.chunks[chunk.file_id])
        place = data.index(b"b" * 50)
        data[place] ^= 1
        cluster.store.chunks[chunk.file_id] = bytes(data)
        result = await log.read(0, UNBOUNDED_BYTES, 4)
        assert 1 == result.next_offset
        with pytest.raises(CorruptionError, match="offsets 1 to 1 are damaged") as damage:
            await log.read(1, UNBOUNDED_BYTES, 4)
        assert 2 == damage.value.end_offset
        assert f"/{_files(cluster)[0].name}, position " in str(damage.value)
        assert 4 == (await log.read(2, UNBOUNDED_BYTES, 4)).next_offset
        assert str(damage.value) in gateway.backend.health.problems
        with pytest.raises(CorruptionError):
            await batches(log)
        with pytest.raises(CorruptionError):
            await log.find_max_timestamp(0, 4)
        with pytest.raises(CorruptionError):
            await log.find_by_time(0, 0, 4, lambda _: None)


async def test_nothing_is_told_from_behind_what_is_damaged() -> None:
    """A replay would leave a hole in a sequence, and a look-up by time pass the first one by."""
    async with Cluster(COLD) as cluster:
        log = await (await cluster.gateway()).create()
        await log.append([make_batch([b"a"]), make_batch([b"b" * 50]), make_batch([b"c"])])
        (chunk,) = _chunks(cluster)
        data = cluster.store.chunks[chunk.file_id]
        cluster.store.chunks[chunk.file_id] = data.replace(b"b" * 50, b"x" * 50)
        for start, expected in ((0, [0]), (1, []), (2, [2])):
            seen: list[int] = []
            with suppress(CorruptionError):
                async for batch in log.replay(start):
                    seen.append(batch.base_offset)  # noqa: PERF401 - also of what raises
            assert expected == seen
        looked_at: list[int] = []

        def look(batch: RecordBatch) -> bool | None:
            looked_at.append(batch.base_offset)
            return True if batch.base_offset else None

        with pytest.raises(CorruptionError, match="offsets 1 to 1 are damaged"):
            await log.find_by_time(0, 0, 3, look)
        assert [0] == looked_at
        assert await log.find_by_time(0, 2, 3, look)


async def test_a_missing_chunk_is_named_by_file_and_offset() -> None:
    """It is an error to whoever reads it, and to nobody else."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a", b"b", b"c"])
        gone = _chunks(cluster)[1].file_id
        del cluster.store.chunks[gone]
        assert 1 == (await log.read(0, UNBOUNDED_BYTES, 3)).next_offset
        with pytest.raises(CorruptionError, match="offsets 1 to 1 cannot be read") as missing:
            await log.read(1, UNBOUNDED_BYTES, 3)
        assert 2 == missing.value.end_offset
        assert _files(cluster)[0].name in str(missing.value)
        assert 3 == (await log.read(2, UNBOUNDED_BYTES, 3)).next_offset


async def test_a_file_that_is_gone_is_no_empty_log() -> None:
    """Neither for readers nor for the next gateway."""
    async with Cluster(COLD) as cluster:
        first = await cluster.gateway()
        log = await first.create(settings=LogSettings(segment_bytes=100))
        await _append(log, [b"a" * 80, b"b" * 80])
        (directory,) = (path for path in cluster.store.directories if path.endswith("0000-0031"))
        lost, active = _files(cluster)
        cluster.store.delete(directory, lost.name, is_recursive=False)
        second = await cluster.gateway()
        taken = await second.log()
        with pytest.raises(CorruptionError, match=f"{lost.name}: it is gone"):
            await taken.read(0, UNBOUNDED_BYTES, 2)
        assert 2 == (await taken.read(1, UNBOUNDED_BYTES, 2)).next_offset
        cluster.store.delete(directory, active.name, is_recursive=False)
        with pytest.raises(CorruptionError, match="gone"):
            await (await cluster.gateway()).log()


async def test_what_lies_before_a_file_that_is_gone_is_read() -> None:
    """Damage is told to whoever reads it, and not to whoever reads up to it."""
    async with Cluster(COLD) as cluster:
        log = await (await cluster.gateway()).create(settings=LogSettings(segment_bytes=100))
        await _append(log, [b"x" * 50, b"y" * 50, b"z" * 50])
        gone = _files(cluster)[1].name
        taken = await (await cluster.gateway()).log()
        for entries in cluster.store.directories.values():
            entries.pop(gone, None)
        assert 1 == (await taken.read(0, UNBOUNDED_BYTES, 3)).next_offset
        with pytest.raises(CorruptionError, match=gone):
            await taken.read(1, UNBOUNDED_BYTES, 3)
        assert 3 == (await taken.read(2, UNBOUNDED_BYTES, 3)).next_offset


async def test_a_snapshot_of_more_than_the_log_holds_is_not_used() -> None:
    """As after a log was brought back from a backup: producers are not what it says of them."""
    async with Cluster() as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a"])
        for offset, expected in ((2, None), (1, Snapshot(1, b"state"))):
            await log.save_snapshot(Snapshot(offset, b"state"))
            assert expected == await log.load_snapshot()


async def test_a_recompression_that_changes_records_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes out is compared with what went in; a bug in between costs nothing."""

    def lie(batch: RecordBatch, *_: object) -> RecordBatch:
        other = make_batch([b"x"])
        other.assign(batch.base_offset, batch.leader_epoch)
        return other

    async with Cluster(COLD) as cluster:
        log = await _twelve_of_one_key(await cluster.gateway())
        before = await contents(log)
        monkeypatch.setattr("kgw.backend.seaweedmq.compact.rewriting.to_zstd", lie)
        report = await log.recompress(RecompressionJob(upper_bound=12, level=3))
        assert report.segments == len(report.failures) > 0
        assert "recompressed it would not be the same" in report.failures[0]
        assert before == await contents(log)


@pytest.mark.slow
@pytest.mark.parametrize("is_compaction", [True, False])
async def test_a_run_does_not_pass_over_a_damaged_batch(*, is_compaction: bool) -> None:
    """The file that it is in stays as it is: written anew, it would lack those records for good."""
    async with Cluster(COLD._replace(chunk_cache_bytes=0)) as cluster:
        log = await _twelve_of_one_key(await cluster.gateway())
        file_id = _chunks(cluster)[0].file_id
        sound = cluster.store.chunks[file_id]
        place = sound.index(b"v0v0")
        cluster.store.chunks[file_id] = sound[:place] + b"w" + sound[place + 1 :]
        first = (await log.segments())[0]
        if is_compaction:
            with pytest.raises(CorruptionError, match="are damaged"):
                await log.compact(OF_TWELVE)
        else:
            report = await log.recompress(RecompressionJob(upper_bound=12, level=3))
            assert ["offsets 0 to 0 are damaged" in one for one in report.failures] == [True]
        assert first == (await log.segments())[0]
        cluster.store.chunks[file_id] = sound
        assert (0, b"v0" * 20) == (await contents(log))[0]


async def test_a_damaged_snapshot_is_not_used() -> None:
    """It is reported; a large one is a chunk of its own."""
    async with Cluster() as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a"])
        await log.save_snapshot(Snapshot(1, b"s" * 100_000))
        assert Snapshot(1, b"s" * 100_000) == await log.load_snapshot()
        (file_id,) = (name for name, data in cluster.store.chunks.items() if len(data) > 100_000)
        cluster.store.chunks[file_id] = cluster.store.chunks[file_id][:-1] + b"x"
        assert await log.load_snapshot() is None
        assert any("checksum" in problem for problem in gateway.backend.health.problems)
        await log.save_snapshot(Snapshot(1, b"new"))
        assert Snapshot(1, b"new") == await log.load_snapshot()
        assert file_id not in cluster.store.chunks


async def test_snapshots_come_for_what_was_written_too() -> None:
    """In the background and one run at a time; what a start has replayed counts as well."""
    async with Cluster(REFUSE_AT_ONCE._replace(checkpoint_bytes=10_000)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        begun: list[int] = []
        may_go_on = asyncio.Event()

        async def save() -> None:
            begun.append(log.high_watermark)
            await may_go_on.wait()

        gateway.backend.before_checkpoint = save
        await _append(log, [b"x" * 4_000] * 2)
        await asyncio.sleep(0)
        assert [] == begun
        await _append(log, [b"x" * 4_000] * 7)
        assert [3] == begun
        may_go_on.set()
        await _append(log, [b"x" * 4_000] * 2)
        assert [3, 10] == begun

        gateway = await cluster.gateway()
        replayed = asyncio.Event()

        async def note() -> None:
            replayed.set()

        gateway.backend.before_checkpoint = note
        log = await gateway.log()
        assert 11 == len([batch async for batch in log.replay(0)])
        await replayed.wait()


async def test_snapshots_that_fail_are_tried_again() -> None:
    """Appends go on, and after as many bytes as before comes the next run; a stop ends one."""
    async with Cluster(REFUSE_AT_ONCE._replace(checkpoint_bytes=1_000)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        outcomes = [StorageError("the filer is away"), None]
        cancelled = asyncio.Event()

        async def save() -> None:
            error = outcomes.pop(0)
            if error is not None:
                raise error
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        gateway.backend.before_checkpoint = save
        await _append(log, [b"x" * 2_000] * 2)
        await asyncio.sleep(0)
        assert [] == outcomes
        await gateway.backend.aclose()
        assert cancelled.is_set()


async def test_partitions_that_wait_for_the_filer_are_logged_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line every ten seconds, with how many they are, one of them and the reason."""

    def said() -> list[int]:
        records = [one for one in caplog.records if one.name.endswith("settling")]
        caplog.clear()
        # That no chain waits any more is said at a level of its own.
        waits = [one for one in records if one.levelno == logging.WARNING]
        return [record.__dict__["kgw_fields"]["chains"] for record in waits]

    caplog.set_level(logging.INFO)
    async with Cluster(SeaweedMqOptions()) as cluster:
        gateway = await cluster.gateway()
        keys = [PartitionKey(KEY.topic_id, number) for number in range(10)]
        logs = [await gateway.create(key) for key in keys]
        gateway.filer.is_away = True
        pending = [log.append([make_batch([b"a"])]) for log in logs]
        for _ in range(19):
            await turns(10)
            cluster.clock.advance(1)
        gateway.filer.is_away = False
        await _until(lambda: all(one.is_done for one in pending), cluster.clock)
        lines = said()
        # Those that wait no more are not among the next ones.
        cluster.clock.advance(20)
        gateway.filer.is_away = True
        again = logs[0].append([make_batch([b"b"])])
        await turns(10)
        gateway.filer.is_away = False
        await _until(lambda: again.is_done, cluster.clock)
        assert [1, 10, 1] == [*lines, *said()]


# --- files ---------------------------------------------------------------------------------------


async def test_files_end_by_size_and_by_time() -> None:
    """By segment.bytes, by 64 MB whatever that says, and after an hour."""
    async with Cluster(COLD._replace(file_bytes=250)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"x" * 50] * 4)
        assert 2 == len(_files(cluster))
        cluster.clock.advance(3_599)
        await _append(log, [b"x"])
        assert 3 == len(_files(cluster))
        await _append(log, [b"x"])
        assert 3 == len(_files(cluster))
        cluster.clock.advance(3_600)
        await _append(log, [b"x"])
        assert 4 == len(_files(cluster))
        assert 7 == len(await contents(log))
        # The hour is that of the file, however often something is appended.
        for _ in range(2):
            cluster.clock.advance(1_800)
            await _append(log, [b"x"])
        assert 5 == len(_files(cluster))


async def test_retention_removes_whole_files() -> None:
    """With their chunks; the log start is exact, and what is left of a file is not served."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create(settings=LogSettings(segment_bytes=100))
        await _append(log, [b"%d" % number * 20 for number in range(10)])
        before = len(_files(cluster))
        await log.drop_before(7)
        assert before > len(_files(cluster))
        assert cluster.store.named_chunks == set(cluster.store.chunks)
        assert list(range(7, 10)) == [offset for offset, _ in await contents(log)]
        with pytest.raises(ValueError, match="above"):
            await log.drop_before(11)


async def test_the_layout_can_change_within_a_file() -> None:
    """What is there stays as it is; all of it is read."""
    async with Cluster(COLD._replace(decoded_on_loop_bytes=500)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        values = [b"a", b"b" * 1_000, b"c", b"d" * 1_000, b"e"]
        for number, value in enumerate(values):
            log.configure(SETTINGS._replace(layout="records" if number % 2 else "batches"))
            await log.append([make_batch([value])])
        log.configure(SETTINGS._replace(layout="records"))
        await asyncio.gather(*(log.append([make_batch([value])]) for value in values))
        assert list(enumerate(values * 2)) == await contents(log)
        assert 1 == len(_files(cluster))


async def test_hot_readers_get_what_cold_ones_do_in_layout_records() -> None:
    """Batches without the compression that they came with: their bytes are counted so, too."""
    async with Cluster(REFUSE_AT_ONCE) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create(settings=SETTINGS._replace(layout="records"))
        builder = BatchBuilder(compression=Compression.ZSTD)
        builder.add(value=b"v" * 1_000)
        announced: list[tuple[int, int]] = []
        log.on_advance = lambda end, size_bytes: announced.append((end, size_bytes))
        await log.append([read_batch(builder.build())])
        hot = log.read_hot(0, UNBOUNDED_BYTES, 1)
        assert hot is not None
        cold = await log.read(0, UNBOUNDED_BYTES, 1)
        assert b"".join(hot.buffers) == b"".join(cold.buffers)
        assert [(1, log.size_bytes)] == announced
        (batch,) = split_batches(hot.buffers[0])
        assert Compression.NONE is batch.compression


# --- reading old data ----------------------------------------------------------------------------


async def test_a_reader_that_catches_up_has_chunks_fetched_ahead() -> None:
    """Several at a time, each once, and no more than is allowed."""
    async with Cluster(COLD._replace(read_ahead_chunks=3)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"%03d" % number * 100 for number in range(20)])
        gateway.filer.calls.clear()
        result = await log.read(0, 1, 20)
        assert 1 == gateway.filer.count(CallKind.READ_CHUNK)
        result = await log.read(result.next_offset, 1, 20)
        for _ in range(5):
            await asyncio.sleep(0)
        assert 5 == gateway.filer.count(CallKind.READ_CHUNK)
        while result.buffers:
            result = await log.read(result.next_offset, 1, 20)
        assert 20 == gateway.filer.count(CallKind.READ_CHUNK)


async def test_a_replay_has_chunks_fetched_ahead() -> None:
    """A start replays what came after the snapshot: it does not wait for each chunk by itself."""
    async with Cluster(COLD._replace(read_ahead_chunks=3)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"%03d" % number * 100 for number in range(20)])
        gateway.filer.hold_all(CallKind.READ_CHUNK)
        replay = asyncio.ensure_future(anext(aiter(log.replay(0))))
        await turns()
        assert 1 < len(gateway.filer.held)
        gateway.filer.hold_all()
        for request in gateway.filer.held:
            request.answer()
        assert 0 == (await replay).base_offset


async def test_chunks_are_fetched_no_more_bytes_at_a_time_than_there_is_room_for() -> None:
    """However few they are: each may be as large as a batch."""
    async with Cluster(COLD._replace(chunk_load_bytes=500)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"x" * 100] * 8)
        size_bytes = _files(cluster)[0].chunks[0].size_bytes
        gateway.filer.hold_all(CallKind.READ_CHUNK)
        reading = asyncio.ensure_future(log.read(0, UNBOUNDED_BYTES, 8))
        await turns()
        assert 500 // size_bytes == len(gateway.filer.held) < 8
        gateway.filer.hold_all()
        for request in gateway.filer.held:
            request.answer()
        assert 8 == (await reading).next_offset


async def test_one_read_of_many_chunks_waits_for_all_of_them_at_once() -> None:
    """Not for one after the other."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"x" * 100] * 8)
        gateway.filer.hold_all(CallKind.READ_CHUNK)
        reading = asyncio.ensure_future(log.read(0, UNBOUNDED_BYTES, 8))
        for _ in range(10):
            await asyncio.sleep(0)
        assert 8 == len(gateway.filer.held)
        gateway.filer.hold_all()
        for request in gateway.filer.held:
            request.answer()
        assert 8 == (await reading).next_offset


async def test_one_read_of_many_chunks_asks_for_each_of_them_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read of 128 small chunks would otherwise ask for 8,000 of them ahead."""
    asked = _note_asked(monkeypatch)
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"x" * 100] * 20)
        assert 20 == (await log.read(0, UNBOUNDED_BYTES, 20)).next_offset
        assert list(range(1, 20)) == asked


async def test_chunks_that_found_no_room_ahead_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As soon as the read has come to the first of them."""
    asked = _note_asked(monkeypatch)
    async with Cluster(COLD._replace(chunk_cache_bytes=1_000)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"x" * 100] * 8)
        assert 8 == (await log.read(0, UNBOUNDED_BYTES, 8)).next_offset
        assert set(range(1, 8)) == set(asked)
        assert 8 == gateway.filer.count(CallKind.READ_CHUNK)


async def test_readers_share_what_is_fetched() -> None:
    """At the same time, and soon after one another."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"a", b"b"])
        gateway.filer.calls.clear()
        await asyncio.gather(*(log.read(0, 1, 2) for _ in range(10)))
        await log.read(0, 1, 2)
        assert 1 == gateway.filer.count(CallKind.READ_CHUNK)


async def test_what_is_kept_of_chunks_is_bounded() -> None:
    """The one that was used longest ago goes first."""
    async with Cluster(COLD._replace(chunk_cache_bytes=1_000, read_ahead_chunks=0)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"x" * 300] * 3)
        for offset in (0, 1, 0, 2, 0):
            await log.read(offset, 1, 3)
        gateway.filer.calls.clear()
        await log.read(0, 1, 3)
        assert 0 == gateway.filer.count()
        await log.read(1, 1, 3)
        assert 1 == gateway.filer.count()


async def test_a_look_by_time_opens_what_may_hold_it() -> None:
    """Files and chunks say what their greatest time is."""
    async with Cluster(COLD) as cluster:
        first = await cluster.gateway()
        log = await first.create(settings=LogSettings(segment_bytes=200))
        for number in range(40):
            await log.append([make_batch([b"x" * 30], timestamps_ms=[number])])
        second = await cluster.gateway()
        taken = await second.log()
        second.filer.calls.clear()
        found = await taken.find_by_time(17, 0, 40, lambda batch: batch.base_offset)
        assert 17 == found
        assert (1, 1) == (
            second.filer.count(CallKind.LOOK_UP),
            second.filer.count(CallKind.READ_CHUNK),
        )
        second.filer.calls.clear()
        best = await taken.find_max_timestamp(0, 40)
        assert best is not None
        assert (39, 0) == (best.base_offset, second.filer.count(CallKind.READ_CHUNK))


async def test_a_reader_goes_on_where_files_were_rewritten_meanwhile() -> None:
    """It gets what has taken their place."""
    async with Cluster(COLD._replace(chunk_cache_bytes=0)) as cluster:
        gateway = await cluster.gateway()
        log = await _twelve_of_one_key(gateway)
        gateway.filer.hold_next(CallKind.READ_CHUNK)
        reading = asyncio.ensure_future(log.read(0, 1, 12))
        await _until(lambda: gateway.filer.held)
        await log.compact(OF_TWELVE)
        gateway.filer.held[0].answer()
        result = await reading
        (batch,) = split_batches(result.buffers[0])
        assert (0, 0) == (batch.base_offset, batch.record_count)
        assert cluster.store.named_chunks == set(cluster.store.chunks)


async def test_a_read_of_many_small_chunks_is_cut() -> None:
    """It says that there is more, and the next one goes on; each chunk is fetched once."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"v%d" % number for number in range(300)])
        begun = gateway.filer.count(CallKind.READ_CHUNK)
        counts, fetched, next_offset = [], [], 0
        while next_offset < 300:
            result = await log.read(next_offset, UNBOUNDED_BYTES, 300)
            counts.append((result.batches, result.is_cut))
            next_offset = result.next_offset
            await turns(500)
            fetched.append(gateway.filer.count(CallKind.READ_CHUNK) - begun)
        assert [(128, True), (128, True), (44, False)] == counts
        # What a read does not take is not fetched for it: but for four, for a reader that goes on.
        assert [128, 260, 300] == fetched


async def test_nothing_is_fetched_from_behind_where_a_read_ends() -> None:
    """Also by a reader that goes on: it gets no further until that bound moves."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, [b"v%d" % number for number in range(9)])
        begun = gateway.filer.count(CallKind.READ_CHUNK)
        fetched = []
        for start, end in ((0, 3), (3, 6), (6, 9)):
            assert end == (await log.read(start, UNBOUNDED_BYTES, end)).next_offset
            await turns(100)
            fetched.append(gateway.filer.count(CallKind.READ_CHUNK) - begun)
        assert [3, 6, 9] == fetched


async def test_retention_may_be_quicker_than_compaction() -> None:
    """What was dropped is not put back, and the rest is compacted all the same."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await _twelve_of_one_key(gateway)
        gateway.filer.hold_next(CallKind.CREATE)
        compacting = asyncio.ensure_future(log.compact(OF_TWELVE))
        await _until(lambda: gateway.filer.held)
        second = (await log.segments())[2].base_offset
        await log.drop_before(second)
        gateway.filer.held[0].answer()
        await compacting
        assert second == (await log.segments())[0].base_offset
        assert [11] == [offset for offset, _ in (await contents_of_records(log))][-1:]
        assert cluster.store.named_chunks == set(cluster.store.chunks)


async def test_what_is_dropped_while_compaction_reads_it_is_no_damage() -> None:
    """It begins anew with what is left."""
    async with Cluster(COLD) as cluster:
        gateway = await cluster.gateway()
        log = await _twelve_of_one_key(gateway)
        gateway.filer.hold_next(CallKind.READ_CHUNK)
        compacting = asyncio.ensure_future(log.compact(OF_TWELVE))
        await _until(lambda: gateway.filer.held)
        third = (await log.segments())[2].base_offset
        await log.drop_before(third)
        gateway.filer.held[0].answer()
        assert 12 - third >= (await compacting).records_before
        assert third == (await log.segments())[0].base_offset
        assert not gateway.backend.health.problems


async def test_a_look_for_the_greatest_time_survives_retention() -> None:
    """It begins anew where a file was dropped while its list was asked for."""
    async with Cluster(COLD) as cluster:
        log = await (await cluster.gateway()).create(settings=LogSettings(segment_bytes=100))
        await _append(log, [b"x" * 50, b"y" * 50, b"z" * 50])
        gateway = await cluster.gateway()
        taken = await gateway.log()
        gateway.filer.hold_next(CallKind.LOOK_UP)
        looking = asyncio.ensure_future(taken.find_max_timestamp(0, 3))
        await _until(lambda: gateway.filer.held)
        await taken.drop_before(2)
        gateway.filer.held[0].answer()
        found = await looking
        assert found is not None
        assert 2 == found.base_offset


async def contents_of_records(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Return what readers get, past batches that compaction has emptied."""
    result = await log.read(log.log_start_offset, UNBOUNDED_BYTES, log.high_watermark)
    return [
        (batch.base_offset, bytes(batch.buffer))
        for buffer in result.buffers
        for batch in split_batches(buffer)
        if batch.record_count
    ]


# --- the backend ---------------------------------------------------------------------------------


async def test_topics_that_nobody_knows_are_named() -> None:
    """Once the catalogue has opened its own."""
    async with Cluster() as cluster:
        first = await cluster.gateway()
        await first.create()
        second = await cluster.gateway()
        await second.backend.forget_others()
        health = second.backend.health
        assert (1, True) == (health.unclaimed_partitions, health.writable)
        assert "kgw log adopt" in health.problems[0]
        await second.log()
        await second.backend.forget_others()
        assert 0 == second.backend.health.unclaimed_partitions


async def test_a_stop_ends_though_the_filer_is_away() -> None:
    """It waits for a while; then what nobody has answered fails, and the stop is no orderly one."""
    async with Cluster(SeaweedMqOptions(decoded_on_loop_bytes=0)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create(settings=SETTINGS._replace(layout="records"))
        await _append(log, [b"a"])
        gateway.filer.is_away = True
        pending = log.append([make_batch([b"b"])])
        closing = asyncio.ensure_future(gateway.backend.aclose())
        begun_s = cluster.clock.monotonic_s()
        # A thread makes entries of the records. Hardly any time may pass meanwhile, however long
        # the machine takes.
        assert isinstance(log, SeaweedMqPartitionLog)
        while not log.chain.stuck_s:
            cluster.clock.advance(1e-9)
            await asyncio.sleep(0)
        await _until(closing.done, cluster.clock)
        assert cluster.clock.monotonic_s() - begun_s <= 60
        await closing
        assert isinstance(pending.error, StorageError)
        taken = await (await cluster.gateway()).log()
        assert ([(0, b"a")], 1) == (await contents(taken), taken.leader_epoch)


async def test_a_stop_ends_though_an_encoding_was_cancelled_before_it_began() -> None:
    """A loop that ends cancels all tasks at once: the stop waited without end for that append."""
    async with Cluster(SeaweedMqOptions(decoded_on_loop_bytes=0)) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create(settings=SETTINGS._replace(layout="records"))
        before = asyncio.all_tasks()
        pending = log.append([make_batch([b"a"])])
        (encoding,) = asyncio.all_tasks() - before
        encoding.cancel()
        closing = asyncio.ensure_future(gateway.backend.aclose())
        while not closing.done():
            cluster.clock.advance(1e-9)
            await asyncio.sleep(0)
        await closing
        assert pending.error is None
        assert [(0, b"a")] == await contents(await (await cluster.gateway()).log())
