from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kgw.backend.embedded.log.segment import SegmentMark
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.testing.batches import make_batch
from kgw.types import PartitionKey, TopicId
from tests.backend.embedded.driver import ROOT, SETTINGS, Driver, flush_group
from tests.simulated_fs import SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from kgw.errors import StorageError

PARTITIONS = 60
FEW = EmbeddedOptions(
    journal_bytes=4 << 20, min_free_bytes=0, open_files=16, group_partitions=8, dirty_segments=8
)


class CountingFs(SimulatedFs):
    """Refuses to open more files than a process may have."""

    __slots__ = ("_opened", "limit", "most")

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1 << 30
        self.most = 0
        self._opened: list[SimulatedFile] = []

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self._check(path)
        file = super().open(path, create=create)
        self._opened.append(file)
        self.most = max(self.most, len(self._opened))
        return file

    def sync_directory(self, path: str) -> None:
        self._check(path)
        super().sync_directory(path)

    def _check(self, path: str) -> None:
        self._opened = [file for file in self._opened if _is_open(file)]
        if len(self._opened) >= self.limit:
            raise OSError(errno.EMFILE, "too many open files", path)


def _is_open(file: SimulatedFile) -> bool:
    try:
        file.size()
    except OSError:
        return False
    return True


def _driver() -> tuple[Driver, CountingFs]:
    fs = CountingFs()
    fs.make_directory_durably(ROOT)
    return Driver(FEW, SETTINGS, fs), fs


def _keys(count: int = PARTITIONS) -> list[PartitionKey]:
    return [PartitionKey(TopicId(bytes(range(16))), number) for number in range(count)]


def _append_to_all(driver: Driver, count: int = PARTITIONS) -> list[StorageError | None]:
    appends = [driver.submit(b"value", key=key) for key in _keys(count)]
    while driver.store.writes.pending:
        flush_group(driver.store.writes)
    return [append.error for append in appends]


def test_descriptors_do_not_grow_with_the_partitions_written() -> None:
    """A file with unsynced bytes stays open, so that only so many may have some."""
    driver, fs = _driver()
    for _ in range(3):
        assert [None] * PARTITIONS == _append_to_all(driver)
    assert fs.most < FEW.open_files + 5 * FEW.dirty_segments


def test_replay_of_the_journal_holds_few_files_open() -> None:
    """A journal that knows many partitions does not keep the next start from succeeding."""
    driver, fs = _driver()
    driver.options = FEW._replace(group_partitions=1000, dirty_segments=1000)
    driver.kill()
    assert [None] * PARTITIONS == _append_to_all(driver)
    driver.store.abandon()
    fs.most, fs.limit = 0, 30
    driver.kill()
    assert fs.most <= 20
    assert all([b"value"] == driver.values(key) for key in _keys())


def test_a_want_of_descriptors_passes() -> None:
    """Appends that need one more are refused; once there are some again, all are taken."""
    driver, fs = _driver()
    for key in _keys()[:10]:
        driver.append(b"first", key=key)
    logs = [driver.log(key) for key in _keys()]
    fs.limit = 0
    driver.store.directory.pool.close()
    appends = [driver.store.writes.submit(log, [make_batch([b"refused"])]) for log in logs[:20]]
    while driver.store.writes.pending:
        flush_group(driver.store.writes)
    assert 20 == sum(append.error is not None for append in appends)
    assert driver.store.directory.failure is None
    fs.limit = 1 << 30
    for key in _keys()[:20]:
        assert driver.append(b"second", key=key).error is None
    assert [b"first", b"second"] == driver.values(_keys()[0])
    assert [b"second"] == driver.values(_keys()[15])
    assert [] == driver.problems()


def test_an_undone_write_leaves_its_side_file_before_its_batches() -> None:
    """A power loss in between must not make entries of cut batches look like damage."""
    driver = Driver(EmbeddedOptions(journal_append_bytes=0, min_free_bytes=0), SETTINGS)
    driver.append(b"kept")
    segment = driver.log().segments[-1]
    order: list[str] = []
    driver.fs.on_operation = lambda call, path: order.append(f"{call} {path.rsplit('.')[-1]}")
    mark = SegmentMark(segment)
    batch = make_batch([b"given up"])
    batch.assign(1, 0)
    segment.write([batch], SETTINGS)
    segment.write_side(at_least_bytes=1)
    order.clear()
    segment.go_back(mark)
    assert ["truncate checksums", "fdatasync checksums", "truncate log", "fdatasync log"] == order
