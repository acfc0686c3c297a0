"""Small files are joined: which ones, what becomes of them, and what may come in between."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.base import CompactionJob, LogSettings, PartitionLog, RecompressionJob, Segmented
from kgw.backend.seaweedmq.chain import ChainFile, ChainOptions
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.compact.joining_rules import FACTOR, MOST_FILES, JoinLimits, find_run
from kgw.backend.seaweedmq.filer import FilerError
from kgw.errors import ErrorCode, StorageError
from kgw.records.batch import Compression, split_batches
from kgw.testing.backend_harness import SETTINGS, UNBOUNDED_BYTES, contents
from kgw.testing.batches import make_batch
from kgw.testing.filer import CallKind
from tests import patience
from tests.backend.seaweedmq.gateways import REFUSE_AT_ONCE, Cluster
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.filer import Chunk

SMALL = REFUSE_AT_ONCE._replace(
    chain=ChainOptions(file_chunks=4, refuse_after_s=0), cache_bytes=0, chunk_cache_bytes=0
)
"""Another file with each fourth append, and nothing in memory."""
MB = 1 << 20
HOUR_MS = 3_600_000


def _files(sizes: Sequence[int], begun_ms: Sequence[int] | None = None) -> list[ChainFile]:
    """Return sealed files of these sizes, ten offsets each, and an active one."""
    times = begun_ms or [0] * (len(sizes) + 1)
    return [
        ChainFile(f"{number}", number * 10, times[number], size, end_offset=number * 10 + 10)
        for number, size in enumerate([*sizes, 0])
    ]


def _found(files: Sequence[ChainFile], now_ms: int = 0, **bounds: Any) -> list[int]:
    run = find_run(files, JoinLimits(64 * MB)._replace(**bounds), now_ms)
    return [int(file.name) for file in run]


# --- which files -----------------------------------------------------------------------------


def test_eight_of_a_kind_are_joined() -> None:
    """Not seven, and never the active one."""
    assert [] == _found(_files([20_000] * (FACTOR - 1)))
    assert list(range(FACTOR)) == _found(_files([20_000] * FACTOR))


def test_a_large_file_is_not_written_again_for_the_sake_of_small_ones() -> None:
    """They are joined beside it."""
    assert list(range(1, 9)) == _found(_files([MB] + [20_000] * FACTOR))


def test_what_must_not_be_joined_is_left_alone() -> None:
    """By size, by number, what a run holds, what cannot be read, and across borders."""
    many = _files([20_000] * 100)
    assert MOST_FILES == len(_found(many))
    assert list(range(10)) == _found(many, file_bytes=200_000)
    assert 5 == _found(many, start_offset=50)[0]
    assert 6 == _found(many, left_alone={"5"})[0]
    assert list(range(20)) == _found(many, borders=(200,))
    assert 3 == _found(many, borders=(30,))[0]


def test_a_joined_file_covers_an_hour_or_an_eighth_of_its_age() -> None:
    """So that retention by time, which removes whole files, is late by no more."""
    hourly = _files([20_000] * 30, [number * HOUR_MS for number in range(31)])
    assert [] == _found(hourly, 31 * HOUR_MS)
    assert list(range(8)) == _found(hourly, 72 * HOUR_MS)
    assert [] == _found(hourly, 69 * HOUR_MS)


@given(st.lists(st.integers(0, 8 * MB), max_size=300))
def test_few_files_are_left_and_little_is_written(sizes: list[int]) -> None:
    """However files come: each byte moves into a file at least about eight times as large."""
    files: list[ChainFile] = []
    written = 0
    for number, size in enumerate(sizes):
        file = ChainFile(f"{number}", number, 0, size, end_offset=number + 1)
        files.append(file)
        while run := find_run([*files, file], JoinLimits(64 * MB), 0):
            place = files.index(run[0])
            size_bytes = sum(one.size_bytes for one in run)
            written += size_bytes
            joined = ChainFile(f"j{number}{place}", run[0].base_offset, 0, size_bytes)
            joined.end_offset = run[-1].end_offset
            files[place : place + len(run)] = [joined]
    total = sum(sizes)
    assert total == sum(file.size_bytes for file in files)
    assert written <= 5 * total
    # Of those that are as large as they become there may be any number.
    assert len(files) <= total // (4 * MB) + 8 * FACTOR


# --- what becomes of them --------------------------------------------------------------------


async def _append(log: PartitionLog, numbers: range) -> None:
    for number in numbers:
        await log.append([make_batch([b"%05d" % number], timestamps_ms=[number])])


async def _rest(log: PartitionLog, clock_turns: int = 3_000) -> None:
    """Let what is being joined come to its end."""
    before = -1
    await _turn(clock_turns)
    while before != len(await _segments(log)):
        before = len(await _segments(log))
        await _turn(clock_turns)
        await asyncio.sleep(0.01)


async def _turn(turns: int = 3_000) -> None:
    """Let the loop turn until nothing more comes of itself."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def _segments(log: PartitionLog) -> list[tuple[int, int]]:
    assert isinstance(log, Segmented)
    return [(one.base_offset, one.end_offset) for one in await log.segments()]


def _expected(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%05d" % number) for number in range(count)]


async def _bytes(log: PartitionLog) -> bytes:
    """Return all batches as a reader gets them."""
    data, offset = b"", 0
    while offset < log.high_watermark:
        result = await log.read(offset, UNBOUNDED_BYTES, log.high_watermark)
        data += b"".join(bytes(buffer) for buffer in result.buffers)
        offset = result.next_offset
    return data


@pytest.mark.parametrize("layout", ["batches", "records"])
async def test_joined_files_hold_the_same(layout: str) -> None:
    """Byte for byte, for readers that go on meanwhile, by time, and for the next gateway."""
    async with Cluster(SMALL) as cluster:
        log = await (await cluster.gateway()).create(settings=SETTINGS._replace(layout=layout))
        await _append(log, range(20))
        before = await _bytes(log)
        size_bytes = log.size_bytes
        await _append(log, range(20, 400))
        await _rest(log)
        segments = await _segments(log)
        assert len(segments) <= 2 * FACTOR + 1
        assert all(one[1] == other[0] for one, other in pairwise(segments))
        data = await _bytes(log)
        assert data.startswith(before)
        assert size_bytes * 20 == log.size_bytes == len(data)
        assert 400 == len(split_batches(data))
        assert 123 == await log.find_by_time(123, 0, 400, lambda batch: batch.base_offset)
        best = await log.find_max_timestamp(0, 400)
        assert best is not None
        assert 399 == best.base_offset
        taken = await (await cluster.gateway()).log()
        assert _expected(400) == await contents(taken)
        assert data == await _bytes(taken)
        assert cluster.store.named_chunks == set(cluster.store.chunks)


@pytest.mark.parametrize(
    "count", [1_000, pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.timeout(300)])]
)
async def test_single_appends_leave_a_small_leader_entry(count: int) -> None:
    """Of a file for each fourth of them, a few dozen are left."""
    async with Cluster(SMALL) as cluster:
        log = await (await cluster.gateway()).create()
        batch = [b"x"]
        for _ in range(count):
            await log.append([make_batch(batch)])
        await _rest(log)
        (directory,) = (path for path in cluster.store.directories if path.endswith("0000-0031"))
        leader = cluster.store.look_up(directory, LEADER)
        assert leader is not None
        assert len(json.loads(leader.content)["files"]) < 5 * FACTOR
        assert len(leader.content) < 8_000
        assert count == (await log.read(count - 1, UNBOUNDED_BYTES, count)).next_offset


@pytest.mark.parametrize("kind", [CallKind.CREATE, CallKind.UPDATE, CallKind.DELETE])
@pytest.mark.parametrize("is_delivered", [False, True])
async def test_a_kill_in_mid_join_loses_nothing(kind: CallKind, *, is_delivered: bool) -> None:
    """Whichever step the filer was asked for last, and whether it was done."""
    async with Cluster(SMALL) as cluster:
        killed = await cluster.gateway()
        log = await killed.create()
        count = 4 * (FACTOR + 1) + 1
        # With the file behind the ninth the join begins: sizes differ a little.
        await _append(log, range(count))
        killed.filer.hold_all(kind)
        limit = patience.Limit(10)
        while not killed.filer.held:
            assert not limit.is_over
            await asyncio.sleep(0)
        await turns(2_000)
        held = list(killed.filer.held)
        if is_delivered:
            held[0].deliver()
        taken = await (await cluster.gateway()).log()
        assert _expected(count) == await contents(taken)
        killed.filer.hold_all()
        for request in killed.filer.held:
            request.answer()
        await _append(taken, range(count, 100))
        await _rest(taken)
        assert _expected(100) == await contents(taken)


async def test_a_file_that_cannot_be_read_stays_as_it_is() -> None:
    """It is named in health; those around it are joined."""
    async with Cluster(SMALL) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, range(24))
        chunk = next(iter(cluster.store.chunks))
        lost = cluster.store.chunks.pop(chunk)
        await _append(log, range(24, 200))
        await _rest(log)
        assert (0, 4) in await _segments(log)
        assert len(await _segments(log)) <= 2 * FACTOR + 2
        assert any(
            "offsets 0 to 0 cannot be read" in one for one in gateway.backend.health.problems
        )
        cluster.store.chunks[chunk] = lost
        assert _expected(200) == await contents(log)


@pytest.mark.parametrize(
    ("away", "joined"), [(0, [(0, 4), (4, 36), (36, 37)]), (17, [(0, 36), (36, 38)])]
)
async def test_a_file_that_is_out_of_reach_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, away: int, joined: list[tuple[int, int]]
) -> None:
    """Those beside it are joined at once; later, no file has to begin for it."""
    async with Cluster(SMALL) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        await _append(log, range(24))
        chunk_away = list(cluster.store.chunks)[away]
        read_chunk = gateway.filer.read_chunk

        async def read(chunk: Chunk, start: int, size_bytes: int) -> bytes:
            if chunk.file_id == chunk_away:
                raise FilerError("the volume server does not answer")
            return await read_chunk(chunk, start, size_bytes)

        with monkeypatch.context() as patch:
            patch.setattr(gateway.filer, "read_chunk", read)
            await _append(log, range(24, 37))
            await _rest(log)
        assert not gateway.backend.health.problems
        if not away:
            assert joined == await _segments(log)
            return
        assert 10 == len(await _segments(log))
        cluster.clock.advance(61)
        await _append(log, range(37, 38))
        await _rest(log)
        assert joined == await _segments(log)
        assert _expected(38) == await contents(log)


@pytest.mark.slow
async def test_what_is_stored_otherwise_than_it_was_sent_replaces_nothing() -> None:
    """A joined file is read back first: where it cannot be, the files that it was made of stay."""
    async with Cluster(SMALL) as cluster:
        store = cluster.store
        log = await (await cluster.gateway()).create()
        joined_bytes = 4 * len(make_batch([b"%05d" % 0]).buffer)
        upload = store.upload

        def garbled(data: bytes, now_ns: int) -> Chunk:
            chunk = upload(data, now_ns)
            if len(data) > joined_bytes:
                store.chunks[chunk.file_id] = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
            return chunk

        store.upload = garbled  # type: ignore[method-assign]
        await _append(log, range(60))
        await _rest(log)
        assert _expected(60) == await contents(log)
        assert [(number, number + 4) for number in range(0, 60, 4)] == await _segments(log)


@pytest.mark.slow
async def test_a_join_on_its_way_leaves_alone_what_a_run_has_taken_in_hand() -> None:
    """All that it was to put into zstd is: nothing of it is in a file that was joined meanwhile."""
    async with Cluster(SMALL) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create()
        assert isinstance(log, Segmented)
        count = 4 * (FACTOR + 1) + 1
        for number in range(count):
            await log.append([make_batch([b"%05d" % number * 50])])
        # The joined file is about to be made; then the run reads what it is made of.
        gateway.filer.hold_all(CallKind.CREATE)
        await _turn()
        job = RecompressionJob(upper_bound=count - 1, level=3)
        gateway.filer.hold_all(CallKind.CREATE, CallKind.READ_CHUNK)
        running = asyncio.ensure_future(log.recompress(job))
        await _turn()
        making, *reading = gateway.filer.held
        assert (CallKind.CREATE, {CallKind.READ_CHUNK}) == (
            making.call.kind,
            {request.call.kind for request in reading},
        )
        gateway.filer.hold_all()
        making.answer()
        await _turn()
        for request in reading:
            request.answer()
        report = await running
        assert FACTOR + 1 == report.segments == report.segments_exchanged
        *zipped, last = split_batches(await _bytes(log))
        assert ({Compression.ZSTD}, Compression.NONE) == (
            {batch.compression for batch in zipped},
            last.compression,
        )


async def test_compaction_and_retention_go_on_beside_it() -> None:
    """What a run of compaction has taken in hand is not joined until it has ended."""
    async with Cluster(SMALL) as cluster:
        log = await (await cluster.gateway()).create()
        assert isinstance(log, Segmented)
        await _append(log, range(30))
        job = CompactionJob(upper_bound=28, now_ms=0, delete_retention_ms=0)
        compacting = asyncio.ensure_future(log.compact(job))
        await _append(log, range(30, 200))
        report = await compacting
        assert 28 == report.compacted_end
        await log.drop_before(9)
        await _append(log, range(200, 400))
        await _rest(log)
        # Records without a key do not outlive a compaction.
        assert _expected(400)[28:] == await contents(log)
        assert len(await _segments(log)) <= 3 * FACTOR


async def test_files_that_a_run_has_held_are_joined_after_it() -> None:
    """Otherwise a log that is compacted once would keep its small files for ever."""
    async with Cluster(SMALL) as cluster:
        log = await (await cluster.gateway()).create()
        assert isinstance(log, Segmented)
        held = 4 * (FACTOR - 2)
        await _append(log, range(held + 1))
        job = CompactionJob(upper_bound=held, now_ms=0, delete_retention_ms=0, is_dry_run=True)
        await log.compact(job)
        assert (0, 4) == (await _segments(log))[0]
        await _append(log, range(held + 1, 4 * (FACTOR + 2)))
        await _rest(log)
        assert (await _segments(log))[0][1] > 4


async def test_too_many_files_are_named_and_then_refused() -> None:
    """With an error on which clients try again; it passes once some are gone."""
    options = SMALL._replace(many_files=4, most_files=6)
    async with Cluster(options) as cluster:
        gateway = await cluster.gateway()
        log = await gateway.create(settings=LogSettings(segment_bytes=1))
        await _append(log, range(5))
        assert any("lists 5 files" in one for one in gateway.backend.health.problems)
        await _append(log, range(5, 6))
        with pytest.raises(StorageError, match="lists 6 files") as refused:
            await log.append([make_batch([b"x"])])
        assert ErrorCode.KAFKA_STORAGE_ERROR is refused.value.code
        assert (6, 6) == (log.high_watermark, log.end_offset)
        await log.drop_before(3)
        await _append(log, range(6, 7))
        assert _expected(7)[3:] == await contents(log)
