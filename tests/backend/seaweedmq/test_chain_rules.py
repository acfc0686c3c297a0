from __future__ import annotations

from dataclasses import replace
from json import dumps, loads

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.seaweedmq.chain.files import ChainFile, ChunkNote
from kgw.backend.seaweedmq.chain.leader import FileRow, Leader, leader_entry, read_leader
from kgw.backend.seaweedmq.chain.marks import (
    NOTES,
    Marks,
    file_attributes,
    pack_notes,
    read_file,
    read_marks,
)
from kgw.backend.seaweedmq.chain.names import next_name
from kgw.backend.seaweedmq.chain.outcome import ChangeOutcome, judge
from kgw.backend.seaweedmq.chain.settling import pause_s
from kgw.backend.seaweedmq.filer import Chunk, FilerEntry
from kgw.errors import CorruptionError

MARKS = Marks(b"orders-0", 3, 7, b"writer-a")
LEADER = Leader(
    (
        FileRow("2026-11-23-18-00-00", 0, 10, 1, 100, 5, 70),
        FileRow("2026-11-23-18-00-01", 10, 10, 2, 0, -1, 0),
    ),
    True,
    "2026-11-23-18-00-02",
    ("2026-11-23-18-00-02",),
    bytes(range(256)),
)

# --- names ---


def test_a_name_is_the_utc_second_in_which_the_file_begins() -> None:
    """As SMQ writes it, with an end by which SMQ's broker never takes it for one of its own."""
    assert "2023-11-14-22-13-20.kgw" == next_name("", 1_700_000_000_999)


@given(st.lists(st.integers(-(2**63), 2**63), min_size=1, max_size=20))
def test_names_rise_whatever_the_clock_says(clock_ms: list[int]) -> None:
    """Also when it stands, goes back, or is off by millennia; all have one length, to be sorted."""
    names = [""]
    for wall_ms in clock_ms:
        names.append(next_name(names[-1], wall_ms))
    assert sorted(set(names)) == names
    assert {23} == {len(name) for name in names[1:]}


def test_a_name_of_another_kind_is_not_counted_on() -> None:
    """What is not SMQ's form has no second after it."""
    with pytest.raises(ValueError, match="does not match"):
        next_name("leader.offset", 0)


# --- attributes ---


def test_no_expected_value_is_empty() -> None:
    """A filer takes an absent attribute for an empty one."""
    marks = Marks(b"x", 0, 0, b"")
    assert {"kgw.identity", "kgw.epoch", "kgw.changes"} == set(marks.expected)
    assert all(marks.expected.values())


def test_marks_come_back() -> None:
    """From the attributes of an entry; a change of one is an error that names the place."""
    assert MARKS == read_marks(FilerEntry("f", extended=MARKS.attributes), "place")
    assert MARKS._replace(changes=8) == MARKS.changed()
    for key in MARKS.attributes:
        rest = {name: value for name, value in MARKS.attributes.items() if name != key}
        with pytest.raises(CorruptionError, match="the place"):
            read_marks(FilerEntry("f", extended=rest), "the place")
    with pytest.raises(CorruptionError):
        read_marks(FilerEntry("f", extended={**MARKS.attributes, "kgw.epoch": b"1"}), "")


def of_two_chunks() -> tuple[ChainFile, FilerEntry]:
    """Return a file and its entry."""
    file = ChainFile("f", 5, 99, end_offset=5, is_loaded=True)
    file.add(Chunk("1,a", 0, 10, 1), ChunkNote(5, 1_000, 7), 8)
    file.add(Chunk("1,b", 10, 20, 2), ChunkNote(8, 900, 8), 12)
    attributes = file_attributes(MARKS, 5, pack_notes(file.notes), 12)
    return file, FilerEntry("f", tuple(file.chunks), extended=attributes)


def test_a_file_has_the_attributes_that_smq_reads() -> None:
    """Eight bytes big endian: first and last offset, both inclusive. An empty file has neither."""
    _, entry = of_two_chunks()
    assert (5).to_bytes(8, "big") == entry.extended["offset_min"]
    assert (11).to_bytes(8, "big") == entry.extended["offset_max"]
    assert (5).to_bytes(8, "big") == entry.extended["buffer_start"]
    empty = file_attributes(MARKS, 5, b"", 5)
    assert not {"offset_min", "offset_max"} & set(empty)


def test_a_file_comes_back_from_its_entry() -> None:
    """With chunks and notes, size, time and end; also the empty one."""
    file, entry = of_two_chunks()
    begun = ChainFile("f", 5, 99)
    assert file == read_file(entry, begun, "place")
    assert (30, 15, 1_000, 12) == (
        file.size_bytes,
        file.content_bytes,
        file.largest_timestamp_ms,
        file.end_offset,
    )
    empty = FilerEntry("f", extended=file_attributes(MARKS, 5, b"", 5))
    assert replace(begun, end_offset=5, is_loaded=True) == read_file(empty, begun, "place")


def test_a_file_that_contradicts_itself_is_damage() -> None:
    """A chunk without a note, a hole between chunks, offsets that go back, a torn attribute."""
    _, entry = of_two_chunks()
    begun = ChainFile("f", 5, 99)
    notes = pack_notes([ChunkNote(8, 1), ChunkNote(5, 1)])
    first, second = entry.chunks
    for damaged in (
        entry._replace(chunks=(first,)),
        entry._replace(chunks=(first, second._replace(position=11))),
        entry._replace(extended={**entry.extended, NOTES: notes}),
        entry._replace(extended={**entry.extended, NOTES: notes[:-1]}),
        entry._replace(extended={**entry.extended, "offset_max": b""}),
    ):
        with pytest.raises(CorruptionError, match="the place"):
            read_file(damaged, begun, "the place")
    with pytest.raises(CorruptionError):
        read_file(entry, replace(begun, base_offset=6), "")


# --- the leader entry ---


def test_the_leader_entry_comes_back() -> None:
    """Small, inline, and for people to read."""
    entry = leader_entry(LEADER, MARKS, 17)
    assert (LEADER, MARKS) == read_leader(entry, "place")
    assert ("leader.offset", 17, ()) == (entry.name, entry.modified_s, entry.chunks)
    assert 1 == loads(entry.content)["version"]


def test_a_damaged_leader_entry_is_never_an_empty_chain() -> None:
    """Each byte counts, and so do its attributes."""
    entry = leader_entry(LEADER, MARKS, 17)
    for place in range(len(entry.content)):
        damaged = bytearray(entry.content)
        damaged[place] ^= 1
        with pytest.raises(CorruptionError):
            read_leader(entry._replace(content=bytes(damaged)), "place")
    for content in (b"", b"{}", b"null", entry.content[:-1]):
        with pytest.raises(CorruptionError, match="the place"):
            read_leader(entry._replace(content=content), "the place")
    other = leader_entry(LEADER, MARKS.changed(), 17)
    with pytest.raises(CorruptionError, match="contradict"):
        read_leader(entry._replace(extended=other.extended), "place")


def test_a_newer_version_is_named() -> None:
    """Nobody guesses what it means."""
    entry = leader_entry(LEADER, MARKS, 17)
    body = {**loads(entry.content), "version": 2}
    with pytest.raises(CorruptionError, match="version 2"):
        read_leader(entry._replace(content=dumps(body).encode()), "place")


# --- outcomes ---

AFTER = MARKS.changed()
TAKEN = MARKS._replace(epoch=4, writer=b"writer-b")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (AFTER, ChangeOutcome.DONE),
        (MARKS, ChangeOutcome.OPEN),
        (None, ChangeOutcome.GONE),
        (MARKS._replace(identity=b"other"), ChangeOutcome.DAMAGED),
        (MARKS._replace(epoch=4, writer=b"writer-b"), ChangeOutcome.TAKEN_OVER),
        (AFTER._replace(epoch=5, writer=b"writer-c"), ChangeOutcome.TAKEN_OVER),
        (AFTER.changed(), ChangeOutcome.DAMAGED),
        (MARKS._replace(changes=6), ChangeOutcome.DAMAGED),
        (MARKS._replace(epoch=2), ChangeOutcome.DAMAGED),
    ],
)
def test_what_became_of_a_writers_change(found: Marks | None, verdict: ChangeOutcome) -> None:
    """It is done, may still be, never will be, or something is wrong."""
    assert verdict == judge(found, MARKS, AFTER)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (TAKEN, ChangeOutcome.DONE),
        (MARKS, ChangeOutcome.OPEN),
        (AFTER, ChangeOutcome.OVERTAKEN),
        (TAKEN._replace(writer=b"writer-c"), ChangeOutcome.TAKEN_OVER),
        (TAKEN._replace(epoch=5), ChangeOutcome.TAKEN_OVER),
        (MARKS._replace(changes=6), ChangeOutcome.DAMAGED),
        (None, ChangeOutcome.GONE),
    ],
)
def test_what_became_of_a_take_over(found: Marks | None, verdict: ChangeOutcome) -> None:
    """Two that ask for the same epoch at the same time know whose it is."""
    assert verdict == judge(found, MARKS, TAKEN)


def test_a_take_over_is_overtaken_by_an_earlier_one() -> None:
    """Which had raised the leader entry's epoch before, and only now comes to the file."""
    after = MARKS._replace(epoch=5, writer=b"writer-c")
    assert ChangeOutcome.OVERTAKEN == judge(TAKEN, MARKS, after)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (AFTER, ChangeOutcome.DONE),
        (None, ChangeOutcome.OPEN),
        (MARKS._replace(epoch=2), ChangeOutcome.OVERTAKEN),
        (MARKS._replace(epoch=4), ChangeOutcome.TAKEN_OVER),
        (AFTER._replace(writer=b"writer-c"), ChangeOutcome.TAKEN_OVER),
    ],
)
def test_what_became_of_an_entry_that_was_to_be_made(
    found: Marks | None, verdict: ChangeOutcome
) -> None:
    """It is there, may still come, or another has made it."""
    assert verdict == judge(found, None, AFTER)


def test_pauses_grow_to_a_bound() -> None:
    """However long it takes."""
    pauses = [pause_s(attempt) for attempt in (1, 2, 3, 6, 7, 10_000)]
    assert [0.05, 0.1, 0.2, 1.6, 2.0, 2.0] == pauses
