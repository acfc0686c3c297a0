from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import islice
from posixpath import normpath
from typing import TYPE_CHECKING

import pytest

from kgw.backend.adopting import DISPENSABLE_KINDS, Adoptable, Adoption
from kgw.backend.base import LogSettings
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from kgw.backend.embedded.offline.adopt import adopt, find_adoptable
from kgw.backend.embedded.offline.check import check_data_dir
from kgw.backend.embedded.offline.dump import DumpedBatch, DumpedDamage, dump_segment, segment_paths
from kgw.backend.embedded.offline.opening import opened_state
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.errors import DataDirectoryError, StorageError
from kgw.gateway import Gateway
from kgw.partitions.topics.topic import TopicRow
from kgw.state import kinds
from kgw.state.base import Change
from kgw.state.kinds import CLUSTER, TOPIC_CREATION, TOPIC_DELETION
from kgw.testing.batches import make_batch
from kgw.types import TopicId, format_uuid
from tests.backend.embedded.driver import KEY, OTHER_KEY, ROOT, SMALL_SEGMENTS, TOPIC, Driver
from tests.simulated_fs import SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = EmbeddedOptions(journal_bytes=1 << 20, min_free_bytes=0)


async def _make_directory(path: Path) -> Path:
    """Make a data directory with two partitions of one topic, and stop it in order."""
    backend = EmbeddedBackend(path, OPTIONS)
    await backend.open()
    for key in (KEY, OTHER_KEY):
        log = await backend.create_partition(key, TOPIC, LogSettings())
        for number in range(5):
            await log.append([make_batch([b"value %d" % number])])
    await backend.aclose()
    return path


def _damage_rows(data_dir: Path, kind: str) -> None:
    """Have all rows of a kind fail their checksums."""
    with closing(sqlite3.connect(data_dir / "meta.sqlite")) as database, database:
        database.execute("UPDATE state_entry SET checksum = checksum + 1 WHERE kind = ?", (kind,))


def _driver_with_data() -> Driver:
    driver = Driver(settings=SMALL_SEGMENTS)
    for number in range(30):
        driver.append(b"record %03d" % number, timestamp_ms=1000 + number)
    return driver


@pytest.mark.damages_storage("a bit is flipped")
@pytest.mark.parametrize(
    "name",
    [
        "partition.json",
        "log-state.json",
        "00000000000000000000.log",
        "00000000000000000000.checksums",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "../../clean.json",
    ],
)
def test_the_check_finds_a_flipped_bit_in_any_file(name: str) -> None:
    """Whichever file of a partition it is in, or in the marker of an orderly stop."""
    driver = _driver_with_data()
    driver.stop()
    driver.store.close()
    driver.store.mark_clean()
    assert [] == driver.problems()
    driver.flip(normpath(driver.path(name)), 5)
    assert any(name.rpartition("/")[2] in problem for problem in driver.problems())


@pytest.mark.damages_storage("bytes are taken away")
def test_the_check_finds_a_log_that_ends_below_its_checkpoint() -> None:
    """Bytes that are gone are missed."""
    driver = _driver_with_data()
    driver.checkpoint()
    driver.store.abandon()
    last = driver.log().segments[-1]
    del driver.fs.content(last.log_path)[:]
    assert any("below its checkpoint" in problem for problem in driver.problems())


def test_the_indexes_are_those_that_kafka_would_write() -> None:
    """An entry names the last offset of a batch and where it begins; timestamps rise."""
    driver = _driver_with_data()
    driver.stop()
    segment = driver.log().segments[0]
    index = bytes(driver.fs.content(segment.stem_path + ".index"))
    entries = list(OFFSET_ENTRY.iter_unpack(index))
    size = len(make_batch([b"record 000"]).buffer)
    assert [(number, number * size) for number in (2, 4)] == entries[:2]
    times = list(TIME_ENTRY.iter_unpack(bytes(driver.fs.content(segment.stem_path + ".timeindex"))))
    assert (1002, 2) == times[0]
    last = segment.entry_count - 1
    assert (1000 + last, last) == times[-1]


async def test_a_data_directory_in_use_is_not_checked(tmp_path: Path) -> None:
    """The lock holds for tools, too, and a second backend is refused."""
    backend = EmbeddedBackend(tmp_path / "data", OPTIONS)
    await backend.open()
    try:
        with pytest.raises(DataDirectoryError):
            await check_data_dir(str(tmp_path / "data"))
    finally:
        await backend.aclose()
    assert [] == await check_data_dir(str(tmp_path / "data"))
    with pytest.raises(DataDirectoryError):
        await check_data_dir(str(tmp_path))


async def test_a_lost_database_loses_no_records(tmp_path: Path) -> None:
    """The topic gets its row back from the partitions' directories, and every record is read."""
    data_dir = await _make_directory(tmp_path / "data")
    for path in data_dir.glob("meta.sqlite*"):
        path.unlink()
    found = await find_adoptable(str(data_dir))
    assert [Adoptable(TOPIC, KEY.topic_id, (0, 1), None)] == found
    await adopt(str(data_dir))
    assert [] == await find_adoptable(str(data_dir))
    backend = EmbeddedBackend(data_dir, OPTIONS)
    await backend.open()
    try:
        rows = await backend.state.load(kinds.TOPIC)
        row = TopicRow.decode(rows[format_uuid(KEY.topic_id)].value)
        assert TopicRow(TOPIC, KEY.topic_id, 2, {}) == row
        log = await backend.open_partition(KEY, TOPIC, LogSettings())
        assert 5 == log.high_watermark
        assert 5 == (await log.read(0, 1 << 20, 5)).next_offset
    finally:
        await backend.aclose()
    assert [] == await check_data_dir(str(data_dir))


async def test_a_damaged_row_is_made_anew(tmp_path: Path) -> None:
    """One flipped bit keeps the gateway from starting, and adoption helps."""
    data_dir = await _make_directory(tmp_path / "data")
    await adopt(str(data_dir))
    _damage_rows(data_dir, kinds.TOPIC)
    found, _ = await adopt(str(data_dir))
    assert [(TOPIC, (0, 1))] == [(one.topic, one.partitions) for one in found]
    async with opened_state(str(data_dir)) as state:
        rows = await state.load(kinds.TOPIC)
    assert [TopicRow(TOPIC, KEY.topic_id, 2, {})] == [
        TopicRow.decode(row.value) for row in rows.values()
    ]


async def test_what_adoption_changes_is_as_the_last_stop_left_it(tmp_path: Path) -> None:
    """The next start is none as after a crash, nor does the check take it for rot."""
    data_dir = await _make_directory(tmp_path / "data")
    found, _ = await adopt(str(data_dir))
    assert [TOPIC] == [one.topic for one in found]
    assert [] == await check_data_dir(str(data_dir))
    backend = EmbeddedBackend(data_dir, OPTIONS)
    await backend.open()
    try:
        log = await backend.open_partition(KEY, TOPIC, LogSettings())
        assert 0 == log.leader_epoch
    finally:
        await backend.aclose()


@pytest.mark.parametrize("kind", DISPENSABLE_KINDS)
async def test_damaged_rows_that_stop_the_gateway_are_removed(tmp_path: Path, kind: str) -> None:
    """The message of the start says how; a topic that was being deleted does not come back."""
    data_dir = await _make_directory(tmp_path / "data")
    is_of_topic = kind in {TOPIC_CREATION, TOPIC_DELETION}
    key = format_uuid(KEY.topic_id) if is_of_topic else CLUSTER
    async with opened_state(str(data_dir), may_create=True) as state:
        await state.apply([Change(kind, key, b"{}")])
    _damage_rows(data_dir, kind)
    backend = EmbeddedBackend(data_dir, OPTIONS)
    broken = Gateway(Config(), backend, SystemClock())
    with pytest.raises(StorageError, match="kgw log adopt"):
        await broken.start()

    found, dropped = await adopt(str(data_dir))

    assert ((kind, key),) == dropped
    assert [is_of_topic] == [one.obstacle is not None for one in found]
    mended = Gateway(Config(), EmbeddedBackend(data_dir, OPTIONS), SystemClock())
    await mended.start()
    await mended.aclose()


async def test_a_name_that_is_taken_is_not_adopted(tmp_path: Path) -> None:
    """Another topic of the same name stands in the way, and nothing is written."""
    data_dir = await _make_directory(tmp_path / "data")
    backend = EmbeddedBackend(data_dir, OPTIONS)
    await backend.open()
    row = TopicRow(TOPIC, TopicId(b"x" * 16), 1, {})
    await backend.state.apply([Change(kinds.TOPIC, row.key, row.encode())])
    await backend.aclose()
    found, _ = await adopt(str(data_dir))
    assert ["there is a topic of this name"] == [one.obstacle for one in found]


@pytest.mark.parametrize("kind", [TOPIC_CREATION, TOPIC_DELETION])
async def test_what_the_next_start_mends_is_no_problem(tmp_path: Path, kind: str) -> None:
    """A creation or a deletion that a crash interrupted is not to be adopted."""
    data_dir = await _make_directory(tmp_path / "data")
    (problem,) = await check_data_dir(str(data_dir))
    assert "see `kgw log adopt`" in problem.detail
    backend = EmbeddedBackend(data_dir, OPTIONS)
    await backend.open()
    row = TopicRow(TOPIC, KEY.topic_id, 2, {})
    await backend.state.apply([Change(kind, row.key, row.encode())])
    await backend.aclose()
    assert [] == await check_data_dir(str(data_dir))
    assert Adoption([], ()) == await adopt(str(data_dir))


def test_a_segment_is_dumped_batch_by_batch() -> None:
    """Each batch with what its checksums say; damage ends the listing."""
    driver = Driver()
    for number in range(5):
        driver.append(b"value %d" % number)
    driver.stop()
    assert [driver.segment_path()] == segment_paths(ROOT, driver.fs)
    batches = [
        one
        for one in dump_segment(driver.segment_path(), driver.fs)
        if isinstance(one, DumpedBatch)
    ]
    assert [0, 1, 2, 3, 4] == [one.batch.base_offset for one in batches]
    assert {(True, True)} == {(one.crc_matches, one.header_matches) for one in batches}
    driver.fs.content(driver.segment_path()).extend(b"rubbish")
    *_, last = dump_segment(driver.segment_path(), driver.fs)
    assert isinstance(last, DumpedDamage)
    assert 7 == last.size_bytes
    with pytest.raises(ValueError, match="not a segment"):
        list(dump_segment(driver.path("partition.json"), driver.fs))


@pytest.mark.parametrize("most", [1, None])
def test_a_dump_leaves_no_file_open(most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is read to its end or not."""
    driver = Driver()
    for number in range(30):
        driver.append(b"value %d" % number)
    opened: list[SimulatedFile] = []
    plain_open = driver.fs.open

    def note(path: str, *, create: bool = False) -> SimulatedFile:
        opened.append(plain_open(path, create=create))
        return opened[-1]

    monkeypatch.setattr(SimulatedFs, "open", staticmethod(note))
    batches = dump_segment(driver.segment_path(), driver.fs)
    assert (most or 30) == len(list(islice(batches, most)))
    del batches
    assert driver.segment_path() in {file.path for file in opened}
    for file in opened:
        with pytest.raises(OSError, match="closed"):
            file.size()
