from __future__ import annotations

from random import Random
from struct import Struct
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.log.journal import PAGE_BYTES, Journal, Redo
from tests.backend.embedded.driver import KEY, OTHER_KEY
from tests.simulated_disk import CrashMode
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIRECTORY = "/journal"


def _redo(data: bytes, position: int = 0, key: object = KEY) -> Redo:
    assert isinstance(key, type(KEY))
    return Redo(key, 0, position, [data], len(data))


@pytest.fixture
def fs() -> SimulatedFs:
    """Return a disk with an empty directory for the journal."""
    fs = SimulatedFs()
    fs.make_directory_durably(DIRECTORY)
    return fs


@pytest.fixture
def journal(fs: SimulatedFs) -> Journal:
    """Return a journal that is ready."""
    journal = Journal(fs, DIRECTORY, 8 * PAGE_BYTES)
    journal.prepare()
    return journal


def _found(fs: SimulatedFs) -> list[bytes]:
    redos: Sequence[Redo] = [*Journal(fs, DIRECTORY, 8 * PAGE_BYTES).recover().redos]
    return [b"".join(bytes(buffer) for buffer in redo.buffers) for redo in redos]


def test_frames_are_found_in_their_order(fs: SimulatedFs, journal: Journal) -> None:
    """What was appended is read back, with its place."""
    journal.append([_redo(b"one", 10), _redo(b"two", 20, OTHER_KEY)])
    journal.append([_redo(b"three" * 2000, 30)])
    journal.sync()
    found = Journal(fs, DIRECTORY, 0).recover()
    assert [] == found.problems
    assert [(KEY, 10), (OTHER_KEY, 20), (KEY, 30)] == [
        (redo.key, redo.position) for redo in found.redos
    ]
    assert [b"one", b"two", b"three" * 2000] == _found(fs)


def test_a_switched_file_counts_until_it_is_retired(fs: SimulatedFs, journal: Journal) -> None:
    """Both files are read; a retired one is void."""
    journal.append([_redo(b"first")])
    full = journal.switch()
    journal.append([_redo(b"second")])
    assert [False] == [journal.has_free_file]
    assert [b"first", b"second"] == _found(fs)
    journal.retire(full)
    assert [True] == [journal.has_free_file]
    assert [b"second"] == _found(fs)


def test_no_power_loss_brings_back_what_was_retired(fs: SimulatedFs, journal: Journal) -> None:
    """Not by itself, where nothing has been written since; and not in front of a deletion's note.

    That note is retired in its turn. Should the older file be live then, and the newer one not, the
    bytes of a deleted log would be there, and nothing that takes them back.
    """
    journal.append([_redo(b"old")])
    journal.sync()
    journal.retire(journal.switch())
    assert [] == _found(fs.power_loss(Random(0), CrashMode.NOTHING))
    journal.append_deletion(KEY)
    journal.sync()
    full = journal.switch()
    images: list[SimulatedFs] = []
    fs.on_operation = lambda *_: images.extend(fs.power_loss(Random(seed)) for seed in range(50))
    journal.retire(full)
    assert len(images) >= 50
    assert [[]] * len(images) == [_found(image) for image in images]


def test_a_reused_file_does_not_show_its_old_frames(fs: SimulatedFs, journal: Journal) -> None:
    """Frames of an earlier generation lie behind the new ones and are not taken for them."""
    for number in range(5):
        journal.append([_redo(b"old %d" % number)])
    journal.retire(journal.switch())
    journal.retire(journal.switch())
    journal.append([_redo(b"new")])
    assert [b"new"] == _found(fs)


def test_voiding_empties_the_journal(fs: SimulatedFs, journal: Journal) -> None:
    """After recovery nothing is replayed a second time."""
    journal.append([_redo(b"data")])
    Journal(fs, DIRECTORY, 0).void()
    assert [] == _found(fs)


def test_half_voided_journal_keeps_its_deletions(fs: SimulatedFs, journal: Journal) -> None:
    """Frames of a deleted log never outlast the note that takes them back, wherever a crash cuts.

    Crash states, seed 77028: a log that was created anew got the bytes of the one before it.
    """
    full = journal.switch()
    journal.append([_redo(b"old")])
    journal.retire(full)
    journal.switch()
    journal.append_deletion(KEY)
    journal.append([_redo(b"new")])
    for place in range(4):
        state = fs.clone()
        state.on_operation = _failing_at(place)
        with pytest.raises(OSError, match="cut"):
            Journal(state, DIRECTORY, 0).void()
        state.on_operation = None
        assert b"old" not in _found(state)


def _failing_at(place: int) -> Callable[[str, str], None]:
    calls = 0

    def fail(_call: str, _path: str) -> None:
        nonlocal calls
        calls += 1
        if calls > place:
            raise OSError("cut")

    return fail


def test_a_torn_last_frame_is_no_problem(fs: SimulatedFs, journal: Journal) -> None:
    """It was never answered; the frames before it count."""
    journal.append([_redo(b"whole")])
    journal.append([_redo(b"torn" * 3000)])
    fs.content(f"{DIRECTORY}/0.journal")[3 * PAGE_BYTES] ^= 1
    found = Journal(fs, DIRECTORY, 0).recover()
    assert ([b"whole"], []) == (_found(fs), found.problems)


def test_damage_before_a_whole_frame_is_reported(fs: SimulatedFs, journal: Journal) -> None:
    """The later frame proves that the earlier one was durable; the later one still counts."""
    for number in range(3):
        journal.append([_redo(b"frame %d" % number)])
    fs.content(f"{DIRECTORY}/0.journal")[2 * PAGE_BYTES + 5] ^= 1
    found = Journal(fs, DIRECTORY, 0).recover()
    assert [b"frame 0", b"frame 2"] == _found(fs)
    assert ["journal/0.journal: frames 1 to 1 are damaged"] == found.problems


def test_deleting_a_partition_drops_what_came_before(fs: SimulatedFs, journal: Journal) -> None:
    """Only bytes written after the deletion belong to the log of that key."""
    journal.append([_redo(b"old"), _redo(b"other", 0, OTHER_KEY)])
    journal.append_deletion(KEY)
    journal.append([_redo(b"new")])
    assert [b"other", b"new"] == _found(fs)


def test_entries_lie_in_a_frame_as_they_are_documented(fs: SimulatedFs, journal: Journal) -> None:
    """Other versions read them: a deletion has no place and no bytes."""
    journal.append([_redo(b"bytes", 30)])
    journal.append_deletion(OTHER_KEY)
    content = fs.content(f"{DIRECTORY}/0.journal")
    entries = [Struct(">16siIqQQ").unpack_from(content, n * PAGE_BYTES + 40) for n in (1, 2)]
    assert [(*KEY, 0, 0, 30, 5), (*OTHER_KEY, 1, 0, 0, 0)] == entries


def test_what_was_written_between_two_deletions_is_dropped(
    fs: SimulatedFs, journal: Journal
) -> None:
    """The last one counts."""
    for value in (b"first", b"second"):
        journal.append([_redo(value)])
        journal.append_deletion(KEY)
    journal.append([_redo(b"new"), _redo(b"other", 0, OTHER_KEY)])
    assert [b"new", b"other"] == _found(fs)


def test_room_is_counted_with_header_and_table(journal: Journal) -> None:
    """A frame that fits is taken, one that does not is refused."""
    assert journal.has_room(1, 7 * PAGE_BYTES - 40 - 48)
    assert not journal.has_room(1, 7 * PAGE_BYTES - 40 - 47)
