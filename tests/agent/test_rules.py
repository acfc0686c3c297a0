"""The pure rules of the agent's API."""

from __future__ import annotations

from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.agent.answers import AnswerQueue, RecordResult
from kgw.agent.ring import RING_SLOTS, partition_for_key, partition_of_range
from kgw.agent.topics import served_namespace
from kgw.agent.values import as_record_value, is_record_value
from kgw.agent.windows import Acknowledgements, DeliveryWindow
from kgw.config import Config
from kgw.types import NO_OFFSET
from tests.agent.smq_client import M, field_of, value_of

# --- the ring -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "slot"),
    # The first four bytes of md5sum, as a signed number, without its sign, modulo 2520.
    [(b"", 0x2BE2_7327 % 2520), (b"a", 0x0CC1_75B9 % 2520), (b"b", 0x6D14_A002 % 2520)],
)
def test_a_key_has_a_slot(key: bytes, slot: int) -> None:
    """That of SMQ's own publisher, which is a partition where there are as many as slots."""
    assert slot == partition_for_key(key, RING_SLOTS)


@given(st.binary(max_size=20), st.integers(1, 10_000))
def test_a_key_goes_to_the_partition_that_has_its_slot(key: bytes, count: int) -> None:
    """Its range includes the slot; the last partition has what the division leaves over."""
    index = partition_for_key(key, count)
    assert 0 <= index < count
    if count <= RING_SLOTS:
        slot = partition_for_key(key, RING_SLOTS)
        size = RING_SLOTS // count
        stop = RING_SLOTS if index == count - 1 else (index + 1) * size
        assert index * size <= slot < stop


@given(st.integers(1, 2_520))
def test_both_divisions_of_the_ring_are_known(count: int) -> None:
    """SMQ's by the number of partitions, and kgw's 32 slots each, with either end."""
    size = RING_SLOTS // count
    for index in (0, count // 2, count - 1):
        stop = RING_SLOTS if index == count - 1 else (index + 1) * size
        assert index == partition_of_range(RING_SLOTS, index * size, stop, count)
        own = index * 32
        for end in (own + 31, own + 32):
            assert index == partition_of_range(4096, own, end, count)


@pytest.mark.parametrize(
    "place", [(0, 0, 0), (2520, -630, 0), (2520, 630, 1261), (4096, 128, 160), (4096, 1, 33)]
)
def test_other_ranges_are_none(place: tuple[int, int, int]) -> None:
    """Of a topic with four partitions."""
    assert partition_of_range(*place, 4) is None


def test_the_hash_is_of_md5() -> None:
    """Of a negative number the sign is left out, as Go's remainder has it."""
    key = next(b"%d" % one for one in range(99) if md5(b"%d" % one).digest()[0] > 127)  # noqa: S324 - SMQ's choice
    number = int.from_bytes(md5(key).digest()[:4], "big") - (1 << 32)  # noqa: S324 - as above
    assert -number % RING_SLOTS == partition_for_key(key, RING_SLOTS)


# --- values ---------------------------------------------------------------------------------------


@given(st.binary(max_size=40))
def test_any_value_is_told_as_a_record_value(value: bytes) -> None:
    """As it is, or whole in the field `_value`: nothing of it is lost to a parser."""
    told = M["RecordValue"].FromString(as_record_value(value))
    if is_record_value(value):
        assert value == as_record_value(value)
    else:
        assert value == field_of(told, "_value")


@pytest.mark.parametrize("value", [b"", value_of(a=1, b="x").SerializeToString()])
def test_record_values_are_known(value: bytes) -> None:
    """Also one without fields, which is no bytes at all."""
    assert is_record_value(value)


@pytest.mark.parametrize("value", [b"h1", b"hello", b'{"a": 1}', b"\x0a\x05", b"\x12\x01a"])
def test_texts_are_no_record_values(value: bytes) -> None:
    """Not even where a parser would skip all of it as fields that it does not know."""
    assert not is_record_value(value)


# --- windows --------------------------------------------------------------------------------------


def test_a_window_stands_at_what_is_missing() -> None:
    """Whatever the order of acknowledgements."""
    window = DeliveryWindow(0, 5, 3)
    acks = Acknowledgements()
    for offset in (5, 6, 8):
        assert window.admits(b"")
        acks.expect(window, offset, offset * 10, b"")
    assert not window.admits(b"")
    assert acks.take(b"", 6)
    assert 5 == window.position
    assert acks.take(b"", 50)
    assert 8 == window.position
    assert not acks.take(b"", 5)
    assert acks.take(b"", 8)
    assert (9, 0) == (window.position, len(acks))


def test_a_key_is_in_flight_once() -> None:
    """No key is none."""
    window = DeliveryWindow(0, 0, 10)
    acks = Acknowledgements()
    acks.expect(window, 0, 0, b"a")
    acks.expect(window, 1, 0, b"")
    assert [False, True, True] == [window.admits(key) for key in (b"a", b"b", b"")]
    assert acks.take(b"a", 0)
    assert window.admits(b"a")


def test_records_of_one_name_are_settled_together() -> None:
    """Nobody knows which one is meant, of two partitions or of one time, until all are."""
    one, two = DeliveryWindow(0, 7, 10), DeliveryWindow(1, 7, 10)
    acks = Acknowledgements()
    acks.expect(one, 7, 99, b"")
    acks.expect(two, 7, 98, b"")
    assert not acks.take(b"", 7)
    assert (7, 7) == (one.position, two.position)
    assert acks.take(b"", 7)
    assert (8, 8) == (one.position, two.position)
    acks.expect(one, 8, 100, b"")
    acks.expect(one, 9, 100, b"")
    acks.expect(two, 8, 101, b"")
    acks.forget(two)
    # It may be that of the other partition's record, which the client has as well.
    assert not acks.take(b"", 8)
    assert 8 == one.position
    assert acks.take(b"", 8)
    assert acks.take(b"", 100)
    assert (10, 0) == (one.position, len(acks))


def test_an_acknowledgement_of_a_partition_that_went_settles_no_other() -> None:
    """Whether it came before the partition went or comes after: the others wait for their own."""
    windows = [DeliveryWindow(number, 0, 10) for number in range(3)]
    acks = Acknowledgements()
    for window in windows:
        acks.expect(window, 0, 90 + window.partition, b"")
    assert not acks.take(b"", 0)
    acks.forget(windows[0])
    assert not acks.take(b"", 0)
    assert [0, 0] == [window.position for window in windows[1:]]
    assert acks.take(b"", 0)
    assert [1, 1] == [window.position for window in windows[1:]]
    assert 0 == len(acks)


@pytest.mark.parametrize("forgotten", [None, 0])
def test_acknowledgements_by_time_wait_for_nothing_else(forgotten: int | None) -> None:
    """As SMQ's own clients send them: that offsets are the same elsewhere does not matter."""
    windows = [DeliveryWindow(number, 0, 10) for number in range(2)]
    acks = Acknowledgements()
    for window in windows:
        acks.expect(window, 0, 90 + window.partition, b"")
    if forgotten is not None:
        acks.forget(windows[forgotten])
    assert acks.take(b"", 91)
    assert 1 == windows[1].position
    assert acks.take(b"", 90) == (forgotten is None)
    assert 0 == len(acks)


# --- answers --------------------------------------------------------------------------------------


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_answers_leave_in_order(order: list[int], refused: set[int]) -> None:
    """Each once, whenever it came."""
    queue = AnswerQueue()
    taken = []
    for sequence in order:
        offset = NO_OFFSET if sequence in refused else sequence
        queue.settle(RecordResult(sequence, offset, "no" if sequence in refused else ""))
        while (answer := queue.take()) is not None:
            taken.append(answer)
    assert [*range(1, 9)] == [one.sequence for one in taken]
    assert refused == {one.sequence for one in taken if one.error}


def test_refusals_are_kept() -> None:
    """Of successes that nobody takes the newest stand for the others."""
    queue = AnswerQueue(2)
    for sequence in range(1, 7):
        queue.settle(RecordResult(sequence, NO_OFFSET if sequence == 2 else sequence))
    assert 3 == queue.dropped
    assert not queue.is_overrun
    answers = [queue.take() for _ in range(4)]
    assert [2, 5, 6] == [one.sequence for one in answers if one is not None]
    for sequence in range(7, 10):
        queue.settle(RecordResult(sequence, NO_OFFSET))
    assert queue.is_overrun


# --- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "namespace"),
    [
        ("embedded", "kafka"),
        ("memory", "kafka"),
        ("seaweedmq://filer:8888/shop", "shop"),
        ("seaweedmq://filer:8888", "kafka"),
    ],
)
def test_the_namespace_is_the_backends(backend: str, namespace: str) -> None:
    """That of the files, or the one of SeaweedFS's own Kafka gateway."""
    assert namespace == served_namespace(Config.of(backend=backend))
