"""Snapshots of producers: what they carry, what is read of them, and what comes between turns."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from kgw.partitions.append.producer_entry import Duplicate
from kgw.partitions.append.producer_snapshot import (
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    pack_producers,
)
from kgw.partitions.append.producer_state import ProducerState
from kgw.partitions.append.transactions import TransactionMarker, make_marker
from kgw.records.batch import TRANSACTIONAL_FLAG
from kgw.turns import at_once
from tests.partitions.producers import Driver, batch_of, loaded, snapshot_of
from tests.turns import counted

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch


@pytest.fixture
def driver() -> Driver:
    """Return a partition without producers."""
    return Driver()


def test_a_snapshot_carries_the_whole_window(driver: Driver) -> None:
    """After a reload all five batches are recognised, not the last alone."""
    offsets = [driver.store(batch_of(index, epoch=3)) for index in range(9)]
    driver.store(batch_of(10, producer_id=8))

    state = loaded(snapshot_of(driver.state))

    assert [Duplicate(offsets[index], 2_000 + index) for index in range(4, 9)] == [
        state.check(batch_of(index, epoch=3)) for index in range(4, 9)
    ]
    assert state.check(batch_of(11, producer_id=8)) is None
    assert snapshot_of(driver.state) == snapshot_of(state)


def test_a_snapshot_leaves_out_what_is_in_flight(driver: Driver) -> None:
    """What may still fail is not kept: neither a batch nor an epoch of batches."""
    driver.store(batch_of(0))
    before = snapshot_of(driver.state)
    driver.submit(batch_of(1))
    driver.submit(batch_of(0, epoch=1))
    driver.submit(batch_of(0, producer_id=8))

    assert before == snapshot_of(driver.state)


def test_a_snapshot_made_in_turns_is_of_its_last(driver: Driver) -> None:
    """It has what was stored between them, by whom ever, and of those who came meanwhile."""
    for producer_id in range(6):
        driver.store(batch_of(0, producer_id=producer_id))
    waiting = driver.submit(batch_of(1, producer_id=1))
    failing = driver.submit(batch_of(0, producer_id=2, epoch=1))
    packing = pack_producers(driver.state, 2)
    next(packing)
    driver.complete(waiting)
    driver.store(batch_of(1, producer_id=5))
    next(packing)
    driver.store(batch_of(0, producer_id=9))
    next(packing)
    driver.store(batch_of(0, producer_id=0, epoch=1))
    driver.submit(batch_of(2, producer_id=1))
    assert failing.owner is driver.state.get(2)

    packed = at_once(packing)

    assert packed is not None
    known = loaded(bytes(at_once(encode_snapshot(packed))))
    now = loaded(snapshot_of(driver.state))
    assert 7 == len(packed)
    assert {entry.producer_id: repr(entry) for entry in now} == {
        entry.producer_id: repr(entry) for entry in known
    }
    assert driver.state.changed is None


def test_many_producers_take_many_turns(driver: Driver) -> None:
    """So many are packed, and so many written, before others come between."""
    for producer_id in range(100):
        driver.store(batch_of(0, producer_id=producer_id))
    turns, packed = counted(pack_producers(driver.state, 10))
    assert 11 == turns
    assert packed is not None
    writing = encode_snapshot(packed, per_turn=25)
    assert [None] * 3 == [next(writing) for _ in range(3)]
    assert 100 == len(decode_snapshot(at_once(writing)).producers)


def test_no_snapshot_is_made_of_a_state_that_is_replaced_meanwhile(driver: Driver) -> None:
    """Its producers are read from the log again, which is noted nowhere; the next one has them."""
    driver.store(batch_of(0))
    packing = pack_producers(driver.state, 1)
    next(packing)
    other = ProducerState()
    other.replay(batch_of(0, producer_id=8, base_offset=100), now_ms=0)
    driver.state.become(other)

    assert at_once(packing) is None
    assert 1 == len(loaded(snapshot_of(driver.state)))


def test_a_snapshot_that_is_given_up_leaves_nothing_behind(driver: Driver) -> None:
    """No more is noted of what is stored."""
    driver.store(batch_of(0))
    packing = pack_producers(driver.state, 1)
    next(packing)
    assert driver.state.changed is not None

    packing.close()

    assert driver.state.changed is None


def transactional(sequence: int, base_offset: int, producer_id: int = 7) -> RecordBatch:
    """Return a batch of a transaction at its place in the log."""
    return batch_of(
        sequence, producer_id=producer_id, base_offset=base_offset, attributes=TRANSACTIONAL_FLAG
    )


def end_of(base_offset: int, *, is_commit: bool, producer_id: int = 7) -> RecordBatch:
    """Return a marker at its place in the log."""
    marker = make_marker(TransactionMarker(producer_id, 0, 5, is_commit), 0)
    marker.assign(base_offset, 0)
    return marker


def test_a_snapshot_carries_transactions() -> None:
    """Those that are open, what was aborted, and whose marker came last."""
    state = ProducerState()
    for batch in (
        transactional(0, 0),
        transactional(0, 1, producer_id=8),
        end_of(2, is_commit=False),
        transactional(1, 3),
        end_of(4, is_commit=True, producer_id=9),
    ):
        state.replay(batch, now_ms=0)

    again = loaded(snapshot_of(state))

    assert [1, 3] == [opened.first_offset for opened in again.open_transactions]
    assert again.aborted is not None
    assert [(7, 0, 2)] == again.aborted.ranges()
    assert {7: (2, 5), 8: (-1, -1), 9: (4, 5)} == {
        entry.producer_id: (entry.marker_offset, entry.coordinator_epoch) for entry in again
    }
    assert again.check(batch_of(77, producer_id=9)) is None
    assert snapshot_of(state) == snapshot_of(again)


def test_a_snapshot_knows_of_transactions_what_is_stored() -> None:
    """A marker in flight has ended nothing yet, a batch in flight begun nothing."""
    state = ProducerState()
    state.replay(transactional(0, 0), now_ms=0)
    before = snapshot_of(state)
    state.submit_marker(TransactionMarker(7, 1, 5, is_commit=False), now_ms=0)
    batch = transactional(0, 0, producer_id=8)
    state.submit(batch, "token", 0, state.begin_transaction(batch, 1, 0))

    assert before == snapshot_of(state)


def test_a_snapshot_of_version_1_is_read() -> None:
    """Its producers have no marker, and nothing was aborted."""
    body = b"".join(
        (
            struct.pack(">4sHI", b"kgwp", 1, 1),
            struct.pack(">qhiqqB", 7, 3, -1, 90, 12, 1),
            struct.pack(">iiqiq", 0, 0, 100, 1, 2_000),
        )
    )

    state = loaded(body + crc32c(body).to_bytes(4, "big"))

    assert [90] == [opened.first_offset for opened in state.open_transactions]
    assert Duplicate(100, 2_000) == state.check(batch_of(0, epoch=3))
    assert state.aborted is None


@pytest.mark.slow
def test_a_damaged_snapshot_is_refused(driver: Driver) -> None:
    """Any flipped bit and any missing end raises."""
    for index in range(3):
        driver.store(batch_of(index))
    driver.state.replay(transactional(0, 200, producer_id=8), now_ms=0)
    driver.state.replay(end_of(201, is_commit=False, producer_id=8), now_ms=0)
    snapshot = snapshot_of(driver.state)

    damaged = [snapshot[:length] for length in range(len(snapshot))]
    for bit in range(len(snapshot) * 8):
        flipped = bytearray(snapshot)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        with pytest.raises(SnapshotError):
            decode_snapshot(data)


def test_snapshots_of_another_version_or_shape_are_refused() -> None:
    """A good checksum over something else is not enough."""
    for body in (
        b"kgwp\x00\x03\x00\x00\x00\x00",
        b"kgwp\x00\x01\x00\x00\x00\x01",
        b"kgwp\x00\x01\x00\x00\x00\x00more",
        b"none\x00\x01\x00\x00\x00\x00",
    ):
        with pytest.raises(SnapshotError):
            decode_snapshot(body + crc32c(body).to_bytes(4, "big"))


def test_a_snapshot_ends_however_many_write(driver: Driver) -> None:
    """Turns become longer when more is stored between two of them than one can pack."""
    for producer_id in range(8):
        driver.store(batch_of(0, producer_id=producer_id))
    packing = pack_producers(driver.state, 1)
    for sequence in range(1, 50):
        try:
            next(packing)
        except StopIteration as end:
            packed = end.value
            break
        for producer_id in range(8):
            driver.store(batch_of(sequence, producer_id=producer_id))
    assert (
        loaded(bytes(at_once(encode_snapshot(packed)))).check(batch_of(sequence, producer_id=7))
        is None
    )
