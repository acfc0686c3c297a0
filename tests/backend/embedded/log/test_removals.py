"""Deletions that fail on the way: the next attempt finishes them."""

from __future__ import annotations

import pytest

from kgw.backend.base import NOT_OPEN
from kgw.errors import StorageError
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import (
    JOURNALED,
    KEY,
    OTHER_KEY,
    ROOT,
    SETTINGS,
    TOPIC,
    Driver,
    opened,
)
from tests.backend.embedded.test_descriptors import CountingFs
from tests.simulated_fs import Fault, FaultKind

NO_FAULT_BUT_SYNCS = frozenset({"open", "write", "rename", "listdir", "rmdir", "unlink"})


def _driver() -> tuple[Driver, CountingFs]:
    fs = CountingFs()
    fs.make_directory_durably(ROOT)
    return Driver(JOURNALED, SETTINGS, fs), fs


def _delete(driver: Driver) -> str | None:
    """Delete as the backend does."""
    return driver.store.remove_log(KEY, driver.store.retire_log(KEY))


def _fail_to_delete(driver: Driver, fs: CountingFs) -> None:
    """Delete while there is no descriptor to sync a directory with."""
    driver.store.directory.pool.close()
    fs.limit = 0
    with pytest.raises(StorageError, match="too many open files"):
        _delete(driver)
    fs.limit = 1 << 30


def test_a_second_attempt_makes_a_deletion_durable() -> None:
    """The first had renamed the directory, and had no descriptor to make that durable with."""
    driver, fs = _driver()
    driver.append(b"deleted")
    _fail_to_delete(driver, fs)
    left = _delete(driver)
    assert left is not None
    assert fs.is_directory(left)
    driver.lose_power()
    assert KEY not in driver.store.on_disk


def test_a_deletion_is_not_told_as_done_while_there_are_no_descriptors() -> None:
    """Each attempt says so, and a power loss brings back all of the records until one succeeds."""
    driver, fs = _driver()
    driver.append(b"kept")
    _fail_to_delete(driver, fs)
    _fail_to_delete(driver, fs)
    driver.lose_power()
    assert [b"kept"] == driver.values()


def test_a_deletion_whose_sync_has_failed_is_never_told_as_done() -> None:
    """Another sync would succeed, and prove nothing."""
    driver, fs = _driver()
    driver.append(b"deleted")
    fs.inject(Fault(FaultKind.EIO, 1, spared=NO_FAULT_BUT_SYNCS))
    with pytest.raises(StorageError):
        _delete(driver)
    with pytest.raises(StorageError):
        _delete(driver)


def test_no_deletion_is_noted_in_a_journal_whose_sync_has_failed() -> None:
    """Behind the frame that was lost, the next start would take that one for damaged."""
    driver, _ = _driver()
    driver.append(b"kept", key=OTHER_KEY)
    driver.append(b"deleted")
    with driver.failing(Fault(FaultKind.EIO, 1, spared=NO_FAULT_BUT_SYNCS, suffix=".journal")):
        assert isinstance(driver.append(b"lost", key=OTHER_KEY).error, StorageError)
    assert _delete(driver) is not None
    driver.lose_power()
    assert [] == driver.store.directory.problems
    assert [b"kept"] == driver.values(OTHER_KEY)
    assert KEY not in driver.store.on_disk


def test_a_log_is_created_anew_only_once_the_old_one_is_gone_for_good() -> None:
    """Or the journal would give it the old one's bytes."""
    driver, fs = _driver()
    driver.append(b"old, and longer")
    _fail_to_delete(driver, fs)
    fs.limit = 0
    with pytest.raises(StorageError):
        driver.store.create_log(KEY, TOPIC, SETTINGS)
    fs.limit = 1 << 30
    driver.append(b"new")
    driver.lose_power()
    assert [b"new"] == driver.values()


def test_a_second_attempt_tells_the_journal() -> None:
    """The first had no room for the note."""
    driver, fs = _driver()
    driver.append(b"deleted")
    driver.append(b"kept", key=OTHER_KEY)
    fs.inject(Fault(FaultKind.ENOSPC, 1, spared=frozenset({"rename", "fdatasync"})))
    with pytest.raises(StorageError):
        _delete(driver)
    fs.inject(None)
    assert driver.store.removals.is_unfinished(KEY)
    left = _delete(driver)
    assert left is not None
    assert not driver.store.removals.is_unfinished(KEY)
    driver.store.trimmer.remove_directory(left)
    # As when two attempts meet.
    driver.store.trimmer.remove_directory(left)
    assert _delete(driver) is None
    assert [] == driver.store.directory.problems
    driver.lose_power()
    assert [b"kept"] == driver.values(OTHER_KEY)


async def test_a_backend_finishes_a_deletion_at_the_second_attempt() -> None:
    """Nothing of the partition is left then, on the disk or in memory."""
    fs = CountingFs()
    async with opened(options=JOURNALED, fs=fs) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await backend.threads.maintain(int)  # behind the making of the journal
        await log.append([make_batch([b"deleted"])])
        fs.limit = 0
        with pytest.raises(StorageError):
            await backend.delete_partition(KEY)
        fs.limit = 1 << 30
        assert {} == backend.partitions
        await backend.delete_partition(KEY)
        assert [] == fs.listdir(f"{ROOT}/partitions")
    assert (NOT_OPEN,) == backend.health.found
