"""Torn tails that are kept: which of them, how many, and what is said of them."""

from __future__ import annotations

import errno
from asyncio import to_thread
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.admin.exposition import render
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.log.quarantine import Quarantine
from kgw.series import take_snapshot
from kgw.state.memory import MemoryStateStore
from kgw.testing.gateway import InProcessGateway
from tests.backend.embedded.driver import DIRECT, KEY, OTHER_KEY, ROOT, Driver
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from kgw.types import PartitionKey

OPTIONS = DIRECT._replace(quarantine_bytes=1_000)


def _tear(driver: Driver, tail: bytes, key: PartitionKey = KEY) -> list[str]:
    """Leave the rest of an unfinished write behind a log, and start again.

    Returns what is said about it in the log.
    """
    driver.store.abandon()
    driver.fs.content(driver.path(f"{0:020d}.log", key)).extend(tail)
    driver.kill()
    said: list[str] = []
    driver.store.directory.announce = driver.store.directory.remark = said.append
    driver.log(key)
    return [one for one in said if "cut off" in one or "make room" in one]


def _kept(driver: Driver) -> dict[str, bytes]:
    """Return the files in `quarantine/`, the oldest first."""
    paths = driver.fs.files(f"{ROOT}/quarantine")
    return {path.rpartition("/")[2]: driver.fs.read_bytes(path) for path in paths}


def _driver() -> Driver:
    driver = Driver(OPTIONS)
    for key in (KEY, OTHER_KEY):
        driver.append(b"first", key=key)
    return driver


def test_tails_that_are_torn_at_the_same_place_are_all_kept() -> None:
    """The second is no other form of the first; who is told of both can look at both."""
    driver = _driver()
    for number in range(3):
        (said,) = _tear(driver, b"tail %d" % number)
        assert "6 bytes that were cut off are kept" in said
        assert [*_kept(driver)][-1] in said
    assert [b"tail 0", b"tail 1", b"tail 2"] == [*_kept(driver).values()]
    assert [] == driver.store.directory.problems
    assert 18 == driver.store.directory.quarantine.size_bytes


def test_the_oldest_make_room_and_are_named_before_they_go() -> None:
    """Many unclean stops take no more than the limit, whichever partitions are torn."""
    driver = _driver()
    tails = [b"%03d" % number * 50 for number in range(40)]
    said: list[str] = []
    for number, tail in enumerate(tails):
        names = [*_kept(driver)]
        found = _tear(driver, tail, (KEY, OTHER_KEY)[number % 2])
        gone = [name for name in names if name not in _kept(driver)]
        assert gone == [name for name in names if any(name in one for one in found)]
        assert all("150 bytes" in one for one in found)
        said += found
    # Six times 150 bytes fit.
    assert tails[-6:] == [*_kept(driver).values()]
    assert 34 == len([one for one in said if "make room" in one])
    assert [[b"first"], [b"first"]] == [driver.values(key) for key in (KEY, OTHER_KEY)]


def _many(fs: SimulatedFs, said: list[str]) -> Quarantine:
    """Return a quarantine of three files at most, which holds two of five bytes."""
    fs.make_directory_durably("/q")
    for number in (1, 2):
        fs.replace_durably(f"/q/{number:010d}-old.torn", b"old %d" % number)
    quarantine = Quarantine(fs, "/q", 1_000, said.append, lambda _: None, files_max=3)
    quarantine.look()
    return quarantine


def _keep(quarantine: Quarantine, fs: SimulatedFs, count: int) -> None:
    for number in range(count):
        file = fs.open(f"/{number}.log", create=True)
        file.pwrite((b"%05d" % number,), 0)
        quarantine.keep("topic-0", f"{number:020d}", file, 0)


def test_the_number_of_files_is_bounded_too() -> None:
    """Many small tails would otherwise be looked through at each one that is cut."""
    fs, said = SimulatedFs(), list[str]()
    quarantine = _many(fs, said)
    _keep(quarantine, fs, 4)
    assert [b"00001", b"00002", b"00003"] == [fs.read_bytes(path) for path in fs.files("/q")]
    assert 3 == len([one for one in said if "make room" in one])
    assert 15 == quarantine.size_bytes


def test_the_directory_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that cuts many tails does not ask for all sizes at each of them."""
    fs = SimulatedFs()
    quarantine = _many(fs, [])
    listed: list[str] = []
    monkeypatch.setattr(SimulatedFs, "listdir", lambda _, path: listed.append(path))
    _keep(quarantine, fs, 4)
    assert [] == listed
    assert 3 == len(fs.files("/q"))


def test_files_that_were_taken_away_need_no_room() -> None:
    """Whoever looks at the directory may move them; nothing is said of what is gone already."""
    fs, said = SimulatedFs(), list[str]()
    quarantine = _many(fs, said)
    fs.unlink("/q/0000000001-old.torn")
    _keep(quarantine, fs, 2)
    assert [b"old 2", b"00000", b"00001"] == [fs.read_bytes(path) for path in fs.files("/q")]
    assert [] == said


def test_files_of_others_are_not_counted_and_stay() -> None:
    """Also those that were kept by versions which gave them no number: they are the oldest."""
    driver = _driver()
    for name in ("notes.txt", f"{KEY}-{0:020d}-70.torn"):
        driver.fs.replace_durably(f"{ROOT}/quarantine/{name}", b"x" * 600)
    assert 2 == len(_tear(driver, b"y" * 500))
    assert [b"y" * 500, b"x" * 600] == [*_kept(driver).values()]
    assert "notes.txt" in _kept(driver)


def test_what_a_crash_has_left_half_written_goes_at_the_next_start() -> None:
    """The tail that it was to hold has not been cut, or it would be there whole."""
    driver = _driver()
    driver.fs.on_operation = _stop_before_the_rename
    with pytest.raises(KeyboardInterrupt):
        driver.fs.replace_durably(f"{ROOT}/quarantine/0000000007-other.torn", b"half")
    driver.fs.on_operation = None
    assert 1 == len(_kept(driver))
    driver.kill()
    assert {} == _kept(driver)


def _stop_before_the_rename(call: str, _path: str) -> None:
    """The file has been written by then, and has its name of a moment."""
    if call == "fdatasync":
        raise KeyboardInterrupt


def test_a_tail_that_is_larger_than_the_limit_is_kept_in_part_and_that_is_said() -> None:
    """Nothing goes without a word."""
    driver = _driver()
    said = _tear(driver, b"z" * 1_500)
    assert [b"z" * 1_000] == [*_kept(driver).values()]
    assert any("lacks the last 500 bytes" in one for one in said)


def test_a_full_disk_keeps_no_log_from_being_opened() -> None:
    """The tail is cut without being kept, and that is said."""
    driver = _driver()
    driver.store.abandon()
    driver.fs.content(driver.segment_path()).extend(b"tail")
    driver.kill()
    writes = frozenset({"fdatasync", "extend", "rename", "mkdir", "create"})
    driver.fs.inject(Fault(FaultKind.ENOSPC, 1, spared=writes))
    assert [b"first"] == driver.values()
    driver.fs.inject(None)
    assert {} == _kept(driver)
    assert any("4 bytes are cut off and not kept" in one for one in driver.store.directory.problems)


def test_a_directory_that_cannot_be_read_refuses_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds nothing that is needed; that it cannot be read is reported."""
    driver = _driver()
    listdir = SimulatedFs.listdir

    def refuse(fs: SimulatedFs, path: str) -> list[str]:
        if path.endswith("/quarantine"):
            raise OSError(errno.EIO, "gone", path)
        return listdir(fs, path)

    monkeypatch.setattr(SimulatedFs, "listdir", refuse)
    driver.kill()
    assert [b"first"] == driver.values()
    assert any("quarantine" in one for one in driver.store.directory.problems)


async def test_the_metric_says_how_much_is_kept() -> None:
    """From the start on; the directory may be full of what an earlier process has cut off."""
    fs = SimulatedFs()
    for path in (ROOT, f"{ROOT}/quarantine"):
        fs.make_directory_durably(path)
    fs.replace_durably(f"{ROOT}/quarantine/0000000001-earlier.torn", b"x" * 700)
    backend = EmbeddedBackend(ROOT, OPTIONS, fs=fs, state=MemoryStateStore())
    async with InProcessGateway(backend=backend) as running:
        running.gateway.metrics.refresh()
        assert b"\nkgw_quarantine_bytes 700.0\n" in await to_thread(
            render, take_snapshot(running.gateway.metrics)
        )


@pytest.mark.slow
def test_a_start_that_is_interrupted_keeps_a_tail_once_and_leaves_nothing_half_written() -> None:
    """Wherever the power goes, and whatever it leaves: the tail is kept before it is cut."""
    driver = _driver()
    driver.fs.sync_directory(driver.path("")[:-1])
    driver.store.abandon()
    file = driver.fs.open(driver.segment_path())
    file.pwrite((b"tail" * 50,), file.size())
    file.fdatasync()
    left = driver.fs
    images: list[SimulatedFs] = []
    left.on_operation = lambda *_: images.extend(left.power_loss(Random(seed)) for seed in range(8))
    driver.kill()
    driver.log()
    left.on_operation = None
    assert len(images) > 8 * 8
    for image in images:
        again = Driver(OPTIONS, fs=image)
        assert [b"first"] == again.values()
        assert [b"tail" * 50] == [*_kept(again).values()]
        assert all(name.endswith(".torn") for name in _kept(again))
