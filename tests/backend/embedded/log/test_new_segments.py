"""The segments that a group of appends begins: their names are made durable together."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kgw.errors import StorageError
from kgw.types import PartitionKey
from tests.backend.embedded.driver import JOURNALED, KEY, ROOT, SMALL_SEGMENTS, Driver, flush_group
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from kgw.backend.embedded.write.write_path import DiskAppend

KEYS = [PartitionKey(KEY.topic_id, index) for index in range(5)]


def _submit_to_all(driver: Driver) -> list[DiskAppend]:
    for key in KEYS:
        driver.log(key)
    return [driver.submit(b"value", key=key) for key in KEYS]


def test_names_are_synced_before_the_journal_and_any_answer() -> None:
    """A frame of the journal must not speak of a segment that a crash can take."""
    driver = Driver(JOURNALED)
    appends = _submit_to_all(driver)
    calls: list[str] = []
    driver.fs.on_operation = lambda call, path: calls.append(
        "journal" if "journal" in path else call
    )
    flush_group(driver.store.writes)
    driver.fs.on_operation = None
    assert [None] * len(KEYS) == [append.error for append in appends]
    assert len(KEYS) == calls.count("sync_directory")
    assert max(n for n, call in enumerate(calls) if call == "sync_directory") < calls.index(
        "journal"
    )
    driver.lose_power()
    assert [[b"value"]] * len(KEYS) == [driver.values(key) for key in KEYS]


def test_each_of_several_segments_of_a_log_is_durable_before_the_next() -> None:
    """A crash that keeps the name of the last one keeps what is below it."""
    driver = Driver(JOURNALED, SMALL_SEGMENTS)
    driver.log()
    for number in range(20):
        driver.submit(b"%d" % number * 50)
    begun: list[str] = []
    synced = 0

    def look(call: str, path: str) -> None:
        nonlocal synced
        if call == "open" and path.endswith(".log"):
            assert len(begun) == synced
            begun.append(path)
        if call == "sync_directory":
            synced += 1

    driver.fs.on_operation = look
    flush_group(driver.store.writes)
    driver.fs.on_operation = None
    assert 2 < len(begun) == synced


def test_a_name_that_cannot_be_synced_ends_all_writing() -> None:
    """As any failed sync: nothing of the group is answered, and the journal vouches for none."""
    driver = Driver(JOURNALED)
    appends = _submit_to_all(driver)
    failing = driver.store.directory.partition_path(KEYS[2])
    journaled: list[str] = []

    def strike(call: str, path: str) -> None:
        if call == "sync_directory" and path == failing:
            raise OSError(errno.EIO, "as told", path)
        if "journal" in path:
            journaled.append(call)

    driver.fs.on_operation = strike
    flush_group(driver.store.writes)
    driver.fs.on_operation = None
    assert driver.store.directory.failure is not None
    assert [] == journaled
    assert {StorageError} == {type(append.error) for append in appends}


class _WithoutDescriptors(SimulatedFs):
    """A disk for which descriptors are missing so many times, in one directory."""

    __slots__ = ("failing", "times")

    def __init__(self) -> None:
        super().__init__()
        self.failing = ""
        self.times = 0

    def sync_directory(self, path: str) -> None:
        if path == self.failing and self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "too many open files", path)
        super().sync_directory(path)


def test_a_want_of_descriptors_refuses_one_log_for_now() -> None:
    """Nothing has happened to it: the others are written, and it is when there are some again."""
    fs = _WithoutDescriptors()
    fs.make_directory_durably(ROOT)
    driver = Driver(JOURNALED, fs=fs)
    appends = _submit_to_all(driver)
    fs.failing, fs.times = driver.store.directory.partition_path(KEYS[2]), 1
    flush_group(driver.store.writes)
    assert 0 == fs.times
    assert driver.store.directory.failure is None
    assert [2] == [number for number, append in enumerate(appends) if append.error is not None]
    assert driver.append(b"again", key=KEYS[2]).error is None
    driver.lose_power()
    assert [b"again"] == driver.values(KEYS[2])
    assert [b"value"] == driver.values(KEYS[3])
