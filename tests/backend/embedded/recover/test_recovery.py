from __future__ import annotations

import errno
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import EpochStart, Snapshot
from kgw.backend.embedded.layout import DamagedRange
from kgw.backend.embedded.log.journal import FILE_NAMES
from kgw.backend.embedded.log.snapshots import load_snapshot, save_snapshot
from kgw.errors import CorruptionError, DataDirectoryError, StorageError
from kgw.problems import DAMAGE
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    ROOT,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    Driver,
    drop_before,
)
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.offsets.recovery import Checkpoint
    from kgw.types import PartitionKey

VALUES = [b"record %03d" % number for number in range(20)]


def _filled(driver: Driver) -> Driver:
    for number, value in enumerate(VALUES):
        driver.append(value, timestamp_ms=1000 + number)
    return driver


def test_a_clean_start_reads_no_segment() -> None:
    """After an orderly stop the checkpoint says everything."""
    driver = _filled(Driver(settings=SMALL_SEGMENTS))
    driver.stop()
    driver.fs.inject(Fault(FaultKind.SHORT, 1, persistent=True))
    log = driver.log()
    driver.fs.inject(None)
    assert [] == [path for call, path in driver.fs.struck if path.endswith(".log")]
    assert 20 == log.offsets.high_watermark
    assert VALUES == driver.values()
    assert 0 == log.leader_epoch
    assert [] == driver.store.directory.problems


def test_the_leader_epoch_rises_at_every_unclean_start_and_its_history_is_kept() -> None:
    """Clients can tell what was written under which epoch (KIP-320)."""
    driver = Driver()
    driver.append(b"a")
    driver.kill()
    driver.append(b"b")
    driver.append(b"c")
    driver.stop()
    driver.append(b"d")
    driver.lose_power()
    log = driver.log()
    assert (EpochStart(0, 0), EpochStart(1, 1), EpochStart(2, 4)) == log.epochs
    assert [0, 1, 1, 1, 2] == [log.epoch_at(offset) for offset in range(5)]
    end = log.epoch_end(0)
    assert end is not None
    assert 1 == end.end_offset
    assert log.epoch_end(7) is None
    driver.append(b"e")
    # In Kafka's text form.
    checkpoint = driver.fs.content(driver.path("leader-epoch-checkpoint"))
    assert b"0\n3\n0 0\n1 1\n2 4\n" == bytes(checkpoint)


@pytest.mark.parametrize("cut", [30, 61, 70, 79])
def test_a_torn_tail_is_cut_and_kept_aside(cut: int) -> None:
    """The rest of an unfinished batch goes; its bytes can be looked at."""
    driver = _filled(Driver())
    path = driver.segment_path()
    whole = bytes(driver.fs.content(path))
    driver.submit(b"torn")
    group = driver.store.writes.take_group()
    driver.log().begin_write()
    driver.log().write(group[0].batches)
    content = driver.fs.content(path)
    del content[len(whole) + min(cut, len(content) - len(whole) - 1) :]
    driver.kill()
    assert VALUES == driver.values()
    assert whole == bytes(driver.fs.content(path))
    assert 1 == len([one for one in driver.fs.files(ROOT) if one.endswith(".torn")])
    assert 20 == driver.append(b"next").result.base_offset


@pytest.mark.parametrize("position", [3, 7, 8, 11, 15, 16, 17, 22, 60, 70])
def test_damage_below_the_durable_end_costs_only_itself(position: int) -> None:
    """Also where Kafka's CRC does not look: base offset, length, epoch and magic."""
    driver = _filled(Driver())
    size = len(driver.fs.content(driver.segment_path())) // 20
    driver.flip(driver.segment_path(), 5 * size + position)
    with pytest.raises(CorruptionError):
        driver.values()
    driver.kill()
    log = driver.log()
    assert 20 == log.offsets.high_watermark
    assert any(
        "offsets 5 to 5 are damaged" in problem for problem in driver.store.directory.problems
    )
    with pytest.raises(CorruptionError):
        driver.values()
    drop_before(driver.store, log, 6)
    assert VALUES[6:] == driver.values()


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("{segment}", 100),
        *((f"{ROOT}/journal/{FILE_NAMES[0]}", position) for position in (0, 20, 5000, 9000)),
    ],
)
def test_segments_and_journal_repair_each_other(path: str, position: int) -> None:
    """What rots before the next checkpoint is in both."""
    driver = _filled(Driver(JOURNALED))
    driver.flip(path.format(segment=driver.segment_path()), position)
    driver.kill()
    assert VALUES == driver.values()


@pytest.mark.damages_storage("starts are cut off")
def test_recovery_can_be_interrupted_anywhere_and_repeated() -> None:
    """Power losses in the middle of recovery change nothing."""
    for seed in range(40):
        driver = _filled(Driver(JOURNALED if seed % 2 else DIRECT, SMALL_SEGMENTS))
        driver.lose_power(CrashMode.RANDOM, seed)
        random = Random(seed)
        images: list[object] = []
        driver.fs.on_operation = lambda _call, _path, found=images, fs=driver.fs: found.append(
            fs.power_loss(Random(len(found)))
        )
        driver.log()
        driver.fs.on_operation = None
        for image in random.sample(images, min(3, len(images))):
            again = Driver(driver.options, SMALL_SEGMENTS, image)  # type: ignore[arg-type]
            assert VALUES == again.values()


@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
@pytest.mark.parametrize("was_stopped", [False, True])
def test_nothing_rests_on_names_that_a_killed_start_has_not_synced(
    options: EmbeddedOptions, *, was_stopped: bool
) -> None:
    """Wherever a start is killed, what the next one answers survives a power loss."""
    first = SimulatedFs()
    first.make_directory_durably(ROOT)
    kept: list[bytes] = []
    checkpoints: dict[PartitionKey, Checkpoint] = {}
    if was_stopped:
        kept = list(VALUES)
        driver = _filled(Driver(options, fs=first))
        driver.stop_only()
        checkpoints = driver.checkpoints
    left: list[tuple[str, SimulatedFs]] = []
    first.on_operation = lambda call, path: left.append((f"{call} {path}", first.clone()))
    Driver(options, fs=first).log()
    first.on_operation = None
    assert len(left) > 2
    for operation, fs in left:
        driver = Driver(options, fs=fs)
        driver.checkpoints = dict(checkpoints)
        # The second append needs no new name, and may be in the journal alone.
        answered = [driver.append(value).error is None for value in (b"one", b"two")]
        assert [True, True] == answered
        driver.lose_power()
        assert [*kept, b"one", b"two"] == driver.values(), operation


@pytest.mark.parametrize("options", [DIRECT, JOURNALED])
def test_nothing_rests_on_names_that_a_start_could_not_sync(options: EmbeddedOptions) -> None:
    """Where a start failed to sync a directory, what the next one answers survives."""
    files = frozenset({"open", "create", "read", "write", "fdatasync", "truncate", "extend"})
    spared = files | {"rename", "unlink", "mkdir", "rmdir", "listdir", "free_bytes"}
    nth = 0
    is_struck = True
    while is_struck:
        nth += 1
        driver = _filled(Driver(options))
        driver.stop_only()
        driver.fs.inject(Fault(FaultKind.EIO, nth, spared=spared))
        with suppress(DataDirectoryError, StorageError):
            driver.start()
            driver.stop_only()
        is_struck = bool(driver.fs.struck)
        driver.fs.inject(None)
        driver.start()
        for value in (b"one", b"two"):
            assert driver.append(value).error is None
        driver.lose_power()
        assert [*VALUES, b"one", b"two"] == driver.values(), nth
    assert nth > 2


def _flip(content: bytearray) -> None:
    """Damage one entry."""
    content[3] ^= 0x10


def _garble(content: bytearray) -> None:
    """Leave rubbish."""
    content[:] = b"rubbish" * 50


def _cut(content: bytearray) -> None:
    """Leave less than an entry: to read before the beginning of a file fails."""
    del content[25:]


@pytest.mark.parametrize(
    ("settings", "is_killed"), [(SMALL_SEGMENTS, False), (SETTINGS, False), (SETTINGS, True)]
)
@pytest.mark.parametrize(
    ("suffix", "spoil"),
    [
        ("index", None),
        ("timeindex", None),
        *(("checksums", spoil) for spoil in (None, _flip, _garble, _cut)),
    ],
)
def test_a_derived_file_that_is_gone_or_damaged_is_made_again(
    suffix: str,
    spoil: Callable[[bytearray], None] | None,
    settings: LogSettings,
    is_killed: bool,
) -> None:
    """Reads, and the next orderly stop's check, find everything in place."""
    driver = _filled(Driver(settings=settings))
    driver.stop()
    path = driver.segment_path(suffix=suffix)
    if spoil is None:
        driver.fs.unlink(path)
    else:
        spoil(driver.fs.content(path))
    if is_killed:
        driver.kill()
    assert VALUES == driver.values()
    driver.append(b"next")
    driver.stop()
    assert [*VALUES, b"next"] == driver.values()
    driver.stop()
    assert [] == driver.problems()


@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_wrong_partition_file_is_rewritten(is_of_another: bool) -> None:
    """Its content is known from the catalogue; whoever adopts the directory would be misled."""
    driver = _filled(Driver())
    driver.append(b"x", key=OTHER_KEY)
    path, other = (driver.path("partition.json", key) for key in (KEY, OTHER_KEY))
    own = driver.fs.read_bytes(path)
    if is_of_another:
        driver.fs.content(path)[:] = driver.fs.read_bytes(other)
    else:
        driver.flip(path, 20)
    driver.kill()
    assert VALUES == driver.values()
    assert own == driver.fs.read_bytes(path)
    assert any("partition.json: " in problem for problem in driver.store.directory.problems)


@pytest.mark.damages_storage("both copies are damaged")
def test_a_damaged_log_state_is_rebuilt_from_the_batches() -> None:
    """The epochs are read from the log itself."""
    driver = _filled(Driver())
    driver.kill()
    driver.append(b"later")
    epochs = driver.log().epochs
    driver.stop()
    driver.flip(driver.path("log-state.json"), 30)
    driver.flip(driver.path("log-state.copy.json"), 30)
    log = driver.log()
    assert epochs == log.epochs[: len(epochs)]
    assert log.leader_epoch > epochs[-1].leader_epoch
    assert [*VALUES, b"later"] == driver.values()


def test_a_missing_directory_does_not_bring_offsets_back() -> None:
    """A log that is gone goes on behind its checkpoint, and it is said that it was gone."""
    driver = _filled(Driver())
    driver.checkpoint()
    driver.store.abandon()
    driver.fs.remove_tree(driver.store.directory.partition_path(KEY))
    driver.kill()
    log = driver.store.open_log(KEY, TOPIC, driver.settings, driver.checkpoints[KEY])
    assert (20, 20) == (log.offsets.log_start_offset, log.offsets.next_offset)
    assert 20 == driver.append(b"next").result.base_offset
    assert any("has no directory" in problem for problem in driver.store.directory.problems)
    driver.lose_power()
    assert [b"next"] == driver.values()


def test_a_truncated_segment_does_not_bring_offsets_back() -> None:
    """Bytes below the checkpoint that are gone leave a hole; their offsets get no second life."""
    driver = _filled(Driver())
    driver.checkpoint()
    content = driver.fs.content(driver.segment_path())
    del content[len(content) // 2 :]
    driver.kill()
    assert 20 == driver.append(b"next").result.base_offset
    with pytest.raises(CorruptionError):
        driver.values()
    drop_before(driver.store, driver.log(), 20)
    assert [b"next"] == driver.values()
    driver.kill()
    assert [b"next"] == driver.values()


@pytest.mark.parametrize("is_all_lost", [False, True])
def test_a_loss_is_told_until_all_that_it_was_among_is_deleted(is_all_lost: bool) -> None:
    """Also where nothing is left of the log, which begins behind what is missing."""
    driver = Driver()
    driver.append(b"a")
    driver.append(b"b")
    driver.stop_only()
    if is_all_lost:
        driver.fs.unlink(driver.segment_path())
    else:
        del driver.fs.content(driver.segment_path())[-10:]
    driver.start()

    def losses() -> int:
        return sum(one.reason is DAMAGE for one in driver.store.directory.found)

    driver.log()
    assert 1 == losses()
    driver.append(b"c")
    log = driver.log()
    drop_before(driver.store, log, log.offsets.high_watermark - 1)
    log.offsets.raise_log_start(log.offsets.high_watermark - 1)
    assert is_all_lost == losses()
    drop_before(driver.store, log, log.offsets.high_watermark)
    log.offsets.raise_log_start(log.offsets.high_watermark)
    assert 0 == losses()


def test_offsets_do_not_come_back_where_the_state_of_a_log_is_lost_too() -> None:
    """The checkpoint knows the end that was durable, whatever is left of the log."""
    driver = _filled(Driver())
    size_bytes = driver.fs.file_size(driver.segment_path())
    driver.kill()
    driver.append(b"under another epoch")
    driver.checkpoint()
    driver.store.abandon()
    del driver.fs.content(driver.segment_path())[size_bytes // 2 :]
    del driver.fs.content(driver.segment_path(suffix="checksums"))[10 * 40 :]
    for name in ("log-state.json", "log-state.copy.json"):
        driver.flip(driver.path(name), 30)
    driver.kill()
    log = driver.log()
    assert (DamagedRange(10, 21),) == log.damaged
    assert 21 == driver.append(b"next").result.base_offset


@pytest.mark.damages_storage("bytes are put between two segments")
def test_bytes_between_two_segments_are_no_offsets() -> None:
    """They are told of as what they are, and no record is missed for them."""
    driver = _filled(Driver(settings=SMALL_SEGMENTS))
    driver.store.abandon()
    driver.fs.content(driver.segment_path()).extend(b"rubbish")
    driver.fs.unlink(driver.segment_path(suffix="checksums"))
    driver.start()
    assert VALUES == driver.values()
    assert any(
        "the bytes before offset 5 are no batch" in one for one in driver.store.directory.problems
    )
    assert not any("offsets" in one for one in driver.store.directory.problems)


@pytest.mark.damages_storage("the log's state is removed")
@pytest.mark.parametrize("is_clean", [True, False])
def test_the_leader_epoch_does_not_go_back_where_the_state_of_a_log_is_lost(
    is_clean: bool,
) -> None:
    """No batch was written in the last ones, and a client of them must be told of what is cut."""
    driver = _filled(Driver())
    for _ in range(3):
        driver.kill()
        before = driver.log().leader_epoch
        driver.checkpoint()
    if is_clean:
        driver.stop_only()
    else:
        driver.store.abandon()
    for name in {"log-state.json", "log-state.copy.json"} & {*driver.fs.listdir(driver.path(""))}:
        driver.fs.unlink(driver.path(name))
    driver.start()
    log = driver.log()
    assert 3 == before < log.leader_epoch
    end = log.epoch_end(before)
    assert end is not None
    assert 20 == end.end_offset


def test_damage_that_could_not_be_noted_is_noted_before_the_next_append() -> None:
    """Or readers would be led past the hole without a word after the next orderly stop."""

    class FullDisk(SimulatedFs):
        is_full = False

        def strike(self, call: str, path: str) -> FaultKind | None:
            if self.is_full and call == "write" and "log-state" in path:
                raise OSError(errno.ENOSPC, "no space", path)
            return super().strike(call, path)

    fs = FullDisk()
    fs.make_directory_durably(ROOT)
    driver = _filled(Driver(fs=fs))
    driver.checkpoint()
    content = fs.content(driver.segment_path())
    del content[len(content) // 2 :]
    fs.is_full = True
    driver.kill()
    assert (DamagedRange(10, 20),) == driver.log().damaged
    fs.is_full = False
    driver.append(b"next")
    driver.stop()
    assert (DamagedRange(10, 20),) == driver.log().damaged
    with pytest.raises(CorruptionError):
        driver.values()


def test_whole_batches_that_a_sealed_segment_lost_are_missed() -> None:
    """The segment behind it says where it ended; readers are not led past the hole."""
    driver = _filled(Driver(settings=SMALL_SEGMENTS))
    first, second = driver.log().segments[:2]
    count = second.base_offset
    size_bytes = driver.fs.file_size(first.log_path)
    driver.store.abandon()
    del driver.fs.content(first.log_path)[size_bytes * (count - 1) // count :]
    driver.kill()
    assert (DamagedRange(count - 1, count),) == driver.log().damaged
    with pytest.raises(CorruptionError):
        driver.values()


def test_a_lost_checkpoint_costs_time_and_nothing_else() -> None:
    """Without the database's rows the log itself says where it ends."""
    driver = _filled(Driver(settings=SMALL_SEGMENTS))
    driver.checkpoint()
    driver.append(b"next")
    driver.checkpoints.clear()
    driver.kill()
    assert [*VALUES, b"next"] == driver.values()


def test_another_logs_checkpoint_is_not_believed() -> None:
    """It is reported, and the log is read."""
    driver = _filled(Driver())
    driver.append(b"x", key=OTHER_KEY)
    driver.checkpoint()
    driver.checkpoints[KEY] = driver.checkpoints[OTHER_KEY]
    driver.kill()
    assert VALUES == driver.values()
    assert any("another log" in problem for problem in driver.store.directory.problems)


def test_a_damaged_clean_marker_means_recovery() -> None:
    """It is not believed, and the start succeeds."""
    driver = _filled(Driver())
    checkpoints = driver.store.close()
    driver.checkpoints = {KEY: checkpoints[0]}
    driver.store.mark_clean()
    driver.flip(f"{ROOT}/clean.json", 5)
    driver.kill()
    assert not driver.store.clean_stop
    assert VALUES == driver.values()


@pytest.mark.damages_storage("a newer format is claimed")
def test_a_newer_format_is_refused() -> None:
    """A directory of a later version is left alone."""
    driver = Driver()
    driver.fs.replace_durably(f"{ROOT}/format.json", b'{"format":99}\n' + b"crc32c 00000000\n")
    with pytest.raises(DataDirectoryError):
        driver.kill()


def test_a_tail_of_zeros_is_cut_without_keeping_it() -> None:
    """What a file system leaves of a size that reached the disk before its data."""
    driver = _filled(Driver())
    driver.fs.content(driver.segment_path()).extend(bytes(5000))
    driver.kill()
    assert VALUES == driver.values()
    assert [] == [one for one in driver.fs.files(ROOT) if one.endswith(".torn")]


def test_a_missing_checkpoint_is_reported_after_an_orderly_stop_only() -> None:
    """A log that was killed before its first checkpoint has none."""
    driver = _filled(Driver())
    driver.kill()
    assert VALUES == driver.values()
    assert [] == driver.store.directory.problems
    driver.stop()
    driver.checkpoints.clear()
    assert VALUES == driver.values()
    assert any("has no checkpoint" in problem for problem in driver.store.directory.problems)


def test_a_snapshot_of_records_that_are_gone_is_gone_for_good() -> None:
    """Later records reach its offset: what it knows of the lost ones would be believed of them."""
    driver = Driver()
    for number in range(4):
        driver.append(b"%d" % number)
    for offset in (2, 4):
        save_snapshot(driver.log(), Snapshot(offset, b"of the first %d" % offset))
    for suffix in ("log", "checksums"):
        content = driver.fs.content(driver.segment_path(suffix=suffix))
        del content[3 * len(content) // 4 :]
    driver.kill()
    assert [b"0", b"1", b"2"] == driver.values()
    for number in range(3):
        driver.append(b"other %d" % number)
    for restart in (None, driver.kill, driver.stop):
        if restart is not None:
            restart()
        log = driver.log()
        assert log.offsets.next_offset > 4
        found = load_snapshot(log, log.offsets.next_offset)
        assert Snapshot(2, b"of the first 2") == found


def test_every_cut_raises_the_epoch() -> None:
    """Wherever the end of a log is torn, what comes after it has an epoch of its own."""
    whole = _filled(Driver())
    whole.checkpoint()
    whole.append(b"x" * 300)
    size = whole.fs.file_size(whole.segment_path())
    for lost_bytes in range(1, 370, 23):
        driver = _filled(Driver())
        driver.checkpoint()
        driver.append(b"x" * 300)
        epoch = driver.log().leader_epoch
        driver.store.abandon()
        driver.fs.unlink(driver.segment_path(suffix="checksums"))
        del driver.fs.content(driver.segment_path())[size - lost_bytes :]
        driver.kill()
        assert driver.log().leader_epoch == epoch + 1
        assert 20 == driver.append(b"other").result.base_offset
        assert epoch + 1 == driver.log().epoch_at(20)
        ended = driver.log().epoch_end(epoch)
        assert ended is not None
        assert 20 == ended.end_offset
