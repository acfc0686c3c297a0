"""What a window adds to what is known; offsets that come twice, late, or never."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.seaweedmq.entries.log_entries import LogEntry
from kgw.backend.seaweedmq.native.following import AddResult, Following, label
from kgw.backend.seaweedmq.native.messages import FetchedMessage, UnflushedEntry

NOTHING = memoryview(b"")


def entries(*pairs: tuple[int, int]) -> list[LogEntry]:
    """Return entries with these offsets and times."""
    return [LogEntry(offset, ts_ns, NOTHING, NOTHING) for offset, ts_ns in pairs]


def test_windows_that_follow_each_other() -> None:
    """What comes behind what is known is fresh, and shown at once."""
    following = Following(0, 0, 10)
    assert AddResult(2) == following.take(entries((0, 100), (1, 101)), 0)
    assert AddResult(1) == following.take(entries((2, 102)), 0)
    assert 3 == following.high_watermark(0)


def test_a_window_twice_is_known() -> None:
    """A window that comes once more changes nothing."""
    following = Following(0, 0, 10)
    following.take(entries((0, 100), (1, 101)), 0)
    assert AddResult(duplicates=2) == following.take(entries((0, 100), (1, 101)), 0)
    assert AddResult(1, duplicates=1) == following.take(entries((1, 101), (2, 102)), 0)
    assert 3 == following.end_offset


def test_a_repeated_offset() -> None:
    """A known offset with a later time belongs to another record, and nothing of it is taken."""
    following = Following(11_016, 500, 10)
    assert AddResult(repeated=9_194) == following.take(entries((9_194, 600), (11_016, 601)), 0)
    assert 11_016 == following.end_offset


def test_a_hole_is_waited_at() -> None:
    """Readers stop before offsets that were left out, until they come or time has passed."""
    following = Following(5, 100, 10)
    following.take(entries((6, 101)), 0)
    assert 5 == following.high_watermark(9.9)
    assert 7 == following.high_watermark(10)


def test_a_hole_is_filled() -> None:
    """Two publishers at a time write out of order: what is missing comes with the next window."""
    following = Following(5, 100, 10)
    following.take(entries((7, 101)), 0)
    assert AddResult(2) == following.take(entries((5, 102), (8, 103)), 1)
    assert 6 == following.high_watermark(1)
    assert AddResult(1) == following.take(entries((6, 104)), 2)
    assert 9 == following.high_watermark(2)


def test_what_comes_too_late_is_named() -> None:
    """What comes after readers have passed it by is taken, and said."""
    following = Following(5, 100, 10)
    following.take(entries((7, 101)), 0)
    assert 8 == following.high_watermark(20)
    assert AddResult(1, late=6) == following.take(entries((6, 102)), 20)
    assert AddResult(repeated=6) == following.take(entries((6, 103)), 20)


@given(st.permutations(range(20)), st.lists(st.integers(1, 6), min_size=1))
def test_any_order_comes_to_the_same_end(order: list[int], sizes: list[int]) -> None:
    """However offsets are shared out over windows, all are taken once and the end is the same."""
    following = Following(0, 0, 10)
    fresh, at, ts_ns = 0, 0, 100
    number = 0
    watermark = 0
    while at < len(order):
        size = sizes[number % len(sizes)]
        number += 1
        window = sorted((offset, ts_ns + n) for n, offset in enumerate(order[at : at + size]))
        at, ts_ns = at + size, ts_ns + size
        taken = following.take(entries(*window), 0)
        assert taken.repeated is None
        fresh += taken.fresh
        assert following.high_watermark(0) >= watermark
        watermark = following.high_watermark(0)
    assert (20, 20) == (fresh, watermark)


def fetched(*times: int) -> list[FetchedMessage]:
    """Return messages with these times."""
    return [FetchedMessage(ts_ns, b"", b"%d" % ts_ns) for ts_ns in times]


def test_labels_of_what_is_certain() -> None:
    """The broker leaves out the first entry behind a flush; the next one says what it must be."""
    found = label(fetched(101, 102, 103), [UnflushedEntry(6, 102)], 5, 100)
    assert [(5, 101), (6, 102)] == [(entry.offset, entry.ts_ns) for entry in found]
    assert b"101" == bytes(found[0].data)


def test_nothing_is_certain_without_an_entry() -> None:
    """Messages alone have no offsets."""
    assert [] == label(fetched(101), [], 5, 100)


def test_nothing_is_certain_where_an_entry_contradicts() -> None:
    """A hole, or messages that are missing, make all labels doubtful."""
    assert [] == label(fetched(101, 102), [UnflushedEntry(8, 102)], 5, 100)
    assert [] == label(fetched(101, 102), [UnflushedEntry(5, 101), UnflushedEntry(9, 102)], 5, 100)


def test_known_messages_are_left_out() -> None:
    """What is not above the last time known has come before."""
    found = label(fetched(99, 100, 101), [UnflushedEntry(5, 101)], 5, 100)
    assert [(5, 101)] == [(entry.offset, entry.ts_ns) for entry in found]
