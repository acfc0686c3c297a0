"""The process that compacts: what ends it, and what its end leaves."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import CompactionJob, LogSettings, RecompressionJob
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.compact.compaction import CompactionOrder
from kgw.backend.embedded.compact.process import decode_order, encode_order
from kgw.backend.embedded.compact.rewriting import SourceSegment
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.store import Store
from kgw.errors import CorruptionError, ProcessEndedError, StorageError
from kgw.offsets.storage import OffsetStorage
from kgw.testing.backend_harness import KEY, SMALL_SEGMENTS, TOPIC
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.segmented_suite import as_segmented
from tests import patience
from tests.backend.embedded.driver import drop_before

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.embedded.log.segmented_log import SegmentedLog as Log
    from kgw.backend.embedded.log.swap import CompactedSegment
    from kgw.state.base import Change
    from kgw.testing.segmented_suite import SegmentedPartitionLog

pytestmark = pytest.mark.slow

OPTIONS = EmbeddedOptions(min_free_bytes=0, cache_bytes=0)
JOB = CompactionJob(upper_bound=1 << 40, now_ms=1_000, delete_retention_ms=1_000)
ENDLESS = JOB._replace(bytes_per_s=100)


@asynccontextmanager
async def filled(directory: Path) -> AsyncIterator[tuple[EmbeddedBackend, SegmentedPartitionLog]]:
    """Open a backend with a partition of many small segments."""
    backend = EmbeddedBackend(directory / "data", OPTIONS)
    await backend.open()
    try:
        settings = SMALL_SEGMENTS._replace(delete_delay_ms=0)
        log = as_segmented(await backend.create_partition(KEY, TOPIC, settings))
        for number in range(40):
            batch = make_batch([b"v" * 60], keys=[b"%d" % (number % 5)])
            await log.append([batch])
        yield backend, log
    finally:
        await backend.aclose()


async def offsets(log: SegmentedPartitionLog) -> list[int]:
    """Return the offsets that are read."""
    result = await log.read(log.log_start_offset, 1 << 30, log.high_watermark)
    found: list[int] = []
    while result.buffers:
        found += [record.offset for record in read_stored(result.buffers)]
        result = await log.read(result.next_offset, 1 << 30, log.high_watermark)
    return found


def children() -> list[int]:
    """Return the processes that this one has started."""
    found: list[int] = []
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        # One may have ended since.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (thread / "children").read_text().split())
    return found


async def begun(before: list[int]) -> int:
    """Wait for the compaction process and return its number."""
    while not set(children()) - set(before):  # noqa: ASYNC110 - nothing tells of a process
        await asyncio.sleep(0)
    (child,) = set(children()) - set(before)
    return child


def directory_of(root: Path) -> Path:
    """Return the partition's directory."""
    return root / "data" / "partitions" / str(KEY)


async def test_a_cancelled_run_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    """Its process is gone, and so is what it has written; the next run does it all."""
    async with filled(tmp_path) as (_, log):
        before = children()
        run = asyncio.ensure_future(log.compact(ENDLESS))
        await begun(before)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert before == children()
        assert not (directory_of(tmp_path) / "compaction").exists()
        assert list(range(40)) == await offsets(log)
        await log.compact(JOB)
        assert len(await offsets(log)) < 10


async def test_closing_ends_a_run(tmp_path: Path) -> None:
    """It does not wait for it, and leaves the directory in order."""
    async with filled(tmp_path) as (backend, log):
        before = children()
        run = asyncio.ensure_future(log.compact(ENDLESS))
        await begun(before)
        await backend.aclose()
        with pytest.raises(StorageError, match="closed"):
            await run
        assert before == children()
        with pytest.raises(StorageError, match="not open"):
            await log.compact(JOB)
    assert (tmp_path / "data" / "clean.json").exists()


SPOIL = """
import sys
if sys.orig_argv[-1] == "kgw.backend.embedded.compact.process":
    def spoil():
        import os, resource, signal
        from kgw.backend.embedded.compact import compaction
        def run(self):
            {what}
            yield
        compaction.SegmentCompaction.run = run
    {when}
"""


def spoil(directory: Path, monkeypatch: pytest.MonkeyPatch, what: str, when: str) -> None:
    """Have the process that compacts do something else, or not even begin."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(SPOIL.format(what=what, when=when))
    monkeypatch.setenv("PYTHONPATH", str(directory))


@pytest.mark.parametrize(
    ("what", "when", "kind", "reason"),
    [
        ("1 / 0", "spoil()", "raised", r": ZeroDivisionError: division by zero \(.*, line \d+\)$"),
        (
            "resource.setrlimit(resource.RLIMIT_AS, (1, 1)); bytearray(1 << 30)",
            "spoil()",
            "raised",
            ": MemoryError ",
        ),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "spoil()",
            "killed",
            ": killed by SIGKILL, as the system does for want of memory$",
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "spoil()", "killed", ": killed by SIGSEGV$"),
        ("os._exit(3)", "spoil()", "exited", ": exit status 3, without a word$"),
        ("sys.exit('enough')", "spoil()", "exited", ": exit status 1; enough$"),
        ("print('hello'); os._exit(0)", "spoil()", "unclear", "it said 'hello'"),
        (
            "os.write(1, b'cut off'); os._exit(0)",
            "spoil()",
            "exited",
            ": exit status 0, without a word$",
        ),
        (
            "",
            "sys.modules['kgw.backend.embedded.log.swap'] = None",
            "raised",
            "ModuleNotFoundError: import of kgw.backend.embedded.log.swap halted",
        ),
        (
            "",
            "sys.modules['kgw'] = None",
            "exited",
            "exit status 1; .*No module named 'kgw'|Error while finding module",
        ),
    ],
)
async def test_the_reason_of_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, when: str, kind: str, reason: str
) -> None:
    """Whatever it is; and the log is as it was."""
    async with filled(tmp_path) as (_, log):
        spoil(tmp_path / "spoilt", monkeypatch, what, when)
        with pytest.raises(ProcessEndedError, match="has ended: ") as caught:
            await log.compact(JOB)
        assert kind == caught.value.kind
        await log.append([make_batch([b"v"], keys=[b"1"])])
        assert re.search(reason, str(caught.value)), str(caught.value)
        assert list(range(41)) == await offsets(log)
        monkeypatch.delenv("PYTHONPATH")
        assert (await log.compact(JOB)).is_complete


async def test_an_interpreter_that_is_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what could not be started."""
    async with filled(tmp_path) as (_, log):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
        with pytest.raises(StorageError, match=r"cannot start a process .*no-python"):
            await log.compact(JOB)


@pytest.mark.damages_storage("a bit is flipped")
async def test_damage_is_reported_as_such(tmp_path: Path) -> None:
    """Nothing is changed."""
    async with filled(tmp_path) as (_, log):
        path = sorted(directory_of(tmp_path).glob("*.log"))[1]
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        with pytest.raises(CorruptionError, match="damaged"):
            await log.compact(JOB)
        assert 0 == log.compacted_end


@pytest.mark.damages_storage("a bit is flipped")
async def test_damage_keeps_one_segment_from_being_recompressed(tmp_path: Path) -> None:
    """The process says which, and goes on with the others."""
    async with filled(tmp_path) as (_, log):
        path = sorted(directory_of(tmp_path).glob("*.log"))[1]
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        closed = len(await log.segments()) - 1
        report = await log.recompress(RecompressionJob(upper_bound=1 << 40, level=3))
        (failure,) = report.failures
        assert f"{path.name}: the batch at offset" in failure
        assert (closed, closed - 1) == (report.segments, report.segments_exchanged)
        assert report.processor_s > 0
        assert content == path.read_bytes()


async def test_a_damaged_side_file_is_rebuilt_on_the_way(tmp_path: Path) -> None:
    """The run begins anew, and comes to its end."""
    async with filled(tmp_path) as (backend, log):
        path = sorted(directory_of(tmp_path).glob("*.checksums"))[1]
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.write_bytes(content)
        report = await log.compact(JOB)
        assert report.is_complete
        assert any("rebuilt" in problem for problem in backend.health.problems)
        assert len(await offsets(log)) < 10


async def test_a_run_that_loses_segments_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention may take some of those that are about to be exchanged; the rest is compacted."""
    async with filled(tmp_path) as (_, log):
        has_dropped = False

        def swap(store: Store, inner: Log, compacted: CompactedSegment) -> list[str]:
            nonlocal has_dropped
            if not has_dropped:
                has_dropped = True
                drop_before(store, inner, inner.segments[1].base_offset)
            return swap_segment(store, inner, compacted)

        swap_segment = Store.swap_segment
        monkeypatch.setattr(Store, "swap_segment", swap)
        report = await log.compact(JOB)
        assert has_dropped
        assert report.is_complete
        active = (await log.segments())[-1]
        assert active.base_offset == log.compacted_end
        sealed = [offset for offset in await offsets(log) if offset < active.base_offset]
        assert list(range(active.base_offset - 5, active.base_offset)) == sealed


async def test_a_checkpoint_that_could_not_be_stored_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the stored one would name a segment that compaction is about to replace."""
    async with filled(tmp_path) as (backend, log):
        with monkeypatch.context() as failing:
            failing.setattr(backend.state, "apply", _refuse)
            with pytest.raises(StorageError, match="no room"):
                await log.compact(JOB)
        await log.compact(JOB)
        active = (await log.segments())[-1]
        (saved,) = (await OffsetStorage(backend.state).load()).checkpoints.values()
        assert active.base_offset == saved.segment_base_offset


async def _refuse(_: Sequence[Change]) -> None:
    raise StorageError("no room")


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """The end of its input is the end of it, whatever it was about to do."""
    partition = tmp_path / "partition"
    partition.mkdir()
    segments = LogSettings()
    job = JOB._replace(kept_batches=frozenset({3, 1}), bytes_per_s=1)
    order = CompactionOrder(str(partition), (SourceSegment(0, 5, 100),), 0, job, segments, 0)
    assert order == decode_order(encode_order(order))
    process = subprocess.Popen(
        [sys.executable, "-m", "kgw.backend.embedded.compact.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.communicate(b"", timeout=patience.seconds(15))
    assert process.returncode != 0
